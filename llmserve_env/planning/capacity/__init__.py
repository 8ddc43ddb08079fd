"""How much a deployment carries: load against capacity, what promises allow, and how many GPUs they need.

`checking.py` answers for a task as it is, `replicas.py` for other sizes of its fleet.
"""

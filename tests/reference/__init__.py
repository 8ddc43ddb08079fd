"""The engine a second time: slow, plain Python, written from `docs/engine.md` and never from the kernels.

Read `engine.py` (the deployment and its clock), then `replica.py` and `scheduling.py` (one replica),
then `kv_cache.py` (blocks and the prefix cache) and `costs.py` (iteration time).
"""

"""One question, one answer: the cheapest fleet and configuration that keep every SLO of a task.

`protocol.py` says how it is searched and verified, `objectives.py` what must be kept, `search.py` finds the answer and
`store.py` keeps it beside the task. `llmserve task check`, `tune`, `capacity` and `report` all show this one answer.
"""

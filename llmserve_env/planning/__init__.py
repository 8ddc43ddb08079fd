"""Answers for a fleet, as a chain: each part may use those before it, and none uses one after it.

`tuning` finds the best constant configuration; `freezing` computes the references that scores are measured on;
`capacity` says how many GPUs the promises need; `report` puts all of it on one page.
"""

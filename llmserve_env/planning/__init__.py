"""Answers for a fleet, in a chain: each part may use the parts before it, but none after it.

`tuning` finds the best constant configuration; `freezing` computes the references that scores are measured on;
`capacity` says how many GPUs the promises need; `report` puts all of it on one page.
"""

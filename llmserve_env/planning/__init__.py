"""Answers for a fleet: the best constant configuration, how many GPUs, and the report that says so."""

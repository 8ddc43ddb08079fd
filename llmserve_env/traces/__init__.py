"""Recorded traffic: read a log, look at it, replay it, or fit a generator to it.

Read `formats.py` for which logs are known, `importing.py` for how a log becomes a trace, `trace.py` for how it is
replayed, `statistics.py` for what is measured of it, `fitting.py` for how it becomes a workload.
"""

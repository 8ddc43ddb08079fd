"""Real mode: the same actions, observations and reward on an engine that really serves.

`settings.py` says what may be spent, `provider.py` what an engine must offer, `load.py` plays a window's arrivals, and
`backend.py` serves an episode with them. `calibration.py` makes a latency profile from a live engine.
"""

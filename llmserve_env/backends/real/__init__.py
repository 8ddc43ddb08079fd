"""Real mode: the same actions, observations and reward on an engine that really serves.

`settings.py` says what may be spent, `provider.py` what an engine must offer, `load.py` plays a window's arrivals,
`windows.py` turns timestamps into the simulator's figures, `backend.py` ties them to an episode. The bridge back is
`calibration.py` (a latency profile from a live engine) and `comparison.py` (both on the same requests).
"""

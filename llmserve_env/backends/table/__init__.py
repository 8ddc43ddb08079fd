"""Lookup tables: serving figures over a grid of knobs, exported from the simulator or supplied by a user.

Read `grid.py` for the columns, `saturation.py` for how the simulator fills them, `lookup.py` for how they are read
between grid points, `backend.py` for how a table serves an episode.
"""

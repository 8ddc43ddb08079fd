"""Lookup tables: serving figures over a grid of knobs, exported from the simulator or brought by a user.

Read `grid.py` for the columns, `saturation.py` for how the simulator fills them, `lookup.py` for how they are read
between grid points, `gym_env.py` for the environment that is driven by a table alone.
"""

"""Measurements of the simulator: how exact it is (`fidelity`) and how fast (`engine`). README.md has the figures."""

"""Evaluation: play seeds, grade them, and report figures with intervals. Start at `play.py`, then `evaluate.py`."""

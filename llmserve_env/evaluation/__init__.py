"""Evaluation: play seeds, grade them, and report figures with intervals. Start reading at `play.py`, then `evaluate.py`."""

"""A policy beside a live engine: reads its metrics, decides every window, and acts within bounds.

Reading order: `bounds` (what it may do), `readings` (what it sees), `engine_link` (how it acts), `observed` (the window
records of what it saw), `pilot` (the loop), `exporter` (what others see of it), `shadow` (what it would have done).
"""

"""What a task asks of its fleet, for a terminal: load, the answer, and which knobs matter."""

"""Search for the best constant knobs of a task: the bar that adaptive agents have to clear."""

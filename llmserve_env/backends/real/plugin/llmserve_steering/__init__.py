"""A scheduler for vLLM that we can steer, and the files we steer it through. Standard library only."""

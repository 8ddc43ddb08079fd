"""A request-level simulator of LLM serving. Start with `docs/engine.md`, then `engine.py`, then `kernels/`."""

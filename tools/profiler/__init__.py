"""Time whole iterations of a Llama-style model on a CUDA GPU; only PyTorch and Triton are needed.

`python -m tools.profiler --out FILE` measures everything; `llmserve profile fit FILE` turns it into a profile anywhere.
Reading order: `grid` (which iterations), `decoder` (what one iteration runs), `timing` (how it is timed).
"""

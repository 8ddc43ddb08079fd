"""Times whole iterations of a Llama-style model on a CUDA GPU; needs PyTorch and Triton only.

`python -m profiler --out FILE` measures everything; `llmserve profile fit FILE` makes a profile of it on any machine.
Reading order: `grid` (which iterations), `decoder` (what one iteration runs), `timing` (how it is timed).
"""

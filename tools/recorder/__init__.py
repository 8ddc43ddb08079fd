"""Records what a real vLLM decides and how long it takes, as the fidelity benchmarks read it.

`python -m tools.recorder gpu --out DIR` drives vLLM on a GPU under traffic on the wall clock. Reading order: `traffic`
(what is sent), `plans` (which runs), `gpu` (how they are driven), `engine_log` (what vLLM's own process writes down),
`files` (what is stored).
"""

"""Records what a real vLLM decides and how long it takes, as the fidelity benchmarks read it.

Three things are recorded: vLLM's scheduler alone on a virtual clock, the whole engine on a CPU, and the whole engine on
a GPU. `python -m tools.recorder virtual | cpu | gpu --out DIR` runs in the environment that vLLM is installed in,
`pack` in the project's. Reading order for the first two: `scheduler_plans` (which runs), `traffic` and `scheduler_runs`
(what goes in and out), `decisions` (what is written down), `virtual`, `cpu`, `decision_files` (what is stored). For the
GPU: `plans`, `gpu` (how it is driven), `engine_log` (what vLLM's own process writes down), `files`.
"""

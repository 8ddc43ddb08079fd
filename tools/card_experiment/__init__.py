"""Policies on a live engine and in the simulator, on the same requests: is what the simulator promises true?

`python -m tools.card_experiment play` runs where the engine is and keeps what happened; `report` compares it with the
simulator on any machine. Reading order: `engines` (what is started), `policies`, `playing` (an episode), `calibrating`,
`running` (all of them), `records` (what is kept), `host_of_day`, `comparison` (both columns, differences), `text`,
`plot`, `again` (the engine against itself), `hosts`. `overhead` and `alternating` measure the plug-in's cost.

The machine with the engine needs vLLM and, of our own dependencies, numpy, numba, scipy, pydantic, pydantic-settings,
PyYAML, httpx, gymnasium and safetensors.
"""

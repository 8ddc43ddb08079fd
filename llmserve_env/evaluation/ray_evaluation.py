"""Evaluation fanned out over Ray: names and seeds travel, results come back in order."""

from __future__ import annotations

from collections.abc import Sequence

import ray

from llmserve_env.evaluation.ray_cluster import cluster
from llmserve_env.evaluation.rollout import Chunk, EpisodeResult, evaluate_chunk


def evaluate_on_ray(
    pieces: Sequence[Chunk], address: str | None = None, num_cpus: int | None = None
) -> list[EpisodeResult]:
    """Play and grade all pieces; the same results as on one machine."""
    with cluster(address, num_cpus):
        play = ray.remote(evaluate_chunk)
        return [result for results in ray.get([play.remote(piece) for piece in pieces]) for result in results]

"""The wire types by the plan's import path."""

from __future__ import annotations

from llmserve_env.models import (
    EpisodeLog,
    GradeReport,
    MetricsSnapshot,
    QuantTier,
    ServeAction,
    ServeObservation,
    ServeState,
    WorkloadState,
)

__all__ = [
    "EpisodeLog",
    "GradeReport",
    "MetricsSnapshot",
    "QuantTier",
    "ServeAction",
    "ServeObservation",
    "ServeState",
    "WorkloadState",
]

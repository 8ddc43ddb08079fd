"""What the last `info` of an episode adds: its score, its grade, and percentiles pooled over its requests."""

from __future__ import annotations

from typing import Any

from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.graders import grade_episode
from llmserve_env.graders.references import has_references
from llmserve_env.request_outcomes import request_figures


def final_info(episode: PlayedEpisode) -> dict[str, Any]:
    """`score`, `grade` and `requests`; the first two only where the task has frozen references and was simulated."""
    if episode.mode == "table":
        return {}
    if not has_references(episode.task):
        return {"requests": request_figures(episode.requests).as_dict()}
    grade = grade_episode(episode)
    return {
        "score": grade.score,
        "grade": {"breakdown": dict(grade.breakdown), "feedback": grade.feedback},
        "requests": grade.requests.as_dict(),
    }

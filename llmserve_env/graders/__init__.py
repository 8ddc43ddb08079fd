"""Scores of episodes: `grade` replays a log, `grade_episode` takes the record of an episode played here."""

from llmserve_env.graders.grade import Grade, grade, grade_episode

__all__ = ["Grade", "grade", "grade_episode"]

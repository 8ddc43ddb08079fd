"""Scores of episodes: `grade` replays a log, `grade_episode` trusts an episode of this process."""

from llmserve_env.graders.grade import Grade, grade, grade_episode

__all__ = ["Grade", "grade", "grade_episode"]

"""Submissions of agents: written by playing the official seeds, verified by replay, and rendered as a leaderboard."""

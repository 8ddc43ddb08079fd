"""Tests of the learner need the extra [train]; without it they are not collected."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("stable_baselines3") else ["test_vec_env.py", "test_ppo.py"]

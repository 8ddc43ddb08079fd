"""Tests on Ray need the extra [ray]; without it they are not collected."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("ray") else ["test_ray.py"]

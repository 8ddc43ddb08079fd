"""Tests of the search need the extra [train]; without it they are not collected."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("optuna") else ["test_search.py"]

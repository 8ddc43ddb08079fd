"""The TRL example needs trl, transformers and datasets; without them its test is not collected."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("trl") else ["test_trl_grpo.py"]

"""Running notebooks needs nbclient; without it these tests are not collected."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("nbclient") else ["test_demo.py"]

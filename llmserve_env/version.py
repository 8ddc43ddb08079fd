"""Versions that results carry."""

from __future__ import annotations

PACKAGE_VERSION = "0.1.0"
ENVIRONMENT_VERSION = "1"
"""Changes whenever the same task, seed and actions would give other figures."""

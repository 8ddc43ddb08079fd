"""What goes wrong with profiles."""

from __future__ import annotations


class ProfileError(ValueError):
    """A profile that does not exist, cannot be read, or claims what no GPU can do; or a question it cannot answer."""

from __future__ import annotations


class ValueError(Exception):
    """What ends a recipe with a line and status 1."""

"""Numbers of random inputs: all of them in `python -m tests.fresh`, a third in the README's command."""

from __future__ import annotations

from hypothesis import settings

FRESH = "fresh"  # the profile of tests.fresh
_LEAST = 20


def count_draws(full: int, *, least: int = _LEAST) -> int:
    """Return the number of inputs that a test draws in this run.

    Args:
        full: Number in `python -m tests.fresh`.
        least: In any run, if `full` is not lower.
    """
    return full if settings.get_current_profile_name() == FRESH else max(full // 3, min(full, least))

"""Numbers of random inputs and of cases: all of them in `python -m tests.fresh`, fewer in the README's command.

Random tests draw a quarter of their inputs there. Of the cases of a parametrized test with `@pytest.mark.few(count)`, those
at equal distances run (of one, the first), and the others with `-m slow`: mostly whole runs that differ in one option.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import settings

FRESH = "fresh"  # the profile of tests.fresh
_LEAST = 12


def count_draws(full: int, *, least: int = _LEAST) -> int:
    """Return the number of inputs that a test draws in this run.

    Args:
        full: Number in `python -m tests.fresh`.
        least: In any run, if `full` is not lower.
    """
    return full if _is_fresh() else max(full // 4, min(full, least))


def place_after_gaps(drawn: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Make (start, end) of drawn (gap, length), one after the other."""
    placed, at = [], 0
    for gap, length in drawn:
        placed.append((at + gap, at + gap + length))
        at += gap + length
    return placed


def leave_out_cases(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """List the cases that the README's command leaves out."""
    cases: dict[object, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("few") and not _is_fresh():
            cases.setdefault(getattr(item, "function", item), []).append(item)
    return [case for own in cases.values() for case in set(own) - set(_choose(own))]


def _choose(cases: list[pytest.Item]) -> list[pytest.Item]:
    """Choose cases of one test at equal distances."""
    marker = cases[0].get_closest_marker("few")
    assert marker is not None
    return [cases[row] for row in np.linspace(0, len(cases) - 1, marker.args[0]).round().astype(int)]


def _is_fresh() -> bool:
    return bool(settings.get_current_profile_name() == FRESH)

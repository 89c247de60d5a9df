"""Choice of the units that a timeline grows by: those with the clearest corrections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from msgspec import Struct, field

from nsys_pp.alignment.choice import Choice, expect_margin
from nsys_pp.alignment.timeline import Timeline

_ABOUT_BEST = 0.6  # of the clearest margin
_EXPECTED = _ABOUT_BEST / 2  # of it, below which an expected margin does not come near it
_AT_A_TIME = 16  # units or machines whose corrections are compared; more only as long as none is clear

ChooseAll = Callable[[Sequence[list[Timeline]]], Iterable[Choice | None]]
"""Chooses a correction for each of several joint units."""


class LastChoices(Struct):
    """Last choices of units that are compared with a growing timeline, by the first domain of the unit.

    Attributes:
        margins: Margin of a clear choice, 0 of any other.
        clear: Clear choices of units that are not judged jointly with others.
    """

    margins: dict[int, float] = field(default_factory=dict)
    clear: dict[int, Choice] = field(default_factory=dict)

    def add(self, units: list[Timeline], choice: Choice | None) -> None:
        """Add the choice of joint units."""
        number = min(units[0].lines)
        is_clear = choice is not None and choice.is_clear
        self.margins[number] = choice.margin if choice is not None and is_clear else 0.0
        self.clear.pop(number, None)
        if choice is not None and is_clear and len(units) == 1:
            self.clear[number] = choice


def choose_next(
    timeline: Timeline,
    joint: list[list[Timeline]],
    last: LastChoices,
    choose_all: ChooseAll,
    scatter_ns: float | None,
    *,
    only_clear: bool,
) -> list[Choice]:
    """Choose the corrections of all units with a clear one, or else of the one with the least doubt.

    Of many, those that were clearest before are compared first.

    Args:
        timeline: The timeline.
        joint: Units that are not on it, those whose corrections are judged jointly together.
        last: Their last choices; changed in place.
        choose_all: Chooses a correction for each of several joint units.
        scatter_ns: Scatter of the ends of one operation in this run; None as long as it is not known.
        only_clear: Choose none without a clear correction.
    """
    if len(joint) > _AT_A_TIME:
        joint = sorted(joint, key=lambda units: -last.margins.get(min(units[0].lines), np.inf))
    choices: list[Choice] = []
    clear: list[Choice] = []
    for first in range(0, len(joint), _AT_A_TIME):
        if clear:
            break
        choices += _compare(timeline, joint[first : first + _AT_A_TIME], last, choose_all, scatter_ns)
        clear = [choice for choice in choices if choice.is_clear]
    if clear:
        # the others are clearer with these on the timeline
        least = _ABOUT_BEST * max(choice.margin for choice in clear)
        return [choice for choice in clear if choice.margin >= least]
    if choices and not only_clear:
        return [max(choices, key=lambda choice: (choice.rival_distances.any_ns == 0.0, choice.margin))]
    return []


def _compare(
    timeline: Timeline,
    joint: list[list[Timeline]],
    last: LastChoices,
    choose_all: ChooseAll,
    scatter_ns: float | None,
) -> list[Choice]:
    """Choose the corrections of units, in their order, except units that are not expected to be about as clear as the clearest.

    These had a clear correction before, and operations that were added since then are little more evidence for it. They are
    compared again before they are added.
    """
    expected = {
        number: expect_margin(timeline, last.clear[first], scatter_ns)
        for number, units in enumerate(joint)
        if len(joint) > 1 and (first := min(units[0].lines)) in last.clear
    }
    found: dict[int, Choice] = {}
    remaining = list(range(len(joint)))
    clearest = max(expected.values(), default=0.0)
    for _ in range(2):  # by expected margins, then by those that were found
        chosen = [number for number in remaining if expected.get(number, np.inf) >= _EXPECTED * clearest]
        for number, choice in zip(chosen, choose_all([joint[number] for number in chosen]), strict=True):
            last.add(joint[number], choice)
            if choice is not None:
                found[number] = choice
        clearest = max((choice.margin for choice in found.values() if choice.is_clear), default=0.0)
        remaining = [number for number in remaining if number not in chosen]
    return [found[number] for number in sorted(found)]

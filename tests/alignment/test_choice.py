"""Choices among candidates: their doubts, and evidence of other units of a machine, against its definition in plain loops."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.alignment import choice
from nsys_pp.alignment.candidates import Candidate
from nsys_pp.alignment.choice import MAX_SESSION_DIFFERENCE_NS, Prior, Timeline, _find_near_evidence, choose
from nsys_pp.alignment.near import Line, stack_lines
from tests.alignment.test_candidates import draw_comparison

MS = 1e6
_LINES = st.lists(
    st.builds(
        Line,
        offset_ns=st.integers(-5, 5).map(lambda number: number * 0.4e6),
        rate=st.sampled_from([0.0, 1e-4]),
        center_ns=st.sampled_from([0.0, 4e9]),
    ),
    min_size=1,
    max_size=6,
)


@given(_LINES, _LINES)
def test_evidence_near_a_line_is_that_of_the_best_rival_close_to_it(
    lines: list[Line], others: list[Line]
) -> None:
    rivals = [
        Candidate(line=line, evidence=1.0 + number, exchange_evidence=0.0, sharpest_ns=1.0)
        for number, line in enumerate(others)
    ]
    expected = [
        max(
            (rival.evidence for rival in rivals if rival.line.distance_ns(line) <= MAX_SESSION_DIFFERENCE_NS),
            default=0.0,
        )
        for line in lines
    ]
    assert _find_near_evidence(stack_lines(lines), stack_lines(others), rivals).tolist() == expected


def _list_units() -> list[Timeline]:
    """Return units of one domain each: one of a machine, and two sessions of another one."""
    events, _ = draw_comparison(0, 0)
    nowhere = np.full(len(events), -1)
    units = [
        Timeline(events=events, instance=nowhere, machine=np.array([0, 1, 1]), channel=events.channel)
        for _ in range(3)
    ]
    for domain, unit in enumerate(units):
        unit.lines[domain] = Line()
    return units


@pytest.mark.parametrize(
    ("of_others", "distance_ms"),
    [
        ((60.0, 20.0), 12.0),  # alone, the session has less evidence of its best line than of the rival
        ((60.0, 55.0), 12.0),  # the other session has nearly as much of both
        ((20.0, 0.0), 12.0),  # the same, with less of the other one
        ((0.0, 0.0), 0.0),  # much more evidence alone
    ],
)
def test_other_sessions_of_a_machine_alone_rule_out_no_rival(
    of_others: tuple[float, float], distance_ms: float
) -> None:
    """They do the same at the same time: in another step or micro-batch, all of them agree nearly as well."""
    first, *joint = _list_units()
    own = (69.0, 70.0) if any(of_others) else (90.0, 60.0)
    scored = [
        (
            evidence + other,
            0,
            Candidate(
                line=Line(offset_ns=offset), evidence=evidence, exchange_evidence=0.0, sharpest_ns=5_000.0
            ),
            other,
        )
        for evidence, other, offset in zip(own, of_others, (12 * MS, 0.0), strict=True)
    ]
    with patch.object(choice, "_score", return_value=scored):
        chosen = choose(first, joint, Prior(is_utc=[True, True, True]), None)
    assert chosen is not None
    assert chosen.line == scored[0][2].line
    assert chosen.rival_distances.any_ns == pytest.approx(1.02 * distance_ms * MS)
    assert chosen.is_clear == (distance_ms == 0.0)

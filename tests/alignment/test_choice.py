"""Evidence of candidates of other units of a machine, against its definition in plain loops."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.alignment.candidates import Candidate
from nsys_pp.alignment.choice import _find_near_evidence
from nsys_pp.alignment.lines import Line, stack_lines
from nsys_pp.alignment.prior import MAX_SESSION_DIFFERENCE_NS

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

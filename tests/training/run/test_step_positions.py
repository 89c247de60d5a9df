"""Positions of messages in steps, against the definition in plain loops."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.training import RUN_STEPS
from nsys_pp.training.run.step_positions import PositionFinder, mark_step_edges, number_in_steps

STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.booleans()), max_size=8, unique_by=lambda row: row[:2]
)
MESSAGES = st.lists(
    st.tuples(st.integers(0, 2), st.none() | st.integers(0, 2), st.integers(0, 99)), max_size=16
)


def frame_of(rows: list[tuple[int, int | None, int]]) -> pl.DataFrame:
    schema = {"lane": pl.UInt32, "step": pl.Int64, "issue_ns": pl.Int64}
    frame = pl.DataFrame(rows, schema=schema, orient="row").with_row_index("row")
    return frame.with_columns(route=pl.col("lane").cast(pl.Int64))


def edges_of(
    lane: int, step: int | None, steps: list[tuple[int, int, bool]], *, is_reversed: bool
) -> tuple[bool, bool]:
    """Return whether the capture of a lane contains the begin and the end of a step."""
    own = {number: is_partial for at, number, is_partial in steps if at == lane}
    if step not in own:
        return False, False
    if not own[step]:
        return True, True
    is_first, is_last = step == min(own), step == max(own)
    if is_reversed:
        is_first, is_last = is_last, is_first
    if is_first == is_last:
        return False, False
    return is_last, is_first


@given(MESSAGES, MESSAGES, STEPS, st.booleans())
@settings(deadline=None, max_examples=200)
def test_positions_pair_messages(
    sent: list[tuple[int, int | None, int]],
    received: list[tuple[int, int | None, int]],
    steps: list[tuple[int, int, bool]],
    is_reversed: bool,
) -> None:
    run_steps = RUN_STEPS.to_frame().select("lane", "step", "is_partial")
    run_steps = pl.concat([run_steps, pl.DataFrame(steps, schema=run_steps.schema, orient="row")])
    run_steps = run_steps.with_columns(start_ns=(-1 if is_reversed else 1) * pl.col("step"))  # a restart
    sends, receives = (
        number_in_steps(mark_step_edges(frame_of(rows), run_steps)) for rows in (sent, received)
    )
    result = PositionFinder(sends, receives).pair(np.array([0, 0, 1]), np.array([1, 2, 1]))
    found = sorted(
        zip(*(column.tolist() for column in (result.candidate, result.send, result.receive)), strict=True)
    )
    expected = []
    for candidate, (sender, receiver) in enumerate([(0, 1), (0, 2), (1, 1)]):
        for step in range(3):
            own, other = (
                sorted(
                    (at, row) for row, (lane, number, at) in enumerate(rows) if lane == of and number == step
                )
                for rows, of in ((sent, sender), (received, receiver))
            )
            has_first, has_last = (
                all(pair)
                for pair in zip(
                    edges_of(sender, step, steps, is_reversed=is_reversed),
                    edges_of(receiver, step, steps, is_reversed=is_reversed),
                    strict=True,
                )
            )
            if has_first and has_last and len(own) != len(other):
                continue
            if has_first:
                pairs = zip(own, other, strict=False)
            elif has_last:
                pairs = zip(reversed(own), reversed(other), strict=False)
            else:
                continue
            expected += [(candidate, send, receive) for (_, send), (_, receive) in pairs]
    assert found == sorted(expected)

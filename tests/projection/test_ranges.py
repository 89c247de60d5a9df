"""Projection against its definition, and its speed class."""

from __future__ import annotations

from contextlib import ExitStack
from unittest import mock

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.report import API_CALLS, GPU_OPS, PROJECTIONS, RANGES
from nsys_pp.projection import measure as busy
from nsys_pp.projection import measure as range_minimum
from nsys_pp.projection import ranges as pieces
from nsys_pp.projection.launches import find_launch_devices, match_launches
from nsys_pp.projection.ranges import COMPUTED, OPS, Scope, project_compute, project_ranges
from nsys_pp.projection.waited_calls import find_waited_calls
from tests.projection import definition
from tests.projection.random_reports import Frames, frames, random_frames


@settings(max_examples=400, deadline=None)
@given(
    report=frames(),
    ops=st.sampled_from([("kernel",), ("memcpy",), ("memcpy", "memset"), ("kernel", "memcpy", "memset")]),
    scope=st.sampled_from(["thread", "process", "auto"]),
    per_stream=st.booleans(),
    is_as_if_huge=st.booleans(),
)
def test_projection_is_its_definition(
    report: Frames, ops: tuple[str, ...], scope: Scope, per_stream: bool, is_as_if_huge: bool
) -> None:
    """With `is_as_if_huge`, every window uses the algorithm for windows of many operations."""
    ranges, api_calls, gpu_ops = report
    kinds = {kind for name in ops for kind in OPS[name]}
    expected = definition.project(ranges, api_calls, gpu_ops, kinds, scope, per_stream)
    with ExitStack() as stack:
        if is_as_if_huge:
            stack.enter_context(mock.patch.object(busy, "_DIRECT_READS", 0))
            stack.enter_context(mock.patch.object(busy, "_COVER_CHUNK", 7))
        else:
            stack.enter_context(mock.patch.object(busy, "_READ_CHUNK", 5))
        if is_as_if_huge:
            stack.enter_context(mock.patch.object(range_minimum, "_DIRECT_READS", 0))
        actual = project_ranges(ranges, api_calls, gpu_ops, ops=ops, scope=scope, per_stream=per_stream)
    assert actual.schema == PROJECTIONS
    rows = actual.to_dicts()
    assert len(rows) == len(expected)
    for row, truth in zip(rows, expected, strict=True):
        assert row.pop("first_op") in truth.pop("first_ops")
        assert row.pop("last_op") in truth.pop("last_ops")
        assert row == truth


@settings(max_examples=100, deadline=None)
@given(report=frames(), scope=st.sampled_from(["thread", "process", "auto"]))
def test_known_launches_change_nothing(report: Frames, scope: Scope) -> None:
    ranges, api_calls, gpu_ops = report
    all_launches = match_launches(api_calls, gpu_ops)
    matched, with_launches = (
        project_ranges(ranges, api_calls, gpu_ops, scope=scope, launches=launches)
        for launches in (None, all_launches)
    )
    assert with_launches.equals(matched)


@settings(max_examples=100, deadline=None)
@given(report=frames(), scope=st.sampled_from(["thread", "process", "auto"]), data=st.data())
def test_computation_is_what_is_projected_without_communication(
    report: Frames, scope: Scope, data: st.DataObject
) -> None:
    ranges, api_calls, gpu_ops = report
    talks = data.draw(st.lists(st.booleans(), min_size=len(gpu_ops), max_size=len(gpu_ops)))
    gpu_ops = gpu_ops.with_columns(is_communication=pl.Series(talks, dtype=pl.Boolean))
    launches = match_launches(api_calls, gpu_ops)
    silent = launches.filter(~gpu_ops["is_communication"].gather(launches["op_id"]))
    expected = project_ranges(ranges, api_calls, gpu_ops, scope=scope, launches=silent)
    computed = project_compute(ranges, api_calls, gpu_ops, scope=scope, launches=launches)
    assert computed.equals(expected.select(COMPUTED.names()))
    assert computed.schema == COMPUTED


@pytest.mark.parametrize("scope", ["thread", "process", "auto"])
def test_nothing_in_nothing_out(scope: Scope) -> None:
    empty = project_ranges(RANGES.to_frame(), API_CALLS.to_frame(), GPU_OPS.to_frame(), scope=scope)
    assert empty.equals(PROJECTIONS.to_frame())
    assert empty.schema == PROJECTIONS


def split(report: Frames, piece_rows: int) -> list[pieces.Piece]:
    ranges, api_calls, gpu_ops = report
    ranges, launches = ranges.sort("range_id"), match_launches(api_calls, gpu_ops)
    waited = find_waited_calls(
        ranges, api_calls, launches["call_row"].to_numpy(), device=find_launch_devices(gpu_ops, launches)
    )
    with mock.patch.object(pieces, "_PIECE_ROWS", piece_rows):
        return list(pieces.split_pieces(ranges, api_calls, launches, waited))


@settings(max_examples=300, deadline=None)
@given(
    report=frames(),
    scope=st.sampled_from(["thread", "process", "auto"]),
    per_stream=st.booleans(),
    piece_rows=st.integers(1, 5),
)
def test_pieces_are_projected_as_the_whole(
    report: Frames, scope: Scope, per_stream: bool, piece_rows: int
) -> None:
    ranges, api_calls, gpu_ops = report
    launches = match_launches(api_calls, gpu_ops)
    whole = project_ranges(ranges, api_calls, gpu_ops, scope=scope, per_stream=per_stream)
    compute = project_compute(ranges, api_calls, gpu_ops, scope=scope, launches=launches)
    with mock.patch.object(pieces, "_PIECE_ROWS", piece_rows):
        assert project_ranges(ranges, api_calls, gpu_ops, scope=scope, per_stream=per_stream).equals(whole)
        assert project_compute(ranges, api_calls, gpu_ops, scope=scope, launches=launches).equals(compute)


@settings(max_examples=200, deadline=None)
@given(report=frames(), piece_rows=st.integers(1, 5))
def test_a_range_is_in_one_piece_with_all_calls_inside(report: Frames, piece_rows: int) -> None:
    ranges, api_calls, gpu_ops = report
    ranges, count = ranges.sort("range_id"), 0
    rows_seen: set[int] = set()
    for piece in split(report, piece_rows):
        assert rows_seen.isdisjoint(piece.rows.tolist())
        rows_seen.update(piece.rows.tolist())
        inside = [
            sum(
                call["thread_key"] == row["thread_key"]
                and row["start_ns"] <= call["start_ns"]
                and call["end_ns"] <= row["end_ns"]
                for call in calls
            )
            for calls in (api_calls.to_dicts(), piece.api_calls.to_dicts())
            for row in ranges[piece.rows].to_dicts()
        ]
        assert inside[: len(piece.rows)] == inside[len(piece.rows) :]
        count += len(piece.launches)
    launching = api_calls[match_launches(api_calls, gpu_ops)["call_row"].unique()]
    for row, of_range in enumerate(ranges.to_dicts()):
        during = (launching["start_ns"] >= of_range["start_ns"]) & (launching["end_ns"] <= of_range["end_ns"])
        assert row in rows_seen or not during.any()


def test_a_long_report_has_several_pieces_of_few_calls() -> None:
    report = random_frames(
        seed=1,
        range_count=400,
        call_count=400,
        span=20,
        processes=1,
        threads=1,
        devices=1,
        streams=1,
        is_sequential=True,
        is_queued=True,
    )
    ranges, api_calls, gpu_ops = report
    first, last = api_calls["start_ns"].min(), api_calls["start_ns"].max()
    assert isinstance(first, int)
    assert isinstance(last, int)
    start = pl.Series(np.linspace(first, last, 400).astype(np.int64))
    ranges = ranges.sort("range_id").with_columns(start_ns=start, end_ns=start + 3)
    of_pieces = split((ranges, api_calls, gpu_ops), 100)
    assert [len(piece.rows) > 80 for piece in of_pieces] == [True] * 4 + [False]
    assert all(len(piece.api_calls) < 0.4 * len(api_calls) for piece in of_pieces)

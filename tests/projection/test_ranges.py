"""Projection against its definition, and its speed class."""

from __future__ import annotations

from contextlib import ExitStack
from unittest import mock

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.report import API_CALLS, GPU_OPS, PROJECTIONS, RANGES
from nsys_pp.projection import busy, range_minimum
from nsys_pp.projection.launches import match_launches
from nsys_pp.projection.ranges import COMPUTED, OPS, Scope, project_compute, project_ranges
from tests.projection import definition
from tests.projection.random_reports import Frames, frames


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

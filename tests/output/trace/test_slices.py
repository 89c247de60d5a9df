"""What a slice is called, how it is coloured, what it tells, and where it is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.conform import conform_part
from nsys_pp.frames.report import API_CALLS, GPU_OPS, OP_DETAILS, PROJECTIONS, RANGES, OpDetails
from nsys_pp.frames.training import JOB_RANGES, JOBS
from nsys_pp.output.trace.drawing import SLICES
from nsys_pp.output.trace.slices import (
    api_call_slices,
    cpu_range_slices,
    flat_subtracks,
    nested_subtracks,
    operation_slices,
    range_slices,
)
from nsys_pp.training.jobs import list_job_ranges

NO_JOBS = JOB_RANGES.to_frame()
NO_FLOW = pl.lit(None, dtype=pl.UInt64).alias("flow_id")


def projections(*rows: dict[str, Any]) -> pl.DataFrame:
    given = {
        "thread_key": 1,
        "gpu_start_ns": 0,
        "gpu_end_ns": 10,
        "busy_ns": 5,
        "scope": "thread",
        "is_open": False,
    }
    return pl.DataFrame([{**given, **row} for row in rows], schema=PROJECTIONS)


def operations(*rows: dict[str, Any]) -> pl.DataFrame:
    given = {"kind": "kernel", "start_ns": 0, "end_ns": 10, "name": "gemm", "is_communication": False}
    numbered = [{**given, "op_id": number, **row} for number, row in enumerate(rows)]
    return pl.DataFrame(numbered, schema=GPU_OPS).with_columns(NO_FLOW)


def test_a_projected_range_tells_what_it_is() -> None:
    on_cpu = {"range_id": 7, "domain": "NCCL", "name": "send", "start_ns": 100, "end_ns": 130}
    on_gpu = {"gpu_start_ns": 200, "gpu_end_ns": 203, "busy_ns": 1, "first_op": "a", "last_op": "b"}
    how = {"call_count": 2, "op_count": 3, "scope": "process", "is_open": True}
    drawn = {"start_ns": 200, "end_ns": 203, "parent": -1, "name": "send", "color": None, "flow_id": None}
    told = {"domain": "NCCL", "cpu_start_ns": 100, "cpu_duration_ns": 30, "calls": 2, "operations": 3}
    shares = {"busy_ns": 1, "busy_percent": 33.3, "first_operation": "a", "last_operation": "b"}
    rest = {"scope": "process", "is_open": True, "range_id": 7}
    slices = range_slices(projections({**on_cpu, **on_gpu, **how}), NO_JOBS)
    assert slices.to_dicts() == [{**drawn, **told, **shares, **rest}]


def test_what_there_is_not_is_not_told() -> None:
    """False would stand at every closed range; a range without length has no share."""
    row = range_slices(projections({"name": None, "gpu_end_ns": 0, "busy_ns": 0}), NO_JOBS).to_dicts()[0]
    assert (row["name"], row["is_open"], row["busy_percent"], row["domain"]) == (
        "(no name)",
        None,
        None,
        None,
    )


def test_parents_are_rows() -> None:
    """Of these rows, in whatever order; a parent that is not among them is none."""
    frame = projections(
        {"range_id": 9, "parent_id": 4},
        {"range_id": 2, "parent_id": None},
        {"range_id": 4, "parent_id": 2},
        {"range_id": 5, "parent_id": 3},
        {"range_id": 6, "parent_id": 99},
    )
    assert range_slices(frame, NO_JOBS)["parent"].to_list() == [2, -1, 1, -1, -1]
    assert range_slices(frame.clear(), NO_JOBS)["parent"].to_list() == []


@pytest.mark.parametrize(
    ("kind", "is_communication", "color"),
    [
        ("kernel", False, None),
        ("kernel", True, "communication"),
        ("memcpy", False, "copy"),
        ("memset", False, "memset"),
        ("graph", False, "graph"),
    ],
)
def test_operations_are_coloured_by_kind(kind: str, is_communication: bool, color: str | None) -> None:
    slices = operation_slices(operations({"kind": kind, "is_communication": is_communication}), OpDetails())
    assert slices["color"].to_list() == [color]


def test_details_are_found_by_operation() -> None:
    ops = operations(*({"correlation_id": 10 + row, "graph_id": row or None} for row in range(4)))
    details = pl.DataFrame(
        {"grid": [f"{row},1,1" for row in (0, 1, 3)], "size_bytes": [None, 1, 3]},
        schema_overrides=OP_DETAILS,
    )
    row = np.array([0, 1, 1, 2], dtype=np.uint32)
    slices = operation_slices(ops[[3, 1]], OpDetails(distinct=conform_part(details, OP_DETAILS), row=row))
    assert slices.select("correlation_id", "graph_id", "grid", "size_bytes").rows() == [
        (13, 3, "3,1,1", 3),
        (11, 1, "1,1,1", 1),
    ]
    assert operation_slices(ops, OpDetails()).columns[-1] == "graph_id"


def test_what_the_cpu_did() -> None:
    ranges = pl.DataFrame(
        [
            {
                "range_id": 3,
                "start_ns": -5,
                "end_ns": 9,
                "name": "f",
                "category": "c",
                "payload": "1",
                "is_open": True,
            },
            {"range_id": 4, "start_ns": 0, "end_ns": 9, "domain": "D", "is_open": False},
        ],
        schema=RANGES,
    ).with_columns(parent_id=pl.Series([None, 3], dtype=pl.Int64))
    columns = ("start_ns", "end_ns", "parent", "name", "domain", "category", "payload", "is_open", "range_id")
    assert cpu_range_slices(ranges, NO_JOBS).select(columns).rows() == [
        (-5, 9, -1, "f", None, "c", "1", True, 3),
        (0, 9, 0, "(no name)", "D", None, None, None, 4),
    ]
    calls = pl.DataFrame(
        [{"start_ns": 1, "end_ns": 2, "name": "cudaLaunch", "correlation_id": 5}], schema=API_CALLS
    )
    calls = calls.with_columns(flow_id=pl.lit(8, pl.UInt64))
    assert api_call_slices(calls).to_dicts() == [
        {"start_ns": 1, "end_ns": 2, "name": "cudaLaunch", "color": None, "flow_id": 8, "correlation_id": 5}
    ]


boxes = st.lists(
    st.tuples(st.integers(-10, 10), st.integers(0, 8), st.integers(-1, 30)), min_size=1, max_size=25
)


def frame_of(slices: list[tuple[int, int, int]]) -> pl.DataFrame:
    rows = [
        (start, start + length, row, min(parent, row - 1))
        for row, (start, length, parent) in enumerate(slices)
    ]
    return pl.DataFrame(rows, schema=["start_ns", "end_ns", "row", "parent"], orient="row")


@settings(max_examples=200, deadline=None)
@given(boxes)
def test_nested_subtracks_hold_every_slice_once_and_in_order_of_drawing(
    slices: list[tuple[int, int, int]],
) -> None:
    frame = frame_of(slices)
    rows = []
    for number, (track, subtrack, arranged) in enumerate(nested_subtracks(frame)):
        part = arranged.gather()
        assert (track, subtrack) == (0, number)
        assert part.columns == ["start_ns", "end_ns", "row", "depth"]
        assert part.schema["depth"] == SLICES["depth"]
        open_slices: list[tuple[int, int, int, int]] = []
        for row in part.iter_rows():
            before = open_slices[row[3] :]
            assert all(one[1] <= row[0] for one in before), "siblings overlap"
            del open_slices[row[3] :]
            assert len(open_slices) == row[3]
            if open_slices:
                assert open_slices[-1][0] <= row[0] <= row[1] <= open_slices[-1][1]
                assert frame["parent"][row[2]] == open_slices[-1][2]
            open_slices.append(row)
            rows.append(row[2])
    assert sorted(rows) == list(range(len(slices)))


@settings(max_examples=200, deadline=None)
@given(boxes)
def test_flat_subtracks_are_as_few_as_slices_overlap(slices: list[tuple[int, int, int]]) -> None:
    frame = frame_of(slices).drop("parent")
    subtracks = [(subtrack, part.gather()) for _, subtrack, part in flat_subtracks(frame)]
    assert [subtrack for subtrack, _ in subtracks] == list(range(len(subtracks)))
    assert pl.concat(part for _, part in subtracks)["row"].sort().to_list() == list(range(len(slices)))
    for _, part in subtracks:
        assert (part["depth"] == 0).all()
        assert (part["start_ns"].shift(-1) >= part["end_ns"]).all()
    most = max(
        sum(one["start_ns"] <= at < one["end_ns"] for one in frame.iter_rows(named=True))
        for at in range(-10, 20)
    )
    assert len(subtracks) <= max(most, 1) + any(length == 0 for _, length, _ in slices)


def test_ranges_of_jobs_have_the_color_of_their_kind() -> None:
    rows = [
        {"range_id": 9, "kind": "backward", "start_ns": 5, "device_id": 0},
        {"range_id": 9, "kind": "backward", "start_ns": 5, "device_id": 1},
        {"range_id": 3, "kind": "forward", "start_ns": 1},
        {"range_id": 4, "kind": "optimizer", "start_ns": None},
        {"range_id": None, "kind": "data", "start_ns": 1},
    ]
    jobs = list_job_ranges(pl.DataFrame(rows, schema=JOBS))
    assert jobs.rows() == [(3, "forward"), (9, "backward")]
    found = range_slices(projections(*({"range_id": number} for number in (1, 3, 4, 9, 3))), jobs)
    assert found["color"].to_list() == [None, "forward", None, "backward", "forward"]
    on_cpu = conform_part(pl.DataFrame({"range_id": [9, 2]}, schema={"range_id": pl.UInt32}), RANGES)
    assert cpu_range_slices(on_cpu.with_columns(parent_id=pl.lit(None, pl.Int64)), jobs)[
        "color"
    ].to_list() == [
        "backward",
        None,
    ]

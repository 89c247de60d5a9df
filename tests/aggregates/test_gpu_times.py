"""Times of devices are the unions that their names say."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.aggregates.times import measure_gpu
from nsys_pp.frames.aggregates import GPU_TIMES
from tests.aggregates.real_reports import NAMES, read_real_report
from tests.aggregates.small_reports import (
    REPORTS,
    SPANS,
    WORK,
    Row,
    SmallReport,
    find_moments,
    make_report,
    op,
    step,
)

_DEVICE = ["process_key", "device_id"]
_NOTHING = pl.DataFrame(schema={"process_key": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64})
_HOST = st.lists(st.tuples(st.integers(1, 2), SPANS), max_size=4)


def _measure(ops: list[Row], windows: list[Row], host: list[Row]) -> Row:
    """Measure what is asked for by its definition."""
    inside = find_moments(windows)
    kernels = [row for row in ops if row["kind"] in ("kernel", "graph")]
    parts = {
        "busy_ns": find_moments(ops),
        "kernel_ns": find_moments(kernels),
        "compute_ns": find_moments(row for row in kernels if not row["is_communication"]),
        "communication_ns": find_moments(row for row in kernels if row["is_communication"]),
        "memcpy_ns": find_moments(row for row in ops if row["kind"] == "memcpy"),
        "memset_ns": find_moments(row for row in ops if row["kind"] == "memset"),
    }
    parts["any_communication_ns"] = parts["communication_ns"] | find_moments(host)
    parts["overlap_ns"] = parts["compute_ns"] & parts["communication_ns"]
    parts["any_overlap_ns"] = parts["compute_ns"] & parts["any_communication_ns"]
    return {"span_ns": len(inside)} | {name: len(times & inside) for name, times in parts.items()}


@settings(deadline=None, max_examples=60)
@given(report=REPORTS, host=_HOST)
def test_times_are_those_of_their_definitions(
    report: SmallReport, host: list[tuple[int, tuple[int, int]]]
) -> None:
    communication = pl.DataFrame([(process, *span) for process, span in host], _NOTHING.schema, orient="row")
    windows = report.windows.device
    measured = measure_gpu(report.gpu_ops, host_communication=communication, windows=windows)
    keys = [*_DEVICE, "step"]
    assert measured.select(keys).equals(windows.select(keys).unique().sort(keys, nulls_last=True))
    for row in measured.iter_rows(named=True):
        device = {name: row[name] for name in _DEVICE}
        own = windows.filter(pl.col("step").eq_missing(row["step"]), **device)
        expected = _measure(
            report.gpu_ops.filter(**device).to_dicts(),
            own.to_dicts(),
            communication.filter(process_key=row["process_key"]).to_dicts(),
        )
        assert row == {name: row[name] for name in keys} | expected


def test_each_kind_of_work_is_told() -> None:
    spans = [(0, 10), (5, 25), (30, 40), (38, 45), (50, 60)]
    ops = [op((1, 0), span, work) for span, work in zip(spans, WORK, strict=True)]
    report = make_report(ops, steps=[step((1, 0), 3, (0, 55))])
    host = pl.DataFrame([(1, 52, 70), (2, 0, 60)], schema=_NOTHING.schema, orient="row")
    measured = measure_gpu(report.gpu_ops, host_communication=host, windows=report.windows.device)
    assert measured.drop("process_key", "device_id").rows() == [
        (3, 55, 45, 30, 15, 20, 5, 10, 7, 23, 8),
        (None, 5, 5, 5, 5, 0, 0, 0, 0, 5, 5),
    ]


def test_nothing_has_no_times() -> None:
    empty = make_report()
    measured = measure_gpu(empty.gpu_ops, host_communication=_NOTHING, windows=empty.windows.device)
    assert measured.equals(GPU_TIMES.to_frame())


@pytest.mark.parametrize("name", NAMES)
def test_steps_of_a_real_report_add_up_to_all_of_it(shared_reports: list[Path], name: str) -> None:
    real = read_real_report(shared_reports, name)
    communication = real.report.ranges.select(_NOTHING.columns)[:1000]
    cut, whole = (
        measure_gpu(real.report.gpu_ops, host_communication=communication, windows=windows.device)
        .drop("step")
        .group_by(_DEVICE)
        .sum()
        .sort(_DEVICE)
        for windows in (real.windows, real.find_windows(real.steps.clear()))
    )
    assert cut.equals(whole)
    assert len(whole) == len(real.report.devices)
    for row in whole.iter_rows(named=True):
        ops = real.report.gpu_ops.filter(**{name: row[name] for name in _DEVICE})
        until = busy = 0
        for start, end in ops.sort("start_ns").select("start_ns", "end_ns").iter_rows():
            busy += max(end - max(start, until), 0)
            until = max(until, end)
        assert row["busy_ns"] == busy

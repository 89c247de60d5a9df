"""GPU metrics in parts: bounded, nearly exact, and absent where a report has none."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import nsys_pp
from fixtures.recording.bulk import write_bulk_report
from fixtures.recording.metrics import METRICS, add_metrics
from nsys_pp.frames.part import METRIC_FRAMES
from nsys_pp.read import read_part
from nsys_pp.run.requested import MOST_WINDOWS

ROWS = 2 * MOST_WINDOWS


def test_parts_have_means_of_windows_of_bounded_number(tmp_path: Path) -> None:
    report = write_bulk_report(tmp_path / "report.sqlite", kernels=1_000, ranges=1_000)
    with closing(sqlite3.connect(report)) as connection:
        (end_ns,) = connection.execute("SELECT max(end) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    nsys_pp.extract(report, tmp_path / "bare.nspart")
    add_metrics(report, rows=ROWS, end_ns=end_ns)
    nsys_pp.extract(report, tmp_path / "report.nspart")
    frames = read_part(tmp_path / "report.nspart", (), version="", optional=METRIC_FRAMES).frames
    windows = frames["metric_windows"]
    assert MOST_WINDOWS / 2 < len(windows) <= MOST_WINDOWS
    assert len(frames["metric_families"]) <= 20 * len(METRICS)
    assert (tmp_path / "report.nspart").stat().st_size < report.stat().st_size / 3
    tables = [
        nsys_pp.pipeline(path).tables(["metrics"])["metrics"] for path in (report, tmp_path / "report.nspart")
    ]
    joined = tables[0].join(tables[1], on=["metric", "group", "item"], suffix="_of_part", nulls_equal=True)
    assert len(joined) == len(tables[0])
    steps = joined.filter(pl.col("group").is_in(["steps", "families"]))
    assert len(steps) > len(METRICS)
    assert steps["mean"].to_list() == pytest.approx(steps["mean_of_part"].to_list(), rel=1e-3)
    assert (joined["peak"] <= joined["peak_of_part"]).all()
    with closing(sqlite3.connect(report)) as connection, connection:
        connection.execute("DROP TABLE GPU_METRICS")
        connection.execute("DROP TABLE TARGET_INFO_GPU_METRICS")
    nsys_pp.extract(report, tmp_path / "dropped.nspart")
    assert (tmp_path / "dropped.nspart").read_bytes() == (tmp_path / "bare.nspart").read_bytes()

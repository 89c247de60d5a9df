"""GPU metrics in every layout since 2021: the same samples make the same counters, overviews, parts and tables."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import nsys_pp
from fixtures.recording.bulk import write_bulk_report
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from tests.importer.importer import Importer
from tests.importer.readback import assert_no_errors
from tests.trace.test_reports import COUNTERS

GPU_TYPE = 1 << 40  # the low 8 bits are the id of the GPU
METRICS = (
    "GPC Clock Frequency [MHz]",
    "SMs Active [Throughput %]",
    "Tensor Active [Throughput %]",
    "SM Issue [Throughput %]",
)
SAMPLES = 3_000
END_NS = 60_000_000
GENERIC = "CREATE TABLE GENERIC_EVENTS (rawTimestamp INTEGER NOT NULL, timestamp INTEGER, typeId INTEGER NOT NULL, data TEXT NOT NULL)"
TYPED = "CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER NOT NULL, metricId INTEGER NOT NULL, value INTEGER NOT NULL)"
TYPED_2025 = (
    "CREATE TABLE GPU_METRICS (rawTimestamp INTEGER NOT NULL, timestamp INTEGER NOT NULL, typeId INTEGER NOT NULL,"
    " metricId INTEGER NOT NULL, value INTEGER NOT NULL)"
)
NAMES = (
    "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER NOT NULL, sourceId INTEGER NOT NULL, typeName TEXT NOT NULL,"
    " metricId INTEGER NOT NULL, metricName TEXT NOT NULL)"
)
EVENTS_2025 = (
    "CREATE TABLE GENERIC_EVENTS (genericEventId INTEGER NOT NULL PRIMARY KEY, rawTimestamp INTEGER NOT NULL,"
    " timestamp INTEGER NOT NULL, typeId INTEGER NOT NULL, globalTid INTEGER, data TEXT)"
)
LAYOUTS = ("json", "json numbers as text", "typed", "typed of 2025", "typed, and other events")


def list_samples() -> list[tuple[int, int, tuple[int, ...]]]:
    """List the time, the GPU and the values of each sample; clocks are in Hz."""
    times = [number * END_NS // SAMPLES for number in range(SAMPLES)]
    return [
        (time, gpu, (1_980_000_000 - number * 1000, number % 101, (number * 7) % 101, (number + gpu) % 64))
        for number, time in enumerate(times)
        for gpu in (0, 1)
    ]


def add_layout(path: Path, layout: str) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        if layout.startswith("json"):
            word = str if "text" in layout else int
            connection.execute(GENERIC)
            connection.executemany(
                "INSERT INTO GENERIC_EVENTS VALUES (?, ?, ?, ?)",
                [
                    (9, time, GPU_TYPE + gpu, json.dumps(dict(zip(METRICS, map(word, values), strict=True))))
                    for time, gpu, values in list_samples()
                ],
            )
            return path
        connection.execute(NAMES)
        connection.executemany(
            "INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, 1, 'GPU Metrics', ?, ?)",
            [(GPU_TYPE + gpu, at, name) for gpu in (0, 1) for at, name in enumerate(METRICS)],
        )
        rows = [
            (time, GPU_TYPE + gpu, metric, value)
            for time, gpu, values in list_samples()
            for metric, value in enumerate(values)
        ]
        is_new = "2025" in layout
        connection.execute(TYPED_2025 if is_new else TYPED)
        marks = "?, ?, ?, ?, ?" if is_new else "?, ?, ?, ?"
        connection.executemany(
            f"INSERT INTO GPU_METRICS VALUES ({marks})", [(0, *row) for row in rows] if is_new else rows
        )
        if "other" in layout:  # values are rows of another table, or JSON
            connection.execute(EVENTS_2025)
            connection.execute(
                "INSERT INTO GENERIC_EVENTS VALUES (1, 0, 5, 77, NULL, NULL), (2, 0, 6, 78, NULL, '{}')"
            )
    return path


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    written = {}
    for layout in LAYOUTS:
        folder = tmp_path_factory.mktemp("layout")
        path = write_bulk_report(folder / "report.sqlite", kernels=500, ranges=200)
        written[layout] = add_layout(path, layout)
    return written


@pytest.mark.parametrize("layout", LAYOUTS)
def test_samples_are_those_that_were_written(layout: str, reports: dict[str, Path]) -> None:
    report = build_report(read_report(reports[layout], need=frozenset({"ops", "show_metrics"})))
    found = {(metric.gpu, metric.metric): metric.samples.rows() for metric in report.sampled_metrics}
    for gpu in (0, 1):
        for at, name in enumerate(METRICS):
            expected = [
                (time, values[at] / (1e6 if at == 0 else 1))
                for time, of_gpu, values in list_samples()
                if of_gpu == gpu
            ]
            assert found[f"GPU {gpu}", name] == expected, (gpu, name)
    assert len(found) == 2 * len(METRICS)


@pytest.mark.parametrize("layout", LAYOUTS[1:])
@pytest.mark.parametrize("show", [None, "metrics"])
def test_counters_are_equal(
    layout: str, show: str | None, reports: dict[str, Path], importer: Importer, tmp_path: Path
) -> None:
    drawn: list[pl.DataFrame] = []
    for name in (LAYOUTS[0], layout):
        trace = tmp_path / f"{len(drawn)}.pftrace"
        nsys_pp.merge([reports[name]], trace, show=show)
        drawn.append(importer.query(trace, COUNTERS))
        assert_no_errors(importer)
    names = set(drawn[0]["name"])
    assert ({"SMs Active (mean)", "Tensor Active (mean)"} if show is None else {*METRICS}) <= names
    assert drawn[0].sort(pl.all()).equals(drawn[1].sort(pl.all()))


@pytest.mark.parametrize("layout", ["json", "typed of 2025"])
def test_parts_have_the_same_overview_and_sums(layout: str, reports: dict[str, Path], tmp_path: Path) -> None:
    part = tmp_path / "report.nspart"
    nsys_pp.extract(reports[layout], part)
    of_report = nsys_pp.merge([reports[layout]], tmp_path / "a.pftrace").output
    assert of_report.read_bytes() == nsys_pp.merge([part], tmp_path / "b.pftrace").output.read_bytes()
    tables = [nsys_pp.pipeline(path).tables(["metrics"])["metrics"] for path in (reports["typed"], part)]
    assert len(tables[0]) >= len(METRICS)
    assert tables[0].equals(tables[1])


def test_scrubbed_copies_have_no_generic_events(reports: dict[str, Path], tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    nsys_pp.scrub([reports["json"]], copy)
    with closing(sqlite3.connect(copy)) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert "GENERIC_EVENTS" not in names

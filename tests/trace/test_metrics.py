"""The overview of GPU metrics that a trace has without being asked, read back by Perfetto's importer."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nsys_pp
from fixtures.recording.bulk import write_bulk_report
from fixtures.recording.export import write_report
from fixtures.recording.metrics import add_metrics
from fixtures.recording.session import Session
from nsys_pp.frames.raw import SURVEY_GROUPS
from nsys_pp.frames.report import METRIC_VALUES
from nsys_pp.model import build_report
from nsys_pp.options import Detail
from nsys_pp.output.trace.tracks import MOST_WINDOWS, average, summarise_metrics
from nsys_pp.read import read_report
from tests.importer import Importer, assert_no_errors
from tests.trace.test_reports import COUNTERS, offset_ns, zero_ns

OF_OVERVIEW = {"SMs Active", "Tensor Active", "DRAM Read Bandwidth", "DRAM Write Bandwidth"}


RECORDED_NS = 1_000_000_000


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a report of 1,000 kernels with 60,000 rows of metrics of two GPUs, of which one is used."""
    folder = tmp_path_factory.mktemp("overview")
    path = write_bulk_report(folder / "report.sqlite", kernels=1_000, ranges=1_000)
    return add_metrics(path, rows=120_000, end_ns=RECORDED_NS, gpus=2)


def assert_overview_is_drawn(importer: Importer, report: Path) -> None:
    """Every mean stands on its counter, under its GPU or the system."""
    built = build_report(read_report(report, need=SURVEY_GROUPS | {"overview"}))
    zero = zero_ns(importer, [built])
    drawn = Counter(
        (name, owner, ts + zero, value)
        for name, owner, ts, value in importer.query(None, COUNTERS).iter_rows()
        if name != "GPU busy"
    )
    assert drawn == Counter(
        (metric.name, "system" if metric.process_key is None else metric.gpu, time + offset_ns(built), value)
        for metric in summarise_metrics(built.sampled_metrics)
        for time, value in metric.samples.iter_rows()
    )
    assert {name.removeprefix("GPU 1: ").removesuffix(" (mean)") for name, *_ in drawn} == OF_OVERVIEW
    assert max(Counter((name, owner) for name, owner, *_ in drawn).values()) <= MOST_WINDOWS + 2
    assert_no_errors(importer)


@pytest.mark.few(2)
@pytest.mark.parametrize("detail", ["ranges", "kernels", "cpu"])
def test_every_mean_comes_back(detail: Detail, recorded: Path, importer: Importer, tmp_path: Path) -> None:
    trace = tmp_path / "run.pftrace"
    nsys_pp.merge([recorded], trace, detail=detail)
    assert importer.query(trace, "SELECT count(*) FROM slice").item() > 0
    assert_overview_is_drawn(importer, recorded)


def test_a_window_has_means_of_its_own(recorded: Path, importer: Importer, tmp_path: Path) -> None:
    trace = tmp_path / "run.pftrace"
    end_ns = 10_000_000
    nsys_pp.merge([recorded], trace, end_ns=end_ns)
    built = build_report(read_report(recorded, need=SURVEY_GROUPS | {"overview"}))
    metric = next(metric for metric in built.sampled_metrics if metric.name.startswith("Tensor Active"))
    expected = average(metric.samples.filter(pl.col("time_ns") < end_ns))["value"]
    counters = importer.query(trace, COUNTERS)
    assert (
        counters.filter(counters["name"] == "Tensor Active (mean)")["value"].to_list() == expected.to_list()
    )


VALUES = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 100)), min_size=1, max_size=40)


@settings(deadline=None, max_examples=80)
@given(VALUES, st.integers(1, 200))
def test_means_are_those_of_the_definition(drawn: list[tuple[int, int]], repeats: int) -> None:
    values: list[tuple[int, float]] = []
    time = -7
    for _ in range(repeats):
        for distance, value in drawn:
            time += distance
            values.append((time, float(value)))
    found = average(pl.DataFrame(values, schema=METRIC_VALUES, orient="row"))
    last, last_value = values[-1]
    assert (found["time_ns"][0], found["value"][-1]) == (values[0][0], last_value)
    assert len(found) <= MOST_WINDOWS + 2
    assert (found["value"].diff().drop_nulls() != 0).all()
    if len(values) <= MOST_WINDOWS:
        held = dict(values)
        for at, value in found.iter_rows():
            assert held[at] == value
        return
    edges = [*found["time_ns"].to_list(), last]
    for begin, end, mean in zip(edges, edges[1:], found["value"].to_list(), strict=False):
        if begin == end:
            continue
        total = sum(
            value * max(0, min(end, until) - max(begin, since))
            for (since, value), (until, _) in pairwise(values)
        )
        assert mean == pytest.approx(total / (end - begin), abs=0.051)


def test_metrics_of_a_gpu_are_on_its_row_if_another_report_has_them(
    importer: Importer, tmp_path: Path
) -> None:
    gpus = [
        {
            "id": number,
            "cuDevice": number,
            "name": "GPU",
            "busLocation": f"0000:{number}A:00.0",
            "uuid": f"{number}",
        }
        for number in (0, 1)
    ]
    (tmp_path / "run").mkdir()
    for number in (0, 1):
        ops = [
            {
                "start": 1000 * at,
                "end": 1000 * at + 500,
                "device": number,
                "correlation": at,
                "pid": 70 + number,
            }
            for at in (1, 2)
        ]
        write_report(
            tmp_path / "run" / f"{number}.sqlite",
            kernels=ops,
            api_calls=[
                {"start": 10 * at, "end": 10 * at + 5, "correlation": at, "pid": 70 + number} for at in (1, 2)
            ],
            gpus=gpus,
            session=Session(hostname="node", utc_epoch_ns=1_700_000_000_000_000_000 + number),
        )
    add_metrics(tmp_path / "run" / "0.sqlite", rows=400, end_ns=10_000, gpus=2)
    trace = tmp_path / "run.pftrace"
    nsys_pp.merge([tmp_path / "run"], trace)
    importer.query(trace, "SELECT count(*) FROM slice")
    counters = importer.query(None, COUNTERS)
    assert_no_errors(importer)
    owners = {(name, gpu) for name, gpu, *_ in counters.iter_rows() if name != "GPU busy"}
    first = {(f"{name} (mean)", "rank 0 · GPU 0") for name in OF_OVERVIEW}
    assert owners == first | {(f"GPU 1: {name} (mean)", "rank 1 · GPU 1") for name in OF_OVERVIEW}
    nsys_pp.extract([tmp_path / "run"], tmp_path / "parts")
    of_parts = nsys_pp.merge([tmp_path / "parts"], tmp_path / "parts.pftrace").output
    assert len(of_parts.read_bytes()) == pytest.approx(len(trace.read_bytes()), rel=0.01)
    nsys_pp.merge([tmp_path / "run"], trace, devices=[0], force=True)
    importer.query(trace, "SELECT count(*) FROM slice")
    assert {gpu for _, gpu, *_ in importer.query(None, COUNTERS).iter_rows()} == {"rank 0 · GPU 0"}


GPU_TYPE = 1 << 40  # the low 8 bits are the id of the GPU


LAYOUT_METRICS = (
    "GPC Clock Frequency [MHz]",
    "SMs Active [Throughput %]",
    "Tensor Active [Throughput %]",
    "SM Issue [Throughput %]",
)


SAMPLES = 3_000


END_NS = 60_000_000


GENERIC = (
    "CREATE TABLE GENERIC_EVENTS (rawTimestamp INTEGER NOT NULL, timestamp INTEGER, typeId INTEGER NOT "
    "NULL, data TEXT NOT NULL)"
)


TYPED = (
    "CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER NOT NULL, metricId INTEGER NOT NULL, "
    "value INTEGER NOT NULL)"
)


TYPED_2025 = (
    "CREATE TABLE GPU_METRICS (rawTimestamp INTEGER NOT NULL, timestamp INTEGER NOT NULL, typeId INTEGER NOT "
    "NULL,"
    " metricId INTEGER NOT NULL, value INTEGER NOT NULL)"
)


NAMES = (
    "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER NOT NULL, sourceId INTEGER NOT NULL, typeName TEXT "
    "NOT NULL,"
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
                    (
                        9,
                        time,
                        GPU_TYPE + gpu,
                        json.dumps(dict(zip(LAYOUT_METRICS, map(word, values), strict=True))),
                    )
                    for time, gpu, values in list_samples()
                ],
            )
            return path
        connection.execute(NAMES)
        connection.executemany(
            "INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, 1, 'GPU Metrics', ?, ?)",
            [(GPU_TYPE + gpu, at, name) for gpu in (0, 1) for at, name in enumerate(LAYOUT_METRICS)],
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
        path = write_bulk_report(tmp_path_factory.mktemp("layout") / "report.sqlite", kernels=500, ranges=200)
        written[layout] = add_layout(path, layout)
    return written


@pytest.mark.parametrize("layout", LAYOUTS)
def test_samples_are_those_that_were_written(layout: str, reports: dict[str, Path]) -> None:
    report = build_report(read_report(reports[layout], need=frozenset({"ops", "show_metrics"})))
    found = {(metric.gpu, metric.metric): metric.samples.rows() for metric in report.sampled_metrics}
    for gpu in (0, 1):
        for at, name in enumerate(LAYOUT_METRICS):
            assert found[f"GPU {gpu}", name] == [
                (time, values[at] / (1e6 if at == 0 else 1))
                for time, of_gpu, values in list_samples()
                if of_gpu == gpu
            ], (gpu, name)
    assert len(found) == 2 * len(LAYOUT_METRICS)


@pytest.mark.parametrize("show", [None, "metrics"])
def test_counters_are_equal(
    show: str | None, reports: dict[str, Path], importer: Importer, tmp_path: Path
) -> None:
    drawn: dict[str, pl.DataFrame] = {}
    for layout in LAYOUTS:
        trace = tmp_path / f"{len(drawn)}.pftrace"
        nsys_pp.merge([reports[layout]], trace, show=show)
        drawn[layout] = importer.query(trace, COUNTERS).sort(pl.all())
        assert_no_errors(importer)
    names = set(drawn[LAYOUTS[0]]["name"])
    assert ({"SMs Active (mean)", "Tensor Active (mean)"} if show is None else {*LAYOUT_METRICS}) <= names
    assert not [layout for layout, counters in drawn.items() if not counters.equals(drawn[LAYOUTS[0]])]


@pytest.mark.few(1)
@pytest.mark.parametrize("layout", ["typed of 2025", "json"])
def test_parts_have_the_same_overview_and_sums(layout: str, reports: dict[str, Path], tmp_path: Path) -> None:
    part = tmp_path / "report.nspart"
    nsys_pp.extract(reports[layout], part)
    of_report = nsys_pp.merge([reports[layout]], tmp_path / "a.pftrace").output
    assert of_report.read_bytes() == nsys_pp.merge([part], tmp_path / "b.pftrace").output.read_bytes()
    tables = [nsys_pp.pipeline(path).tables(["metrics"])["metrics"] for path in (reports["typed"], part)]
    assert len(tables[0]) >= len(LAYOUT_METRICS)
    assert tables[0].equals(tables[1])

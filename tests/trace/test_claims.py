"""What `info` says of each table of all known versions is what happens.

Rows are drawn, on request or not at all, as it says.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import nsys_pp
from fixtures.recording.metrics import add_metrics
from nsys_pp.model import build_report
from nsys_pp.options import SHOW_KINDS
from nsys_pp.read import read_report
from tests.cli.calls import PIPELINE
from tests.draws import count_draws
from tests.importer import Importer, assert_no_errors
from tests.read.layouts import (
    UNTIMED,
    Layout,
    find_starts,
    read_layout,
    read_layouts,
    time_of,
    write_layout,
)
from tests.read.tables import Row, write_export
from tests.recording import record
from tests.sql import edit, select
from tests.tables.test_requested import add_network
from tests.trace.test_reports import offset_ns, zero_ns

LAYOUTS = read_layouts()


EVENTS = "SELECT ts FROM slice UNION ALL SELECT ts FROM counter"


WITHOUT_EVENTS = {  # drawn as arguments, or by the rows that refer to them
    *("OSRT_CALLCHAINS", "CUDA_CALLCHAINS", "SAMPLING_CALLCHAINS", "GENERIC_EVENT_DATA"),
    *("PMU_EVENT_COUNTERS", "UNCORE_PMU_EVENT_VALUES"),
}


# Tables of changes, whose intervals begin at each row but the last, or at each second one.
SWITCHES = {"SCHED_EVENTS": 1, "GPU_CONTEXT_SWITCH_EVENTS": 2, "FECS_EVENTS": 2}


# Arguments of `--show`: each kind is in others of them than every other kind.
KINDS = [
    ",".join(kind for number, kind in enumerate(SHOW_KINDS, start=1) if number >> bit & 1)
    for bit in range(len(SHOW_KINDS).bit_length())
]


pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def expected_times(layout: Layout, table: str, count: int) -> set[int]:
    """List the times at which rows of a table are drawn."""
    if table in UNTIMED:
        table = "CUPTI_ACTIVITY_KIND_RUNTIME"
    rows = range(0, count - 1, SWITCHES[table]) if table in SWITCHES else range(count)
    return {time_of(layout, table, row) for row in rows}


def drawn_times(path: Path, importer: Importer, trace: Path, show: str | None) -> set[int]:
    """Merge, and list the times of all slices, marks and samples, on the report's clock."""
    report = build_report(read_report(path, need=frozenset()))
    try:
        nsys_pp.merge([path], trace, detail="cpu", show=show, force=True)
    except nsys_pp.errors.MissingDataError:
        return set()
    events = importer.query(trace, EVENTS)
    assert_no_errors(importer)
    return set((events["ts"] + zero_ns(importer, [report]) - offset_ns(report)).to_list())


def list_claims(path: Path) -> pl.DataFrame:
    (info,) = nsys_pp.info([path]).reports
    return info.contents.tables


def check_claims(
    path: Path, layout: Layout, counts: dict[str, int], times: dict[str | None, set[int]]
) -> None:
    """Check the claims about each table.

    Args:
        path: The report.
        layout: Its tables.
        counts: Their rows.
        times: Times of what is drawn, by argument of `--show`.
    """
    claims = {row["table"]: row for row in list_claims(path).iter_rows(named=True)}
    without, everything = times[None], times["all"]
    for table, count in counts.items():
        claim = claims[table]
        assert claim["row_count"] == count, table
        if table in WITHOUT_EVENTS:
            assert claim["use"] == "on request", table
            continue
        expected = expected_times(layout, table, count)
        if claim["use"] == "drawn":
            assert expected <= without, table
        elif claim["use"] == "on request":
            assert expected <= everything, (table, claim["show"])
            own = table not in UNTIMED  # those of their calls are drawn anyway
            assert not own or not expected & without, table
            kinds = set(claim["show"].split(","))
            for show in (show for show in times if show not in (None, "all")):
                shown = set(str(show).split(","))
                if kinds <= shown:
                    assert expected <= times[show], (table, show)
                elif own and not kinds & shown:
                    assert not expected & times[show], (table, show)
        else:
            assert not expected & everything, (table, claim["use"])


@pytest.mark.few(1)
@pytest.mark.parametrize("version", LAYOUTS)
def test_claims_about_all_tables_are_true(version: str, importer: Importer, tmp_path: Path) -> None:
    layout = LAYOUTS[version]
    counts = dict.fromkeys(layout, 5)
    path = write_layout(tmp_path / "report.sqlite", layout, counts)
    trace = tmp_path / "run.pftrace"
    shows = (None, "all", *KINDS)
    check_claims(path, layout, counts, {show: drawn_times(path, importer, trace, show) for show in shows})
    unknown = list_claims(path).filter(use="unknown")["table"]
    assert not [table for table in unknown if find_starts(layout, table)]


@pytest.mark.draws
def test_claims_about_some_tables_are_true(importer: Importer, tmp_path: Path) -> None:
    """Tables are few: names, values or processes that others refer to may be missing."""
    random = np.random.Generator(np.random.PCG64(19))
    drawn = 0
    for number in range(count_draws(24, least=6)):
        layout = LAYOUTS[random.choice([*LAYOUTS])]
        tables = random.choice([*layout], random.integers(1, 30), replace=False)
        counts = {str(table): int(random.integers(5, 9)) for table in tables}
        if "CUPTI_ACTIVITY_KIND_CUDA_EVENT" in counts:  # its calls have the times
            counts["CUPTI_ACTIVITY_KIND_RUNTIME"] = counts["CUPTI_ACTIVITY_KIND_CUDA_EVENT"]
        for events, values in (
            ("PMU_EVENTS", "PMU_EVENT_COUNTERS"),
            ("UNCORE_PMU_EVENTS", "UNCORE_PMU_EVENT_VALUES"),
        ):
            if events in counts:  # without values there is nothing to draw
                counts[values] = counts[events]
        path = write_layout(tmp_path / f"{number}.sqlite", layout, counts)
        trace = tmp_path / "run.pftrace"
        times = {show: drawn_times(path, importer, trace, show) for show in (None, "all")}
        check_claims(path, layout, counts, times)
        drawn += len(times["all"])
    assert drawn > 150


def test_claims_about_tables_of_shared_reports_are_true(
    shared_report: Path, importer: Importer, tmp_path: Path
) -> None:
    """A few rows in tables that are declared as in real exports of 2020 to 2026."""
    layout = read_layout(shared_report)
    counts = {table: 5 for table in layout if not table.startswith("sqlite_")}
    path = write_layout(tmp_path / "report.sqlite", layout, counts)
    times = {show: drawn_times(path, importer, tmp_path / "run.pftrace", show) for show in (None, "all")}
    check_claims(path, layout, counts, times)
    assert counts


@pytest.mark.parametrize(("fixture", "version"), [("nsys", "3.7.2"), ("newer_nsys", "3.11.1")])
def test_layouts_are_those_of_the_exporter(
    fixture: str, version: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    nsys = request.getfixturevalue(fixture)
    record(nsys, tmp_path, ["--trace=osrt", "--sample=none", "--cpuctxsw=none"], ["-c", "pass"])
    exported = tmp_path / "run.sqlite"
    subprocess.run(
        [
            nsys,
            "export",
            "-q",
            "true",
            "--type=sqlite",
            "--lazy=false",
            "-o",
            exported,
            tmp_path / "run.nsys-rep",
        ],
        check=True,
        capture_output=True,
    )
    with closing(sqlite3.connect(exported)) as connection:
        found = {
            name: [row[1] for row in connection.execute(f'PRAGMA table_info("{name}")')]
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if not name.startswith("ENUM_")
        }
    listed = {
        table: [column.split(":")[0].rstrip("*") for column in columns]
        for table, columns in LAYOUTS[version].items()
    }
    assert found == listed


STEPS = 2_000


def list_rows(thread: int, begin: int, end: int, name: int) -> dict[str, list[Row]]:
    """List rows over the whole recording, of the thread that launches."""
    process, length = thread & ~0xFFFFFF, (end - begin) // STEPS
    times = range(begin, end, length)
    call = {"globalTid": thread, "nameId": name}
    memory = {"globalPid": process, "deviceId": 0, "contextId": 1, "pc": 0, "memKind": 2, "name": None}
    return {
        "OSRT_API": [
            {
                "start": at,
                "end": at + length // 2,
                "eventClass": 27,
                **call,
                "returnValue": 0,
                "callchainId": 0,
            }
            for at in times
        ],
        "SCHED_EVENTS": [
            {"start": at, "cpu": 1, "isSchedIn": number % 2, "globalTid": thread}
            for number, at in enumerate(times)
        ],
        "COMPOSITE_EVENTS": [
            {
                "id": number + 1,
                "start": at + length // 2,
                "cpu": 1,
                "threadState": 0,
                "globalTid": thread,
                "cpuCycles": 1,
            }
            for number, at in enumerate(times)
        ],
        "SAMPLING_CALLCHAINS": [
            {"id": number + 1, "symbol": name, "module": name, "stackDepth": 0} for number in range(STEPS)
        ],
        "CUDA_GPU_MEMORY_USAGE_EVENTS": [
            {"start": at, "address": 4096 * at, "bytes": 64, "memoryOperationType": 0, "correlationId": None}
            | memory
            for at in times
        ],
        "PROFILER_OVERHEAD": [{"start": at, "end": at + length // 4, **call} for at in times],
    }


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the reports of the fixture, with rows in all tables that results have sums of."""
    folder = tmp_path_factory.mktemp("sums") / "pipeline"
    shutil.copytree(PIPELINE, folder)
    for path in folder.rglob("*.sqlite"):
        [(begin, end)] = select(path, "SELECT min(start), max(end) FROM CUPTI_ACTIVITY_KIND_KERNEL")
        [(thread,)] = select(path, "SELECT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME LIMIT 1")
        [(name,)] = select(path, "SELECT max(id) FROM StringIds")
        write_export(path, list_rows(thread, begin, end, name))
        add_metrics(path, rows=10_000, end_ns=end)
        add_network(path, until_ns=end, rates={5: 3000, 6: 500})
    return folder


def read_result(folder: Path, sums: str) -> pl.DataFrame:
    command, _, table = sums.split()
    if command == "summary":
        return nsys_pp.summary(folder, tables=[table]).tables.get(table, pl.DataFrame())
    return nsys_pp.pipeline(folder).tables([table])[table]


@pytest.mark.slow
def test_each_table_with_sums_changes_them(recorded: Path, tmp_path: Path) -> None:
    (info,) = nsys_pp.info([recorded / "node2" / "rank0.sqlite"]).reports
    claims = info.contents.tables.drop_nulls("sums").select("table", "sums").rows()
    assert len(claims) >= 8
    assert len({sums for _, sums in claims}) >= 7
    results = {sums: read_result(recorded, sums) for _, sums in claims}
    for table, sums in claims:
        folder = tmp_path / table
        shutil.copytree(recorded, folder)
        for path in folder.rglob("*.sqlite"):
            edit(path, f'DROP TABLE "{table}"')
        assert len(results[sums]), table
        assert not results[sums].equals(read_result(folder, sums)), (table, sums)

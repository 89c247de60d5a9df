"""Overhead of profiling in the verdict: simulated stalls that are flushes of nsys, and controls in which they are none of its doing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import nsys_pp
from fixtures.recording.overheads import Overhead, add_overheads, turn_calls_into_overhead
from fixtures.simulate import main as simulate
from nsys_pp import PipelineResult

pytestmark = pytest.mark.filterwarnings("ignore:nsys held the threads")  # the note above 2 %
_RUN = "--steps 5 --micro-batches 4 --jitter 0.01 --dp 2 --layers 2 --host --no-truth"
_STALL_NS = 30_000_000


def run(folder: Path, options: str, seed: int) -> Path:
    simulate([*f"{_RUN} {options} --seed {seed}".split(), str(folder)])
    return folder


def turn(folder: Path, *, thread_offset: int = 0) -> list[Overhead]:
    """Replace the stalls of all reports by flushes; return these."""
    return [
        overhead
        for path in sorted(folder.rglob("*.sqlite"))
        for overhead in turn_calls_into_overhead(
            path, least_ns=_STALL_NS // 2, thread_offset=thread_offset, name="CUPTI Buffer flush"
        )
    ]


def list_bubbles(result: PipelineResult, cause: str) -> int:
    length = pl.col("end_ns") - pl.col("start_ns")
    return int(result.training.lane_states.filter(cause=cause).select(length.sum()).item())


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(4))
def test_a_stall_in_a_flush_is_not_blamed_on_the_program(tmp_path: Path, seed: int) -> None:
    rank, step = (2 + 3 * seed) % 8, 12 + seed % 2
    folder = run(tmp_path, f"--host-stall {rank},{step}=30", 19_100 + seed)
    [before] = [found for found in nsys_pp.pipeline(folder).verdict.findings if found.kind == "host"]
    [overhead] = turn(folder)
    result = nsys_pp.pipeline(folder)
    kinds = [found.kind for found in result.verdict.findings]
    assert kinds[0] == "profiler", result.verdict.lines
    assert "host" not in kinds
    finding = result.verdict.findings[0]
    assert (finding.label, finding.step, finding.confidence) == (f"rank {rank}", step, "certain")
    assert "`CUPTI Buffer flush`" in finding.text
    assert finding.value_ns == pytest.approx(overhead.end - overhead.start, rel=0.01)
    assert list_bubbles(result, "profiler") == pytest.approx(overhead.end - overhead.start, rel=0.01)
    assert finding.gain_ns <= before.gain_ns * 1.05
    table = result.tables(["overhead"])["overhead"].filter(name="CUPTI Buffer flush")
    assert table["time_ns"].to_list() == [overhead.end - overhead.start]


def test_flushes_of_parts_are_those_of_the_reports(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", "--host-stall 2,12=30", 19_110)
    turn(folder)
    nsys_pp.extract(folder, tmp_path / "parts")
    of_reports, of_parts = nsys_pp.pipeline(folder), nsys_pp.pipeline(tmp_path / "parts")
    tables = [result.tables(["overhead"])["overhead"] for result in (of_reports, of_parts)]
    assert len(tables[0])
    assert tables[0].equals(tables[1])
    assert of_parts.verdict.lines == of_reports.verdict.lines


def test_a_flush_of_another_thread_is_no_excuse_for_the_program(tmp_path: Path) -> None:
    folder = run(tmp_path, "--host-stall 2,12=30", 19_111)
    assert turn(folder, thread_offset=77)
    result = nsys_pp.pipeline(folder)
    assert result.verdict.findings[0].kind == "host"
    assert result.verdict.findings[0].confidence == "certain"
    assert not list_bubbles(result, "profiler")


def test_a_flush_beside_a_cuda_call_of_the_late_thread_is_a_guess(tmp_path: Path) -> None:
    folder = run(tmp_path, "--host-stall 2,12=30", 19_112)
    [overhead] = turn(folder, thread_offset=77)
    report = next(folder.rglob("rank2.sqlite"))
    with closing(sqlite3.connect(report)) as connection, connection:  # the thread is inside a call meanwhile
        columns = [row[1] for row in connection.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_RUNTIME)")]
        some = dict(
            zip(
                columns,
                connection.execute("SELECT * FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone(),
                strict=True,
            )
        )
        some |= {"start": overhead.start, "end": overhead.end, "globalTid": overhead.thread - 77}
        some["correlationId"] = 1 << 30
        marks = ", ".join("?" * len(columns))
        connection.execute(
            f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({marks})", [some[name] for name in columns]
        )
    finding = nsys_pp.pipeline(folder).verdict.findings[0]
    assert (finding.kind, finding.confidence, finding.label) == ("host", "guess", "rank 2")
    assert "nsys flushed its buffers on another thread meanwhile" in finding.text


def test_flushes_while_gpus_compute_are_no_finding(tmp_path: Path) -> None:
    folder = run(tmp_path, "--pace-us 1", 19_113)
    training = nsys_pp.pipeline(folder).training
    for path in sorted(folder.rglob("*.sqlite")):
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute(
                "SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE end - start > 100000"
            ).fetchall()
            [thread] = connection.execute("SELECT DISTINCT globalTid FROM OSRT_API").fetchone()
        add_overheads(path, [Overhead(start, end, thread) for start, end in rows])
    result = nsys_pp.pipeline(folder)
    assert "profiler" not in [found.kind for found in result.verdict.findings]
    before = list_bubbles(
        nsys_pp.PipelineResult(training=training, run=result.run, skipped=result.skipped), "host"
    )
    assert before - list_bubbles(result, "host") == list_bubbles(result, "profiler")
    assert len(result.tables(["overhead"])["overhead"])


def test_lost_events_are_a_line(tmp_path: Path) -> None:
    folder = run(tmp_path, "--pp 2", 19_114)
    report = next(folder.rglob("rank1.sqlite"))
    with closing(sqlite3.connect(report)) as connection, connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS DIAGNOSTIC_EVENT (timestamp, timestampType, source, severity, text, globalPid)"
        )
        connection.execute(
            "INSERT INTO DIAGNOSTIC_EVENT VALUES (0, 1, 1, 3, 'Not all CUDA events might have been collected.', 0)"
        )
    with pytest.warns(UserWarning, match="Not all CUDA events"):
        verdict = nsys_pp.pipeline(folder).verdict
    [line] = [found.line for found in verdict.findings if found.kind == "losses"]
    assert line == (
        "Nsys lost events of rank 1 (`Not all CUDA events might have been collected`): its gaps and sums may be wrong."
    )

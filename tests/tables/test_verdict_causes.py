"""Clocks of GPUs in the verdict: simulated runs in which a clock falls with the speed of a rank, and controls in which it does not."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import NamedTuple

import polars as pl
import pytest

import nsys_pp
from fixtures.recording.metrics import add_clocks
from fixtures.recording.overheads import Overhead, add_overheads, turn_calls_into_overhead
from fixtures.simulate import main as simulate
from nsys_pp import PipelineResult
from nsys_pp.frames.verdict import Finding

_RUN = "--steps 6 --micro-batches 4 --jitter 0.01 --layers 2 --no-truth"


_USUAL = 1_700.0


Clock = Callable[[int, int], float]  # of a rank in a step, in MHz


def run(folder: Path, options: str, seed: int) -> Path:
    simulate([*f"{_RUN} {options} --seed {seed}".split(), str(folder)])
    return folder


def record_clocks(folder: Path, clock: Clock) -> None:
    """Add the clock of its GPU to the report of each rank: it changes where the steps begin on the host."""
    for path in sorted(folder.rglob("rank*.sqlite")):
        rank = int(path.stem.removeprefix("rank"))
        with closing(sqlite3.connect(path)) as connection:
            steps = connection.execute(
                "SELECT n.start, coalesce(n.text, s.value) FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId"
                " WHERE coalesce(n.text, s.value) LIKE 'step\\_%' ESCAPE '\\' ORDER BY n.start"
            ).fetchall()
            [(gpu, last)] = connection.execute(
                "SELECT max(deviceId), max(end) FROM CUPTI_ACTIVITY_KIND_KERNEL"
            ).fetchall()
        knots = [(0, _USUAL), *((start, clock(rank, int(name.split("_")[1]))) for start, name in steps)]
        add_clocks(path, {gpu: [*knots, (last + 1_000_000, _USUAL)]}, seed=rank)


def of_kind(folder: Path, kind: str) -> list[Finding]:
    return [found for found in nsys_pp.pipeline(folder).verdict.findings if found.kind == kind]


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(5))
def test_a_rank_that_is_slow_as_its_clock_fell_has_this_cause(tmp_path: Path, seed: int) -> None:
    rng = Random(f"clock {seed}")
    rank, factor, since = rng.randrange(8), rng.uniform(1.15, 1.5), rng.choice([None, 12, 13])
    options = f"--dp 2 --slow-rank {rank}={factor:.3f}" + (f" --slow-since {since}" if since else "")
    folder = run(tmp_path, options, rng.randrange(10**6))
    record_clocks(folder, lambda of, step: _USUAL / factor if of == rank and step >= (since or 0) else _USUAL)
    [found] = of_kind(folder, "straggler")
    assert found.label == f"rank {rank}", found.line
    assert f"; its SM clock was {_USUAL / factor:,.0f} of 1,700 MHz" in _round(found.line, _USUAL / factor)
    assert found.confidence != "guess"


def _round(line: str, value: float) -> str:
    """Replace a clock within 2 % of a value, as means of samples are, by the value."""
    words = line.split(" ")
    for at, word in enumerate(words):
        number = word.replace(",", "")
        if number.isdigit() and words[at + 1 : at + 2] in (["of"], ["MHz"]):
            for exact in (value, _USUAL):
                if abs(int(number) / exact - 1) < 0.02:
                    words[at] = f"{exact:,.0f}"
    return " ".join(words)


@pytest.mark.parametrize(
    ("name", "clock"),
    [
        ("another rank", lambda rank, step: 1_200.0 if rank == 6 else _USUAL),
        ("all ranks alike", lambda rank, step: 1_200.0),
        ("before it is slow, too", lambda rank, step: 1_200.0 if rank == 3 else _USUAL),
        ("steps in which it is not slow", lambda rank, step: 1_200.0 if rank == 3 and step < 13 else _USUAL),
    ],
)
def test_a_clock_that_falls_elsewhere_is_not_blamed(tmp_path: Path, name: str, clock: Clock) -> None:
    folder = run(tmp_path, "--dp 2 --slow-rank 3=1.3 --slow-since 13", 60_502)
    record_clocks(folder, clock)
    found = nsys_pp.pipeline(folder).verdict.findings
    assert found[0].label == "rank 3", name
    assert not [finding.line for finding in found if "clock was" in finding.text], name
    assert not [finding for finding in found if finding.kind == "gpu_clock"]


def test_clocks_of_all_gpus_that_fall_are_a_finding(tmp_path: Path) -> None:
    folder = run(tmp_path, "--dp 2 --slow-rank=-1=1.25 --slow-since 13", 60_505)
    record_clocks(folder, lambda rank, step: _USUAL / 1.25 if step >= 13 else _USUAL)
    [found] = of_kind(folder, "gpu_clock")
    assert (found.confidence, found.since_step) == ("likely", 13)
    assert "8 of 8 GPUs compute" in found.text
    assert "SM clocks were 1,360 of 1,700 MHz" in _round(found.text, 1_360.0)


_RUN_HOSTS = "--steps 5 --micro-batches 4 --jitter 0.01 --dp 2 --layers 2 --host --no-truth"


class Stall(NamedTuple):
    report: Path
    start: int
    end: int
    thread: int


def run_host(folder: Path, options: str, seed: int) -> Path:
    simulate([*f"{_RUN_HOSTS} {options} --seed {seed}".split(), str(folder)])
    return folder


def stall(folder: Path, seed: int, call: str) -> Stall:
    """Simulate a run in which the host of rank 2 is in a call for 30 ms of step 12."""
    run_host(folder, "--host-stall 2,12=30", seed)
    report = next(folder.rglob("rank2.sqlite"))
    with closing(sqlite3.connect(report)) as connection, connection:
        where = "WHERE end - start > 10000000"
        start, end, thread = connection.execute(
            f"SELECT start, end, globalTid FROM OSRT_API {where}"
        ).fetchone()
        connection.execute(f"UPDATE OSRT_API SET nameId = ? {where}", (add_string(connection, call),))
    return Stall(report, start, end, thread)


def add_string(connection: sqlite3.Connection, text: str) -> int:
    number = int(connection.execute("SELECT max(id) + 1 FROM StringIds").fetchone()[0])
    connection.execute("INSERT INTO StringIds (id, value) VALUES (?, ?)", (number, text))
    return number


def find_host(folder: Path) -> Finding:
    return next(found for found in nsys_pp.pipeline(folder).verdict.findings if found.kind == "host")


def test_short_calls_are_summed_and_their_stack_is_named(tmp_path: Path) -> None:
    stalled = stall(tmp_path, 19_203, "read")
    with closing(sqlite3.connect(stalled.report)) as connection, connection:
        connection.execute("DELETE FROM OSRT_API WHERE end - start > 10000000")
        columns = [row[1] for row in connection.execute("PRAGMA table_info(OSRT_API)")]
        some = dict(
            zip(columns, connection.execute("SELECT * FROM OSRT_API LIMIT 1").fetchone(), strict=True)
        )
        marks = ", ".join("?" * len(columns))
        number = add_string(connection, "fsync")
        length = (stalled.end - stalled.start) // 100
        for at in range(100):  # 80 of 100 pieces of the stall, none of which is a large part of it
            if at % 5:
                start = stalled.start + at * length
                row = some | {"start": start, "end": start + length, "globalTid": stalled.thread}
                row |= {"nameId": number, "callchainId": 1}
                connection.execute(f"INSERT INTO OSRT_API VALUES ({marks})", [row[name] for name in columns])
        connection.execute("CREATE TABLE IF NOT EXISTS OSRT_CALLCHAINS (id, symbol, module, stackDepth)")
        for depth, name in enumerate(("fsync", "save_checkpoint", "train")):
            connection.execute(
                "INSERT INTO OSRT_CALLCHAINS (id, symbol, module, stackDepth) VALUES (1, ?, ?, ?)",
                (add_string(connection, name), add_string(connection, "python"), depth),
            )
    nsys_pp.extract(tmp_path, tmp_path.parent / f"{tmp_path.name}-parts")
    line = find_host(tmp_path).line
    assert find_host(tmp_path.parent / f"{tmp_path.name}-parts").line == line
    assert "in `fsync()`" in line
    assert "called from `save_checkpoint < train`" in line


pytestmark = pytest.mark.filterwarnings("ignore:nsys held the threads")  # the note above 2 %


_STALL_NS = 30_000_000


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
    folder = run_host(tmp_path, f"--host-stall {rank},{step}=30", 19_100 + seed)
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


def test_a_flush_of_another_thread_is_no_excuse_for_the_program(tmp_path: Path) -> None:
    folder = run_host(tmp_path, "--host-stall 2,12=30", 19_111)
    assert turn(folder, thread_offset=77)
    result = nsys_pp.pipeline(folder)
    assert result.verdict.findings[0].kind == "host"
    assert result.verdict.findings[0].confidence == "certain"
    assert not list_bubbles(result, "profiler")


def test_a_flush_beside_a_cuda_call_of_the_late_thread_is_a_guess(tmp_path: Path) -> None:
    folder = run_host(tmp_path, "--host-stall 2,12=30", 19_112)
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
    folder = run_host(tmp_path, "--pace-us 1", 19_113)
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
    folder = run_host(tmp_path, "--pp 2", 19_114)
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

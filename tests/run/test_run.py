"""Captures of one nsys session, found among the reports of a run."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import polars as pl
import pytest

import nsys_pp
from fixtures import simulate
from fixtures.recording.export import write_report
from nsys_pp.frames.report import Session
from nsys_pp.frames.training import GATHERED_FRAMES, LANES
from nsys_pp.run.report import Input
from nsys_pp.run.run import Captures, _data_jobs, find_captures
from tests.training.expected_training import fill_columns

_S = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A report: start and length in s, steps, and GPU processes."""

    start: int
    steps: tuple[int, ...] = (0, 1)
    is_numbered: bool = False
    length: int | None = 1
    origin: int | None = 5
    processes: tuple[int, ...] = (1,)
    machine: str = "node1"


def find(*reports: Recorded) -> Captures:
    inputs = [cast(Input, _build_input(one)) for one in reports]
    return find_captures(inputs, [one.machine for one in reports])


def _build_input(one: Recorded) -> SimpleNamespace:
    session = Session(
        machine=one.machine,
        machine_source="hostname",
        utc_epoch_ns=one.start * _S,
        capture_end_ns=None if one.length is None else one.length * _S,
        origin_ns=one.origin,
    )
    devices = pl.DataFrame({"process_key": one.processes, "device_id": [0] * len(one.processes)})
    steps = pl.DataFrame(
        [(process, 0, step, one.is_numbered) for process in one.processes for step in one.steps],
        schema={"process_key": pl.Int64, "device_id": pl.Int32, "step": pl.Int64, "is_numbered": pl.Boolean},
        orient="row",
    )
    identity = SimpleNamespace(session=session, devices=devices)
    return SimpleNamespace(identity=identity, part=SimpleNamespace(frames={"steps": steps}))


def test_captures_follow_each_other_in_time_in_any_order_of_inputs() -> None:
    found = find(Recorded(start=3), Recorded(start=9, origin=900_000), Recorded(start=1), Recorded(start=5))
    assert (found.first, found.list_reports(2)) == ([2, 1, 2, 2], [2, 0, 3])
    assert found.step_offset == [3, 0, 0, 6]  # one number is left out between captures
    assert [found.list_reports(report) for report in (0, 1)] == [[], [1]]
    windows = [*found.list_windows([30, 90, 10, 50])]
    assert windows[0] == (30, 50)
    assert (windows[2][1], windows[3][0]) == (30, 50)
    assert windows[2][0] < 0 < 90 < windows[1][1] == windows[3][1]


@pytest.mark.parametrize(
    "other",
    [
        Recorded(start=3, origin=None),
        Recorded(start=3, origin=2_000),  # of another session
        Recorded(start=3, machine="node2"),
        Recorded(start=3, processes=(1, 2)),  # a process of its own
        Recorded(start=3, processes=()),
        Recorded(start=3, steps=(11, 12), is_numbered=True),  # a step of both captures
        Recorded(start=1),  # at the same time
        Recorded(start=3, length=None),  # of unknown length
    ],
)
def test_other_reports_are_no_captures_of_the_session(other: Recorded) -> None:
    found = find(Recorded(start=1, steps=(10, 11), is_numbered=True), other)
    assert found.first == [0, 1]
    assert not found.has_later
    frame = pl.DataFrame({"report": [1, 0], "step": [3, 4]}, schema_overrides={"report": pl.UInt32})
    assert found.join(frame).equals(frame)


def test_rows_of_captures_are_joined() -> None:
    found = find(Recorded(start=3), Recorded(start=1, steps=(0,)), Recorded(start=2, machine="node2"))
    frame = pl.DataFrame(
        {
            "report": [0, 0, 1, 2],
            "step": [0, None, 0, 0],
            "range_id": [7, 8, 7, 7],
            "outer_id": [None, 7, None, None],
            "start_ns": [30, 31, 10, 20],
        },
        schema_overrides={"report": pl.UInt32},
    )
    joined = found.join(frame)
    rows = joined.select("report", "start_ns", "step").rows()
    assert rows == [(1, 10, 0), (1, 30, 2), (1, 31, None), (2, 20, 0)]
    assert joined["range_id"][:3].n_unique() == 3
    assert joined["outer_id"].to_list() == [None, None, joined["range_id"][1], None]
    assert found.restore_ids(joined)["range_id"].to_list() == [7, 7, 8, 7]


# Few operations tie the machines, and many alignments are as likely: bounds are of milliseconds, or of a
# step.
_RUN = (
    "--seed 18600011 --pp 2 --dp 2 --tp 3 --order tp-pp-dp --steps 2 --micro-batches 15 --layers 1 "
    "--schedule zb-h1"
    " --chunks 2 --names megatron --autograd fill --free-running --sharded-optimizer --init-communicators "
    "--skew-us 2.91"
    " --stage-costs 0.76,1.3 --jitter 0.000934 --pace-us 26.5 --small-ops 3 --lead-collectives 2 --zero-grad "
    "none"
    " --events waits --varied-hosts --machine-ranks 3,9 --capture-steps 10:11 --machines 2 --folders machine"
    " --offsets-ms 2.43 --drift-ppm random:28.1 --utc-error-us 20.9 --schema 3.7.2 --no-truth"
)


_VALUES = ["machine", "group", "source", "offset_ns", "drift_ppm", "bound_ns"]


def align(inputs: list[Path]) -> pl.DataFrame:
    """Align reports or parts; a row per report, in order of their names."""
    result = nsys_pp.align(inputs)
    clocks = result.clocks.explode("reports").sort("reports")
    firsts = result.clocks["reports"].list.first()
    assert firsts.to_list() == firsts.sort().to_list()
    return clocks.select(*_VALUES, name=pl.Series([path.stem for path in result.paths])).sort("name")


@pytest.mark.slow
def test_clocks_do_not_depend_on_the_order_of_reports(tmp_path: Path) -> None:
    simulate.main([str(tmp_path / "run"), *_RUN.split()])
    reports = sorted((tmp_path / "run").rglob("*.sqlite"))
    expected = align([tmp_path / "run"])
    assert align(reports).equals(expected)
    parts = [part.output for part in nsys_pp.extract(reports, tmp_path / "parts", detail="jobs").parts]
    for seed in range(3):
        random.Random(seed).shuffle(parts)
        assert align(parts).equals(expected)


_LANES = fill_columns(
    pl.DataFrame({"lane": [0, 1, 2], "report": 0, "process_key": [5, 5, 6], "device_id": [0, 1, 0]}), LANES
)


def find_of_data_jobs(*rows: tuple[int, int, str, int | None, int]) -> set[tuple[int, int]]:
    """Find the lanes and starts of loads, of jobs (process, thread, kind, device, start on the host)."""
    columns = ["process_key", "thread_key", "kind", "device_id", "host_start_ns"]
    jobs = pl.DataFrame(rows, schema=columns, orient="row").with_columns(
        report=pl.lit(0), host_end_ns=pl.col("host_start_ns") + 5
    )
    loads = _data_jobs(fill_columns(jobs, GATHERED_FRAMES["jobs"]), _LANES)
    assert (loads["host_end_ns"] == loads["host_start_ns"] + 5).all()
    return {*loads.select("lane", "host_start_ns").rows()}


_DATA = (5, 50, "data", None, 10)


@pytest.mark.parametrize(
    ("jobs", "delayed"),
    [
        pytest.param(
            [_DATA, (5, 50, "forward", 0, 20), (5, 51, "data", None, 30), (5, 51, "forward", 1, 40)],
            {(0, 10), (1, 30)},
            id="each thread its own",
        ),
        pytest.param(
            [_DATA, (5, 50, "forward", 0, 20), (5, 50, "forward", 1, 20)],
            {(0, 10), (1, 10)},
            id="a thread with several GPUs",
        ),
        pytest.param(
            [_DATA, (5, 50, "other", None, 20)], {(0, 10), (1, 10)}, id="jobs that launched nothing: all"
        ),
        pytest.param(
            [(5, 52, "data", None, 10), (5, 50, "forward", 0, 20)], set(), id="a thread that only loads"
        ),
        pytest.param([(5, 50, "forward", 0, 20)], set(), id="no loads"),
    ],
)
def test_loads_delay_the_gpus_of_the_jobs_of_their_thread(
    jobs: list[tuple[int, int, str, int | None, int]], delayed: set[tuple[int, int]]
) -> None:
    assert find_of_data_jobs(*jobs) == delayed


def test_a_note_tells_how_to_read_names_that_no_rule_reads(tmp_path: Path) -> None:
    path = write_report(
        tmp_path / "r.sqlite",
        ranges=[{"name": "solve", "start": 0, "end": 9}],
        api_calls=[{"start": 1, "end": 2, "correlation": 1}],
        kernels=[{"start": 3, "end": 8, "correlation": 1}],
    )
    assert "take the preset of your framework with `--preset`" in nsys_pp.pipeline(path).training.notes[0]

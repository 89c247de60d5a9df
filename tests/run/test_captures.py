"""Captures of one nsys session, found among the reports of a run."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import polars as pl
import pytest

from nsys_pp.frames.report import Session
from nsys_pp.run.inputs import Input
from nsys_pp.run.run_training import Captures, find_captures

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
    assert found.first == [2, 1, 2, 2]
    assert found.list_reports(2) == [2, 0, 3]
    assert found.step_offset == [3, 0, 0, 6]  # one number is left out between captures
    assert [found.list_reports(report) for report in (0, 1)] == [[], [1]]
    windows = found.list_windows([30, 90, 10, 50])
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
    assert joined["report"].to_list() == [1, 1, 1, 2]
    assert joined["start_ns"].to_list() == [10, 30, 31, 20]
    assert joined["step"].to_list() == [0, 2, None, 0]
    assert joined["range_id"][:3].n_unique() == 3
    assert joined["outer_id"].to_list() == [None, None, joined["range_id"][1], None]
    assert found.restore_ids(joined)["range_id"].to_list() == [7, 7, 8, 7]

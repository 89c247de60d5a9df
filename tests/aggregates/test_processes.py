"""Sums stand where they were measured: at the GPU process, or at the first one of their process on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from fixtures.recording.export import write_report
from nsys_pp.aggregates.registry import concatenate_frames, list_processes
from nsys_pp.frames.aggregates import AGGREGATE_FRAMES
from nsys_pp.frames.roster import ROSTER
from nsys_pp.frames.training import LANES
from tests.aggregates.small_reports import aggregate, fill

PID = 1 << 24  # a process's key has its pid from this bit on


NUMBERS = pl.Schema({"lane": pl.UInt32, "step": pl.Int64, "run_step": pl.Int64})


def make_report(**rows: list[dict[str, Any]]) -> Mapping[str, pl.DataFrame]:
    return {name: fill(schema, rows.get(name, [])) for name, schema in AGGREGATE_FRAMES.items()}


def make_lanes(*keys: tuple[int, int, int]) -> pl.DataFrame:
    lanes = [
        {"lane": at, "report": report, "process_key": process, "device_id": device}
        | {"machine": "node", "gpu": f"GPU {device}", "label": f"rank {at}"}
        for at, (report, process, device) in enumerate(keys)
    ]
    return fill(LANES, lanes)


def make_roster(count: int) -> pl.DataFrame:
    return fill(ROSTER, [{"report": report, "machine": f"node{report}"} for report in range(count)])


def test_gpu_processes_come_first_in_the_order_of_lanes_then_the_others_by_report_and_pid() -> None:
    lanes = make_lanes((1, 5 * PID, 0), (0, 9 * PID, 1), (0, 9 * PID, 0))
    hosts = [[{"process_key": pid * PID} for pid in pids] for pids in ((9, 12, 3), (5, 7))]
    processes = list_processes(make_roster(2), lanes, [make_report(host_times=rows) for rows in hosts])
    assert processes.select("process", "report", "process_key", "device_id", "gpu", "label").rows() == [
        (0, 1, 5 * PID, 0, "GPU 0", "rank 0"),
        (1, 0, 9 * PID, 1, "GPU 1", "rank 1"),
        (2, 0, 9 * PID, 0, "GPU 0", "rank 2"),
        (3, 0, 3 * PID, None, None, "node0 pid 3"),
        (4, 0, 12 * PID, None, None, "node0 pid 12"),
        (5, 1, 7 * PID, None, None, "node1 pid 7"),
    ]


def test_labels_are_unique_where_two_reports_of_a_machine_have_the_same_pid() -> None:
    roster = make_roster(2).with_columns(machine=pl.lit("node"))
    processes = list_processes(roster, make_lanes(), [make_report(host_times=[{"process_key": 3 * PID}])] * 2)
    assert processes["label"].to_list() == ["node pid 3", "node pid 3 (2)"]


def test_processes_of_hosts_beyond_half_of_all_numbers_have_their_pid() -> None:
    key = -(1 << 62) + 4242 * PID  # such a host sets the sign
    processes = list_processes(make_roster(1), make_lanes(), [make_report(host_times=[{"process_key": key}])])
    assert processes["label"].to_list() == ["node0 pid 4242"]


def test_what_a_process_did_on_the_cpu_stands_at_its_first_place() -> None:
    lanes = make_lanes((0, PID, 1), (0, PID, 0), (1, PID, 0))
    items = [
        {"process_key": PID, "device_id": device, "step": 4, "measure": measure, "count": 1}
        for device, measure in ((None, "host"), (0, "gpu"), (1, "gpu"))
    ]
    calls = [{"process_key": PID, "step": 4, "count": 1}, {"process_key": 2 * PID, "step": 4, "count": 1}]
    reports = [
        make_report(item_aggregates=items, call_aggregates=calls),
        make_report(call_aggregates=calls[:1]),
    ]
    reports[0]["host_times"].extend(fill(AGGREGATE_FRAMES["host_times"], [{"process_key": 2 * PID}]))
    processes = list_processes(make_roster(2), lanes, reports)
    numbers = pl.DataFrame([(0, 4, 14), (1, 4, 14), (2, 5, 15)], schema=NUMBERS, orient="row")
    placed = concatenate_frames(reports, processes, numbers)
    assert placed["item_aggregates"].select("process", "measure", "step").rows() == [
        (0, "host", 14),
        (1, "gpu", 14),
        (0, "gpu", 14),
    ]
    # of a process without a GPU, and of a step that the run does not number, no step is known
    assert placed["call_aggregates"].select("process", "step").rows() == [(0, 14), (3, None), (2, None)]


def test_nothing_has_no_places_and_frames_keep_their_columns() -> None:
    processes = list_processes(make_roster(1), make_lanes(), [make_report()])
    assert processes.is_empty()
    for name, frame in concatenate_frames([make_report()], processes, NUMBERS.to_frame()).items():
        keys = ("process_key", "device_id")
        assert frame.columns == [
            "process",
            *(column for column in AGGREGATE_FRAMES[name] if column not in keys),
        ]


def test_a_report_of_nothing_has_no_sums(tmp_path: Path) -> None:
    sums = aggregate(write_report(tmp_path / "x.sqlite"))
    assert {name: frame.schema for name, frame in sums.items()} == AGGREGATE_FRAMES
    assert all(frame.is_empty() for frame in sums.values())

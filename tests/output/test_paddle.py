"""Paddle's two files: their structure, as Perfetto's importer reads them, and where that tool is wrong."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.errors import OutputError
from nsys_pp.frames.training import RUN_JOBS, Training
from nsys_pp.output.formats import ExportOptions
from nsys_pp.output.other.paddle import export_paddle
from tests.importer import Importer, assert_no_errors
from tests.training.expected_training import expected_training

TRAINING = expected_training()
SLICES = """
SELECT slice.name, category, ts, dur, thread.name AS thread, tid
FROM slice JOIN thread_track ON slice.track_id = thread_track.id JOIN thread USING (utid)
"""


def written(
    folder: Path, training: Training = TRAINING, devices: list[int] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What both files hold; numbers of `ts` stay text, so that nothing is rounded."""
    chosen = None if devices is None else tuple(devices)
    done = export_paddle(training, folder, ExportOptions(devices=chosen, force=True))
    chrome, perfetto = (json.loads(file.path.read_text(), parse_float=str) for file in done.files)
    assert chrome["otherData"] == perfetto["otherData"] == {**chrome["otherData"], "notes": [*done.notes]}
    assert_one_content(chrome, perfetto)
    return chrome, perfetto


def titles_of(perfetto: dict[str, Any]) -> dict[int, str]:
    return {
        event["tid"]: event["args"]["name"]
        for event in perfetto["traceEvents"]
        if event["ph"] == "M" and event["name"] == "thread_name"
    }


def assert_one_content(chrome: dict[str, Any], perfetto: dict[str, Any]) -> None:
    """Both files have the same events, on rows of the same names, and name no row that is not there."""
    titles = titles_of(perfetto)
    assert len({*titles.values()}) == len(titles)
    of_perfetto: list[dict[str, Any]] = [event for event in perfetto["traceEvents"] if event["ph"] != "M"]
    assert {event["tid"] for event in of_perfetto} <= {*titles}
    assert chrome["traceEvents"] == [
        {**event, "tid": titles[event["tid"]].replace("GPU:", "GPU").replace("STEP", "Step")}
        for event in of_perfetto
    ]


def pairs(events: list[dict[str, Any]]) -> list[tuple[str, str, str, int, int]]:
    """Pair begins and ends as a viewer does, by a stack per thread: tid, name, cname, start and end in ns."""
    stacks: dict[Any, list[Any]] = {}
    found = []
    for event in events:
        time_ns = round(float(event["ts"]) * 1000) if event["ph"] != "M" else 0
        stack = stacks.setdefault(event["tid"], [])
        if event["ph"] == "B":
            stack.append((event, time_ns))
        elif event["ph"] == "E":
            begin, start_ns = stack.pop()
            assert begin["name"] == event["name"]
            found.append((event["tid"], event["name"], event["cname"], start_ns, time_ns))
    assert not any(stacks.values())
    return found


def names_on(chrome: dict[str, Any], tid: str) -> list[str]:
    on_row = [pair for pair in pairs(chrome["traceEvents"]) if pair[0] == tid]
    return [pair[1] for pair in sorted(on_row, key=lambda pair: (pair[3], -pair[4]))]


def with_jobs(*rows: dict[str, Any], lanes: pl.DataFrame = TRAINING.lanes) -> Training:
    """A training of few jobs; what is not said of them is null."""
    described = [
        {"lane": 0, "job": number, "step": 10, "name": f"{row['kind']}_7", "is_inferred": False, **row}
        for number, row in enumerate(rows)
    ]
    data = {column: [row.get(column) for row in described] for column in RUN_JOBS}
    jobs = pl.DataFrame(data, schema=RUN_JOBS).with_columns(
        compute_start_ns=pl.coalesce("compute_start_ns", "start_ns"),
        compute_end_ns=pl.coalesce("compute_end_ns", "end_ns"),
    )
    return replace(TRAINING, jobs=jobs, lanes=lanes)


def test_the_files_have_the_structure_of_the_tool(tmp_path: Path) -> None:
    chrome, perfetto = written(tmp_path)
    events = chrome["traceEvents"]
    assert [*events[0]] == ["name", "cat", "ph", "ts", "pid", "tid", "cname"]
    assert {event["ph"] for event in events} == {"B", "E"}
    assert chrome["otherData"]["machines"] == {"0": "node2", "1": "node10"}
    assert {event["pid"] for event in events} == {0}
    rows = ["GPU0(machine:0)", "GPU1(machine:0)", "GPU0(machine:1)", "GPU1(machine:1)"]
    assert {*rows, "Step"} == {event["tid"] for event in events}
    assert titles_of(perfetto) == {
        2333: "STEP",
        **{2334 + place: row.replace("GPU", "GPU:") for place, row in enumerate(rows)},
    }
    for event in events:
        job = re.fullmatch(r"(forward|backward)_\d+", event["name"])
        assert event["cat"] == (job[1] if job else "step")
    steps = [pair[:3] for pair in pairs(events) if pair[0] == "Step"]
    assert steps == [("Step", f"step{step}", "thread_state_unknown") for step in (10, 11, 12)]


def test_every_job_is_there_to_the_nanosecond(tmp_path: Path) -> None:
    chrome, _ = written(tmp_path)
    base_ns = int(chrome["otherData"]["base_ns"])
    rows = ["GPU0(machine:0)", "GPU1(machine:0)", "GPU0(machine:1)", "GPU1(machine:1)"]
    expected = {
        (rows[job["lane"]], f"{job['kind']}_{job['micro_batch']}", *times)
        for job in TRAINING.jobs.iter_rows(named=True)
        for times in [(job["compute_start_ns"] - base_ns, job["compute_end_ns"] - base_ns)]
    }
    found = [(pair[0], pair[1], *pair[3:]) for pair in pairs(chrome["traceEvents"]) if pair[0] != "Step"]
    assert len(found) == len(expected) == 192
    assert {*found} == expected


@pytest.mark.parametrize("name", ["pipeline_profile.json", "pipeline_profile_perfetto.json"])
def test_perfetto_reads_every_slice(importer: Importer, tmp_path: Path, name: str) -> None:
    chrome, _ = written(tmp_path)
    found = importer.query(tmp_path / name, SLICES)
    assert_no_errors(importer)
    expected = [
        (tid, name, start_ns, end_ns - start_ns)
        for tid, name, _, start_ns, end_ns in pairs(chrome["traceEvents"])
    ]
    # what it calls threads without numbers is its own affair
    columns = ["thread", "name", "ts", "dur"] if "perfetto" in name else ["name", "ts", "dur"]
    titles = pl.col("thread").str.replace("GPU:", "GPU").str.replace("STEP", "Step")
    assert {*found.with_columns(titles).select(columns).rows()} == {row[-len(columns) :] for row in expected}
    assert found["tid"].n_unique() == 5
    assert len(found) == len(expected) == 195


KINDS: list[dict[str, Any]] = [
    {"kind": "forward", "micro_batch": 3, "chunk": 0, "start_ns": 0, "end_ns": 1},
    {"kind": "forward", "micro_batch": 3, "chunk": 1, "start_ns": 1, "end_ns": 2},
    {"kind": "backward", "micro_batch": 3, "chunk": 1, "start_ns": 2, "end_ns": 3},
    {"kind": "weight_gradient", "micro_batch": 3, "chunk": 1, "start_ns": 3, "end_ns": 4},
    {"kind": "backward", "micro_batch": 3, "chunk": 0, "start_ns": 4, "end_ns": 5},
    {
        "kind": "forward_backward",
        "micro_batch": 7,
        "chunk": 0,
        "backward_micro_batch": 3,
        "backward_chunk": 1,
        "start_ns": 5,
        "end_ns": 6,
    },
    {"kind": "recompute", "micro_batch": 3, "chunk": 0, "start_ns": 6, "end_ns": 7},
    {"kind": "optimizer", "start_ns": 7, "end_ns": 8},
    {"kind": "optimizer", "start_ns": 8, "end_ns": 9},
    {"kind": "other", "name": "lr_0", "start_ns": 9, "end_ns": 10},
    {"kind": "other", "name": "default", "start_ns": 10, "end_ns": 11},
    {"kind": "other", "name": 'odd "na\\me" <é🚀>', "start_ns": 11, "end_ns": 12},
    {"kind": "data", "start_ns": 12, "end_ns": 13},
    {"kind": "other", "name": None, "start_ns": 13, "end_ns": 14},
    {"kind": "other", "name": "42", "start_ns": 14, "end_ns": 15},
]
NAMES = {
    "forward0_3": "thread_state_running",
    "forward1_3": "good",
    "backward_b1_3": "rail_animation",
    "backward_w1_3": "bad",
    "backward0_3": "rail_idle",
    "forward0_backward1_7+3": "thread_state_uninterruptible",
    "recompute0_3": "background_memory_dump",
    "optimizer_0": "rail_response",
    "optimizer_1": "rail_response",
    "lr_0": None,
    "default_0": "thread_state_unknown",
    'odd "na\\me" <é🚀>_0': None,
    "data_0": "olive",
    "other_0": None,
    "other_1": None,
}


def test_types_are_the_words_of_paddle_and_all_have_colors(tmp_path: Path) -> None:
    chrome, _ = written(tmp_path, with_jobs(*KINDS))
    found = {pair[1]: pair[2] for pair in pairs(chrome["traceEvents"]) if pair[0] != "Step"}
    assert [*found] == [*NAMES]
    assert all(found.values())
    assert {name: found[name] for name, color in NAMES.items() if color} == {
        name: color for name, color in NAMES.items() if color
    }


def test_steps_that_were_cut_or_lack_a_rank_say_so(tmp_path: Path) -> None:
    is_cut = (pl.col("step") == 12) & (pl.col("lane") == 3)
    is_absent = (pl.col("step") == 10) & (pl.col("lane") == 0)
    steps = TRAINING.steps.with_columns(is_partial=is_cut).filter(~is_absent)
    chrome, _ = written(tmp_path, replace(TRAINING, steps=steps))
    assert names_on(chrome, "Step") == ["step10 (partial)", "step11", "step12 (partial)"]
    assert chrome["otherData"]["partial_steps"] == [10, 12]


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    chrome, _ = written(tmp_path, replace(TRAINING, lanes=TRAINING.lanes.filter(pl.col("rank") != 1)))
    assert chrome["otherData"]["notes"] == ["there is no report of rank 1"]
    chrome, _ = written(tmp_path, devices=[0, 7])
    assert chrome["otherData"]["notes"] == [
        "there is no report of GPU 7 of `node2`",
        "there is no report of GPU 7 of `node10`",
    ]
    chrome, _ = written(tmp_path, with_jobs(KINDS[0]))
    assert chrome["otherData"]["notes"][0] == "`GPU1(machine:0)` has no jobs"


def test_files_that_are_there_stay_without_force(tmp_path: Path) -> None:
    (tmp_path / "pipeline_profile_perfetto.json").write_text("mine")
    with pytest.raises(OutputError, match="exists"):
        export_paddle(TRAINING, tmp_path, ExportOptions())
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(0, 6), st.booleans()), max_size=14)
)
def test_jobs_that_overlap_nest_or_have_rows_of_their_own(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[int, int, int, bool]]
) -> None:
    jobs: list[dict[str, Any]] = [
        {
            "kind": "forward",
            "lane": lane,
            "start_ns": start,
            "end_ns": start + length,
            "micro_batch": number,
            "outer": number - 1 if inside and number else None,
        }
        for number, (lane, start, length, inside) in enumerate(sorted(drawn))
    ]
    for number, job in enumerate(jobs):
        if job["outer"] is not None and jobs[number - 1]["lane"] != job["lane"]:
            job["outer"] = None
    chrome, _ = written(tmp_path_factory.mktemp("x"), with_jobs(*jobs))
    base_ns = int(chrome["otherData"]["base_ns"])
    found = sorted(
        (pair[0].split("(overlap")[0], pair[1], pair[3] + base_ns, pair[4] + base_ns)
        for pair in pairs(chrome["traceEvents"])
        if pair[0] != "Step"
    )
    assert found == sorted(
        (f"GPU{job['lane']}(machine:0)", f"forward_{job['micro_batch']}", job["start_ns"], job["end_ns"])
        for job in jobs
    )

"""Which rows a report gets, in which order, and what stands on them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from fixtures.recording.export import write_report
from nsys_pp.frames.clock import Clock
from nsys_pp.frames.part import PartOptions, Row
from nsys_pp.frames.report import (
    COUNTERS,
    Report,
)
from nsys_pp.frames.training import JOB_RANGES, LANE_STATES, RUN_STEPS, TRANSFERS, Training
from nsys_pp.model import build_report
from nsys_pp.options import DETAILS, Detail
from nsys_pp.output.colors import COLORS
from nsys_pp.output.perfetto.trace import write_perfetto
from nsys_pp.output.trace.drawing import (
    SAMPLES,
    Drawing,
    Placement,
    arrange,
    index_tracks,
    subtracks_by_track,
)
from nsys_pp.output.trace.run_tracks import RUN, GpuRow, draw_training
from nsys_pp.output.trace.tracks import (
    MOST_WINDOWS,
    busy_percent,
    thin,
)
from nsys_pp.read import read_report
from nsys_pp.run import report as reports
from tests.importer import Importer, assert_no_errors, read_flows, slices_by_track
from tests.output.drawings import PlacedDrawings, encode
from tests.training.expected_training import expected_training


def read(path: Path) -> Report:
    return build_report(read_report(path))


def draw(report: Report, *, detail: Detail = "cpu", **asked: Any) -> Drawing:
    window = reports.Window(start_ns=asked.pop("start_ns", None), end_ns=asked.pop("end_ns", None))
    return reports.draw(
        report,
        reports.project_report(report, ops=("kernel",), scope="auto"),
        PartOptions(detail=detail, **asked),
        window=window,
    )


def rows(drawing: Drawing, below: str = "") -> list[str]:
    """Paths of the rows that are drawn, in order; or their names below one of them."""
    paths = ["/".join(track.path) for track in arrange(index_tracks(drawing), subtracks_by_track(drawing))]
    if below:
        return [path[len(below) + 1 :] for path in paths if path.startswith(below + "/")]
    return [path for path in paths if path and "/" not in path]


def names(drawing: Drawing, path: str) -> list[str]:
    """What stands on a row, subtrack by subtrack."""
    return [
        name
        for subtrack in subtracks_by_track(drawing)[tuple(path.split("/"))]
        for name in (subtrack.frame if subtrack.kind != "counter" else pl.DataFrame({"name": []}))["name"]
    ]


def launched(*threads: int, **fields: Any) -> dict[str, Any]:
    """A range, a call and a kernel for each thread, one after the other."""
    at = [(1000 * row, tid) for row, tid in enumerate(threads)]
    return {
        "ranges": [
            {"start": start, "end": start + 100, "name": f"of {tid}", "tid": tid} for start, tid in at
        ],
        "api_calls": [{"start": start + 10, "end": start + 20, "tid": tid} for start, tid in at],
        "kernels": [
            {"start": start + 300, "end": start + 400, "correlation": row + 1, **fields}
            for row, (start, tid) in enumerate(at)
        ],
    }


def test_each_detail_has_its_rows(tmp_path: Path) -> None:
    recorded = launched(1000)
    recorded["kernels"][0]["name"] = "ncclDevKernel_SendRecv"
    report = read(write_report(tmp_path / "x.sqlite", **recorded, marks=[{"time": 5, "name": "here"}]))
    expected: dict[Detail, list[str]] = {
        "jobs": ["ranges"],
        "ranges": ["GPU busy", "ranges", "communication"],
        "kernels": ["GPU busy", "ranges", "communication", "stream 7 (default)"],
        "cpu": ["GPU busy", "ranges", "communication", "stream 7 (default)"],
    }
    for detail in DETAILS:
        drawing = draw(report, detail=detail)
        assert rows(drawing, "GPU 0") == expected[detail]
        assert rows(drawing) == ["GPU 0", "CPU: python 1000"][: 2 if detail == "cpu" else 1]
    assert rows(drawing, "CPU: python 1000") == [
        "NVTX thread 1000",
        "marks thread 1000",
        "CUDA API thread 1000",
    ]
    assert names(drawing, "GPU 0/ranges") == ["of 1000"]
    assert names(drawing, "GPU 0/communication") == ["ncclDevKernel_SendRecv"]
    assert names(drawing, "CPU: python 1000/marks thread 1000") == ["here"]


def test_jobs_are_the_outer_levels_of_ranges(tmp_path: Path) -> None:
    report = read(
        write_report(
            tmp_path / "x.sqlite",
            ranges=[{"start": level, "end": 100 - level, "name": f"level {level}"} for level in range(6)],
            api_calls=[{"start": 20, "end": 30}],
            kernels=[{"start": 40, "end": 50, "correlation": 1}],
        )
    )
    assert names(draw(report, detail="jobs"), "GPU 0/ranges") == ["level 0", "level 1", "level 2"]
    assert len(names(draw(report, detail="ranges"), "GPU 0/ranges")) == 6


def test_threads_have_rows_of_their_own_the_busiest_first(tmp_path: Path) -> None:
    threads = [{"tid": 1002, "name": "pt_autograd_0"}]
    drawing = draw(read(write_report(tmp_path / "x.sqlite", **launched(1001, 1002, 1002), threads=threads)))
    assert rows(drawing, "GPU 0")[1:3] == ["ranges of pt_autograd_0 1002", "ranges of thread 1001"]
    assert names(drawing, "GPU 0/ranges of thread 1001") == ["of 1001"]
    assert rows(drawing, "CPU: python 1000") == [
        f"{kind} {name}" for name in ("thread 1001", "pt_autograd_0 1002") for kind in ("NVTX", "CUDA API")
    ]


def test_streams_are_told_apart(tmp_path: Path) -> None:
    """By the least that does: number, name, context, process."""

    def streams(*kernels: dict[str, Any], **more: Any) -> list[str]:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.sqlite"
        report = read(write_report(path, kernels=[{"start": 0, "end": 9, **one} for one in kernels], **more))
        return [row for row in rows(draw(report), "GPU 0") if row.startswith("stream")]

    assert streams({"stream": 10}, {"stream": 9}) == ["stream 9", "stream 10"]
    named = [{"stream": 9, "name": "copies"}]
    assert streams({"stream": 9}, {"stream": 7}, streams=named) == ["stream 7 (default)", "stream 9 copies"]
    contexts = streams({"stream": 9, "context": 1}, {"stream": 9, "context": 4})
    assert contexts == ["stream 9, context 1", "stream 9, context 4"]
    shared = [{"id": 0, "pid": pid, "device": 0, "bus": "0000:01:00.0", "uuid": "u"} for pid in (1, 2)]
    processes = streams({"stream": 9, "pid": 1}, {"stream": 9, "pid": 2}, gpus=shared)
    assert processes == ["stream 9, pid 1", "stream 9, pid 2"]


def test_a_window_is_on_the_clock_of_the_report(tmp_path: Path) -> None:
    """Operations at 300 to 400, 1,300 to 1,400 and 2,300 to 2,400 ns, ranges 300 ns before."""
    report = read(
        write_report(tmp_path / "x.sqlite", **launched(1, 1, 1), marks=[{"time": t} for t in (5, 1300)])
    )

    def drawn(start: int | None, end: int | None) -> tuple[int, ...]:
        drawing = draw(report, start_ns=start, end_ns=end)
        parts = {subtrack.track[-1]: subtrack for subtrack in drawing.subtracks}
        slices = [
            parts.get(name) for name in ("stream 7 (default)", "ranges", "NVTX thread 1", "CUDA API thread 1")
        ]
        return tuple(len(part.rows) if part else 0 for part in slices)

    expected = {
        (None, None): (3, 3, 3, 3),
        (1300, 1301): (1, 1, 0, 0),
        (1400, None): (2, 2, 1, 1),
        (1401, None): (1, 1, 1, 1),
        (None, 1300): (1, 1, 2, 2),
        (None, 1301): (2, 2, 2, 2),
        (2000, 2010): (0, 0, 1, 0),
    }
    assert {window: drawn(*window) for window in expected} == expected


def test_recorded_counters_follow_the_busy_time_of_their_gpu_and_head_their_process(tmp_path: Path) -> None:
    report = read(write_report(tmp_path / "x.sqlite", **launched(1)))
    process = report.processes["process_key"][0]
    samples = [
        (process, 0, "power", "W", 300, 250.0),
        (process, None, "threads", "count", 0, 3.0),
    ]
    drawing = draw(structs.replace(report, counters=pl.DataFrame(samples, schema=COUNTERS, orient="row")))
    assert rows(drawing, below="GPU 0")[:2] == ["GPU busy", "power"]
    assert rows(drawing, below=rows(drawing)[1])[0] == "threads"
    assert {track.name: track.counter_unit for track in drawing.tracks if track.counter_unit} == {
        "GPU busy": "%",
        "power": "W",
        "threads": "count",
    }


def test_slices_tell_what_they_are(tmp_path: Path) -> None:
    """Nothing is told of what is unknown; a kernel that no call here launched is on its stream alone."""
    report = read(
        write_report(
            tmp_path / "x.sqlite",
            ranges=[{"start": 100, "end": 140, "name": "f", "domain": "model"}, {"start": 105, "end": 130}],
            api_calls=[{"start": 10 * at, "end": 10 * at + 5, "correlation": at} for at in (11, 12, 15)],
            kernels=[
                {"start": 200, "end": 203, "correlation": 11, "name": "gemm"},
                {"start": 230, "end": 233, "correlation": 99, "name": "ncclDevKernel_AllReduce"},
            ],
            memcpys=[{"start": 210, "end": 220, "correlation": 12, "bytes": 100}],
            memsets=[{"start": 223, "end": 229, "correlation": 15}],
            graph_traces=[{"start": 240, "end": 250}],
        )
    )
    jobs = pl.DataFrame([(1, "forward")], schema=JOB_RANGES, orient="row")
    options = PartOptions(detail="cpu")
    told = {
        subtrack.track[-1]: [
            tuple(value for value in row.values() if value is not None) for row in subtrack.frame.to_dicts()
        ]
        for subtrack in reports.draw(
            report, reports.project_report(report, ops=("kernel",), scope="auto"), options, job_ranges=jobs
        ).subtracks
        if subtrack.kind == "slices"
    }
    launched = (
        1,
        1,
        3,
        100.0,
        "gemm",
        "gemm",
        "thread",
    )  # calls, operations, busy time and share, ends, scope
    kernel = ("1,1,1", "128,1,1", 32, 0, 0)
    assert told == {
        "ranges": [
            (200, 203, "f", "forward", "model", 100, 40, *launched, 1, 0),
            (200, 203, "(no name)", 105, 25, *launched, 2, 1),
        ],
        "communication": [(230, 233, "ncclDevKernel_AllReduce", "communication", 99, *kernel, 0)],
        "stream 7 (default)": [
            (200, 203, "gemm", 11, *kernel, 0),
            (210, 220, "Memcpy HtoD", "copy", 12, 100, 0),
            (223, 229, "Memset", "memset", 15, 4096, 0),
            (230, 233, "ncclDevKernel_AllReduce", "communication", 99, *kernel, 0),
            (240, 250, "CUDA graph 1", "graph", 1, 0),
        ],
        "NVTX thread 1000": [(100, 140, "f", "forward", "model", 1, 0), (105, 130, "(no name)", 2, 1)],
        "CUDA API thread 1000": [(10 * at, 10 * at + 5, "cudaLaunchKernel", at, 0) for at in (11, 12, 15)],
    }


TRAINING = expected_training()


PLACES = {
    row["lane"]: GpuRow(machine=row["machine"], row=row["gpu"])
    for row in TRAINING.lanes.iter_rows(named=True)
}


def place(training: Training) -> PlacedDrawings:
    drawn = []
    for machine, drawing in draw_training(training, PLACES).items():
        rows = {track.path[0]: Row(name=track.path[0], order=track.rank) for track in drawing.tracks}
        drawn.append((drawing, Placement(machine=machine, machine_order=0, rows=rows, clock=Clock.fixed(0))))
    return drawn


def read_drawn(importer: Importer, training: Training) -> pl.DataFrame:
    slices = slices_by_track(importer, b"".join(write_perfetto(encode(place(training)))))
    assert_no_errors(importer)
    return slices


def gpu_path(lane: int) -> str:
    return f"{PLACES[lane].machine}/{PLACES[lane].row}"


def test_jobs_come_back_where_they_computed(importer: Importer) -> None:
    slices = read_drawn(importer, TRAINING)
    for lane in PLACES:
        jobs = TRAINING.jobs.filter(lane=lane)
        letters = jobs["kind"].cast(pl.String).str.slice(0, 1).str.to_uppercase()
        times = jobs["compute_start_ns"], jobs["compute_end_ns"] - jobs["compute_start_ns"]
        found = slices.filter(path=f"{gpu_path(lane)}/jobs").sort("ts")
        seeds = [COLORS[kind].seed for kind in jobs["kind"]]
        expected = [*zip(letters + jobs["label"], *times, seeds, strict=True)]
        assert found.select("name", "ts", "dur", "correlation").rows() == expected


def test_each_role_has_a_row_of_its_own(importer: Importer) -> None:
    role = pl.Series([(None, "actor", "critic")[number % 3] for number in range(len(TRAINING.jobs))])
    training = replace(TRAINING, jobs=TRAINING.jobs.with_columns(role=role))
    slices = read_drawn(importer, training)
    for lane in PLACES:
        jobs = training.jobs.filter(lane=lane)
        for name, own in (("jobs", None), ("jobs of actor", "actor"), ("jobs of critic", "critic")):
            found = slices.filter(path=f"{gpu_path(lane)}/{name}").sort("ts")
            of_role = jobs.filter(pl.col("role").eq_missing(own))
            assert found["ts"].to_list() == of_role["compute_start_ns"].to_list() != []


def test_steps_of_every_gpu_and_of_the_run_come_back(importer: Importer) -> None:
    slices = read_drawn(importer, TRAINING)
    for lane in PLACES:
        steps = TRAINING.steps.filter(lane=lane)
        found = slices.filter(path=f"{gpu_path(lane)}/steps")
        assert (
            found.select("ts", "dur").rows()
            == steps.select("start_ns", pl.col("end_ns") - pl.col("start_ns")).rows()
        )
        assert found["name"].to_list() == [f"step {step}" for step in steps["step"]]
    run = slices.filter(path=f"{RUN}/steps").sort("ts")
    spans = TRAINING.steps.group_by("step").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    assert run.select("ts", end=pl.col("ts") + pl.col("dur")).rows() == spans.sort("step").drop("step").rows()


def test_every_message_has_an_arrow_from_its_send_to_its_way(importer: Importer) -> None:
    by_id = {row["slice_id"]: row for row in read_drawn(importer, TRAINING).iter_rows(named=True)}
    joined = [(by_id[out], by_id[into]) for out, into in read_flows(importer)]
    expected = [
        (gpu_path(row["sender"]), row["send_start_ns"], gpu_path(row["receiver"]), row["receive_end_ns"])
        for row in TRAINING.transfers.iter_rows(named=True)
    ]
    assert len(expected) == 144
    found = [
        (
            out["path"].removesuffix("/messages"),
            out["ts"],
            into["path"].removesuffix("/messages"),
            into["ts"] + into["dur"],
        )
        for out, into in joined
    ]
    assert sorted(found) == sorted(expected)
    assert all(out["name"].startswith("send ") and into["name"] == "transfer" for out, into in joined)
    assert all(out["ts"] < into["ts"] and into["depth"] == 1 for out, into in joined)


def test_a_message_that_seems_to_arrive_before_it_left_has_no_arrow(importer: Importer) -> None:
    before = TRAINING.transfers.head(1).with_columns(
        receive_start_ns=pl.col("send_start_ns") - 50, receive_end_ns=pl.col("send_start_ns") - 1
    )
    slices = read_drawn(importer, replace(TRAINING, transfers=before))
    assert read_flows(importer) == []
    assert len(slices.filter(pl.col("path").str.ends_with("/messages"))) == 2


def test_the_bubble_of_a_stage_counts_its_gpus(importer: Importer) -> None:
    start = TRAINING.zero_ns
    rows = [
        (0, 1, "steady", "compute", start, start + 10, None),
        (0, 1, "steady", "host", start + 10, start + 30, None),
        (0, 1, "steady", "idle", start + 30, start + 40, None),
        (1, 1, "steady", "message_transfer", start, start + 20, None),
        (1, 1, "steady", "compute", start + 20, start + 40, None),
    ]
    lanes = TRAINING.lanes.with_columns(stage=pl.lit(0, pl.Int64))
    lane_states = pl.DataFrame(rows, schema=LANE_STATES, orient="row")
    read_drawn(importer, replace(TRAINING, lanes=lanes, lane_states=lane_states))
    assert importer.query(
        None,
        "SELECT ts, value FROM counter JOIN counter_track t ON t.id = track_id WHERE t.name = 'bubble of "
        "stage 0'",
    ).rows() == [
        (start, 50.0),
        (start + 10, 100.0),
        (start + 20, 50.0),
        (start + 40, 0.0),
    ]


def test_nothing_is_drawn_of_reports_without_jobs_steps_and_messages() -> None:
    nothing = replace(TRAINING, jobs=TRAINING.jobs.clear(), transfers=TRANSFERS.to_frame())
    whole = TRAINING.steps.with_columns(source=pl.lit("capture", RUN_STEPS["source"]))
    assert draw_training(replace(nothing, steps=whole), PLACES) == {}
    names = {track.name for drawing in draw_training(nothing, PLACES).values() for track in drawing.tracks}
    assert names >= {"steps"}
    assert "jobs" not in names


Interval = tuple[int, int]


intervals = st.lists(
    st.tuples(st.integers(-300, 300), st.integers(0, 60)).map(lambda pair: (pair[0], sum(pair))), max_size=25
)


def sample(slices: list[Interval]) -> pl.DataFrame:
    start, end = [one for one, _ in slices], [one for _, one in slices]
    return busy_percent(pl.Series(start, dtype=pl.Int64), pl.Series(end, dtype=pl.Int64))


def nice(length: int) -> int:
    """1, 2 or 5 times a power of ten, not below `length`."""
    lengths = [
        factor * power for power in (int(f"1{'0' * zeros}") for zeros in range(20)) for factor in (1, 2, 5)
    ]
    return min(one for one in lengths if one >= length)


def covered(slices: list[Interval], low: int, high: int) -> int:
    """How much of `[low, high)` lies in at least one slice."""
    total, reach = 0, low
    for start, end in sorted(slices):
        start, end = max(start, reach), min(end, high)
        if end > start:
            total, reach = total + end - start, end
    return total


def definition(slices: list[Interval]) -> list[tuple[int, float]]:
    first, last = min((one for one, _ in slices), default=0), max((one for _, one in slices), default=0)
    if last <= first:
        return []
    window = nice(-(-(last - first) // MOST_WINDOWS))
    at, samples = first // window * window, []
    while at < last:
        samples.append((at, float(np.round(100 * covered(slices, at, at + window) / window, 1))))
        at += window
    samples.append((at, 0.0))
    return [
        one
        for one, before in zip(samples, [None, *samples[:-1]], strict=True)
        if not before or one[1] != before[1]
    ]


@settings(max_examples=50, deadline=None)
@given(intervals, st.sampled_from([1, 3, 1_000, 999_983, 10**15]))
def test_samples_are_their_definition(slices: list[Interval], scale: int) -> None:
    slices = [(start * scale, end * scale) for start, end in slices]
    samples = sample(slices)
    assert (samples.schema, samples.rows()) == (SAMPLES, definition(slices))


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(-5, 5)), min_size=1, max_size=200),
    st.integers(4, 40),
)
def test_a_thinned_counter_keeps_the_borders_and_extremes_of_every_window(
    drawn: list[tuple[int, int]], most: int
) -> None:
    rows = sorted(drawn, key=lambda sample: sample[0])
    samples = pl.DataFrame(
        {"time_ns": [time for time, _ in rows], "value": [float(value) for _, value in rows]}, schema=SAMPLES
    )
    thinned = thin(samples, most=most).rows()
    if len(rows) <= most:
        assert thinned == samples.rows()
        return
    first = rows[0][0]
    width = (rows[-1][0] - first) // (most // 4) + 1
    windows: dict[int, list[tuple[int, float]]] = defaultdict(list)
    kept: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for found, of in ((windows, samples.rows()), (kept, thinned)):
        for time, value in of:
            found[(time - first) // width].append((time, value))
    assert kept.keys() == windows.keys()
    assert len(thinned) <= 4 * (most // 4 + 1)
    for window, of_window in windows.items():
        values = [value for _, value in of_window]
        assert {of_window[0], of_window[-1]} <= set(kept[window]) <= set(of_window)
        assert {min(values), max(values)} <= {value for _, value in kept[window]}
    assert [time for time, _ in thinned] == sorted(time for time, _ in thinned)

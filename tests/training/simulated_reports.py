"""Simulated reports with their truth: one report, and all reports of a run on true time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from nsys_pp.alignment.anchors import find_anchors
from nsys_pp.frames.conform import conform
from nsys_pp.frames.ids import pid
from nsys_pp.frames.report import Report
from nsys_pp.frames.training import JOBS, STEPS
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from nsys_pp.run.report_training import find_links
from nsys_pp.training.jobs import assign_steps
from nsys_pp.training.kernels import build_compute_segments, find_segments
from nsys_pp.training.launched import LaunchedOps
from nsys_pp.training.messages import find_messages
from nsys_pp.training.names import HALVES
from nsys_pp.training.waits import build_waits
from tests.training.expected_training import expected_jobs, expected_lane_states, expected_lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedReport:
    """A report, the launches and requests of its operations, and its true steps."""

    report: Report
    launches: pl.DataFrame
    requests: pl.DataFrame
    steps: pl.DataFrame  # STEPS
    jobs: pl.DataFrame  # JOBS: those whose name says that they send or receive


def read_truth(folder: Path) -> dict[str, pl.DataFrame]:
    """Read all tables of a run's truth."""
    return {path.stem: pl.read_parquet(path) for path in sorted((folder / "truth").glob("*.parquet"))}


def read_simulated_report(folder: Path, name: str, truth: dict[str, pl.DataFrame]) -> SimulatedReport:
    """Read one report of a simulated run with exact clocks."""
    report = build_report(read_report(folder / name, need=frozenset({"ranges", "ops", "communication"})))
    links = find_links(report)
    return SimulatedReport(
        report=report,
        launches=links.launches,
        requests=links.requests,
        steps=_steps(report, name, truth),
        jobs=build_message_jobs(report.ranges),
    )


def _steps(report: Report, name: str, truth: dict[str, pl.DataFrame]) -> pl.DataFrame:
    zero_ns = truth["clocks"].filter(report=name)["capture_utc_ns"].item()
    devices = report.devices.select("process_key", "device_id").with_columns(pid=pid(pl.col("process_key")))
    spans = truth["steps"].select("rank", "step", "start_ns", "end_ns")
    return (
        truth["processes"]
        .filter(report=name)
        .select("pid", "rank")
        .join(devices, on="pid")
        .join(spans, on="rank")
        .with_columns(
            pl.col("start_ns", "end_ns") - zero_ns,
            is_numbered=pl.lit(True),
            name=pl.format("step_{}", "step"),
            source=pl.lit("range"),
            reason=None,
            host_start_ns=pl.lit(None),
            host_end_ns=pl.lit(None),
            is_partial=pl.lit(False),
        )
        .sort("process_key", "device_id", "start_ns")
        .pipe(conform, STEPS)
    )


def build_message_jobs(ranges: pl.DataFrame) -> pl.DataFrame:
    """Build jobs from the ranges that send and receive, by the simulator's names."""
    name = pl.col("name").cast(pl.String)
    plain = r"(?i)^(send|recv)_(forward|backward)_(\d+)(?:_chunk_(\d+))?$"
    torch = r"^PP:(\d+)(SEND|RECV)_([FB])(\d+)$"
    dotted = r"(?i)(send|recv)_(forward|backward)(?:\.(\d+)\.(\d+)\.0)?$"
    both = r"(?i)(send|recv)_(forward|backward).*(send|recv)_(forward|backward)"
    verb = pl.coalesce(
        name.str.extract(plain, 1), name.str.extract(torch, 2), name.str.extract(dotted, 1)
    ).str.to_lowercase()
    direction = pl.coalesce(
        name.str.extract(plain, 2), name.str.extract(torch, 3), name.str.extract(dotted, 2)
    ).str.to_lowercase()
    is_both = name.str.contains(both) | (name.str.count_matches("SEND|RECV") > 1)
    kind = (
        pl.when(is_both)
        .then(pl.lit("send_receive"))
        .otherwise(verb.replace_strict({"send": "send", "recv": "receive"}, default=None))
    )
    empty = JOBS.to_frame()
    return (
        ranges.with_columns(
            kind=kind,
            direction=pl.when(~is_both).then(
                direction.replace_strict(
                    {"forward": "forward", "backward": "backward", "f": "forward", "b": "backward"},
                    default=None,
                )
            ),
            micro_batch=pl.coalesce(
                name.str.extract(plain, 3), name.str.extract(torch, 4), name.str.extract(dotted, 3)
            ).cast(pl.Int64),
            chunk=pl.coalesce(name.str.extract(plain, 4), name.str.extract(dotted, 4)).cast(pl.Int64),
            virtual_stage=name.str.extract(torch, 1).cast(pl.Int64),
            host_start_ns="start_ns",
            host_end_ns="end_ns",
        )
        .filter(pl.col("kind").is_not_null())
        .pipe(lambda frame: pl.concat([empty, frame.drop("start_ns", "end_ns")], how="diagonal_relaxed"))
        .pipe(conform, JOBS)
    )


def build_halves(jobs: pl.DataFrame) -> pl.DataFrame:
    """Build the directions of the halves of ranges that send and receive, by the simulator's names."""
    names = jobs.filter(kind="send_receive").select("name").unique()
    halves = {
        f"{half}_direction": pl.col("name")
        .cast(pl.String)
        .str.extract(f"(?i){verb}_(forward|backward)", 1)
        .str.to_lowercase()
        for half, verb in (("send", "send"), ("receive", "recv"))
    }
    empty = HALVES.to_frame()
    return conform(pl.concat([empty, names.with_columns(**halves)], how="diagonal_relaxed"), HALVES)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """All reports of a run with exact clocks: frames by lane, on true time."""

    folder: Path
    truth: dict[str, pl.DataFrame]
    lanes: pl.DataFrame  # LANES
    steps: pl.DataFrame  # RUN_STEPS
    messages: pl.DataFrame  # MESSAGES with `lane`
    compute_segments: pl.DataFrame  # COMPUTE_SEGMENTS with `lane`
    waits: pl.DataFrame  # WAITS with `lane`
    anchors: pl.DataFrame  # ANCHORS with `lane`
    data_jobs: pl.DataFrame  # lane, start_ns, end_ns of what loads data
    jobs: pl.DataFrame  # RUN_JOBS, as they truly are
    lane_states: pl.DataFrame  # LANE_STATES, as they truly are


_TIMES = {
    "messages": ("start_ns", "end_ns"),
    "compute_segments": ("start_ns", "end_ns"),
    "waits": ("start_ns", "end_ns", "need_start_ns", "need_end_ns"),
    "anchors": ("start_ns", "end_ns"),
    "steps": ("start_ns", "end_ns"),
    "data_jobs": ("start_ns", "end_ns"),
}


def read_simulated_run(folder: Path) -> SimulatedRun:
    """Read a simulated run, and find its messages and compute segments, on true time."""
    truth = read_truth(folder)
    lanes = expected_lanes(truth["processes"])
    parts: dict[str, list[pl.DataFrame]] = {name: [] for name in _TIMES}
    for name, zero_ns in truth["clocks"].select("report", "capture_utc_ns").iter_rows():
        known = read_simulated_report(folder, name, truth)
        for what, frame in _frames(known).items():
            placed = list_process_lanes(name, truth["processes"], lanes)
            moved = frame.with_columns(pl.col(_TIMES[what]) + zero_ns, pid=pid(pl.col("process_key")))
            parts[what].append(moved.join(placed, on="pid", maintain_order="left").drop("pid"))
    frames = {what: pl.concat(found) for what, found in parts.items()}
    of_rank = dict(lanes.select("rank", "lane").iter_rows())
    jobs = expected_jobs(truth["jobs"], of_rank)
    lane_states = expected_lane_states(truth["causes"], jobs, of_rank)
    return SimulatedRun(folder=folder, truth=truth, lanes=lanes, jobs=jobs, lane_states=lane_states, **frames)


def list_process_lanes(name: str, processes: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """List the pid and the lane of each process of a report."""
    return processes.filter(report=name).join(lanes, on="rank").select("pid", "lane")


def _frames(known: SimulatedReport) -> dict[str, pl.DataFrame]:
    report = known.report
    ops = LaunchedOps(gpu_ops=report.gpu_ops, api_calls=report.api_calls, launches=known.launches)
    data = report.ranges.filter(pl.col("name").cast(pl.String) == "next_batch")
    halves = build_halves(known.jobs)
    messages = find_messages(ops, requests=known.requests, jobs=known.jobs, halves=halves)
    segments = find_segments(ops, known.steps)
    return {
        "messages": assign_steps(messages, known.steps),
        "compute_segments": build_compute_segments(segments, ops.devices),
        "waits": build_waits(
            segments, ops, stream_calls=report.stream_calls, steps=known.steps, messages=messages
        ),
        "anchors": find_anchors(gpu_ops=report.gpu_ops, requests=known.requests, mpi_calls=report.mpi_calls),
        "steps": known.steps,
        "data_jobs": data,
    }

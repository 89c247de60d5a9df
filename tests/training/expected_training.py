"""Expected training of a simulated run, built from its truth; also input of charts, tables and outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from fixtures import options
from fixtures.program.schedule import chunks_of
from fixtures.recording.assignment import build_recordings
from fixtures.simulate import main, train
from fixtures.truth.tables import write_truth
from nsys_pp.alignment.anchors import find_anchors
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.ids import pid
from nsys_pp.frames.raw import SURVEY_GROUPS
from nsys_pp.frames.report import PROJECTIONS, Report
from nsys_pp.frames.training import (
    COVER,
    COVERAGE,
    IDEAL,
    JOBS,
    KERNEL_AGGREGATES,
    LANE_FRAMES,
    LANE_STATES,
    LANES,
    RUN_JOBS,
    RUN_STEPS,
    STEPS,
    TRANSFERS,
    Schedule,
    Training,
)
from nsys_pp.model import build_report
from nsys_pp.options import SCHEDULES
from nsys_pp.projection.launches import match_launches
from nsys_pp.projection.ranges import project_ranges
from nsys_pp.read import read_report
from nsys_pp.run.report import Links, find_links
from nsys_pp.training.jobs import THREADED_KINDS, assign_steps, build_jobs, widen_projections
from nsys_pp.training.kernels import build_compute_segments, find_segments
from nsys_pp.training.launched import LaunchedOps
from nsys_pp.training.messages import find_messages
from nsys_pp.training.names import Rules, choose_rules, name_jobs, name_steps, split_names
from nsys_pp.training.orders import order_jobs
from nsys_pp.training.steps import find_steps
from nsys_pp.training.waits import build_waits

PIPELINE = Path(__file__).parent.parent.parent / "fixtures" / "pipeline"


_KINDS = {"weight": "weight_gradient"}


def expected_training(folder: Path = PIPELINE, *, schedule: str = "1f1b") -> Training:
    """Return the training of the simulated reports in `folder`, from their truth; times are true UTC.

    Jobs are those of the compute stream (forwards, backwards, ...); their host times, which the truth
    does not hold, are their GPU times. Arrows are the messages of which both sides ran.
    """
    truth = {path.stem: pl.read_parquet(path) for path in sorted((folder / "truth").glob("*.parquet"))}
    lanes = expected_lanes(truth["processes"])
    of_rank = dict(lanes.select("rank", "lane").iter_rows())
    jobs = expected_jobs(truth["jobs"], of_rank)
    lane_states = expected_lane_states(truth["causes"], jobs, of_rank)
    steps = lane_states.group_by("lane", "step").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    transfers = expected_transfers(truth["messages"], of_rank)
    return Training(
        lanes=lanes,
        steps=conform(steps.with_columns(is_partial=pl.lit(False), source=pl.lit("range")), RUN_STEPS).sort(
            "step", "lane"
        ),
        batches=LANE_FRAMES["batches"].to_frame(),
        jobs=jobs,
        transfers=transfers,
        anchors=_list_anchors(transfers),
        lane_states=lane_states,
        cover=COVER.to_frame(),
        coverage=COVERAGE.to_frame(),
        gaps=LANE_FRAMES["gaps"].to_frame(),
        ideal=IDEAL.to_frame(),
        kernels=KERNEL_AGGREGATES.to_frame()
        .drop("process_key", "device_id")
        .with_columns(lane=pl.lit(0, pl.UInt32)),
        overheads=LANE_FRAMES["overheads"].to_frame(),
        schedule=Schedule(
            name=schedule,
            source="given",
            stage_count=lanes["stage"].n_unique(),
            micro_batch_count=jobs["micro_batch"].n_unique(),
            chunk_count=jobs["chunk"].n_unique(),
            agreement=1.0,
        ),
        preset="plain",
        zero_ns=int(truth["clocks"]["capture_utc_ns"].min()),  # type: ignore[arg-type]
    )


def _list_anchors(transfers: pl.DataFrame) -> pl.DataFrame:
    """List the kernels of messages, those of each link in a channel of their own."""
    sides = [
        transfers.select(
            pl.col(side).alias("lane"),
            channel=pl.format("{} {}", "sender", "receiver"),
            kind=pl.lit(verb),
            start_ns=f"{verb}_start_ns",
            end_ns=f"{verb}_end_ns",
        )
        for side, verb in (("sender", "send"), ("receiver", "receive"))
    ]
    absent = {name: pl.lit(None) for name in LANE_FRAMES["anchors"] if name not in sides[0].columns}
    return conform(pl.concat(sides).with_columns(**absent).sort("start_ns"), LANE_FRAMES["anchors"])


def expected_lanes(processes: pl.DataFrame) -> pl.DataFrame:
    ordered = processes.sort("stage", "replica", "tensor", "rank")
    reports = {name: number for number, name in enumerate(sorted(ordered["report"].unique()))}
    return conform(
        ordered.with_columns(
            lane=pl.int_range(pl.len()),
            report=pl.col("report").replace_strict(reports),
            process_key=pl.col("pid"),
            gpu=pl.format("GPU {}", "gpu"),
            stage_source=pl.lit("--layout"),
            stage_count=pl.lit(None),
            run_size=pl.lit(None),
            label=pl.format("rank {}", "rank"),
            clock=pl.col("report").replace_strict(reports),
            clock_group=pl.lit(0),
            bound_ns=pl.lit(0),
        ),
        LANES,
    )


def expected_jobs(jobs: pl.DataFrame, of_rank: dict[int, int]) -> pl.DataFrame:
    whole = jobs.filter(~pl.col("is_part")).with_columns(
        kind=pl.col("kind").replace(_KINDS), lane=pl.col("rank").replace_strict(of_rank)
    )
    parts = jobs.filter("is_part", kind="backward").select(
        "rank",
        "step",
        "start_ns",
        backward_micro_batch="micro_batch",
        backward_chunk="chunk",
    )
    # the parts of an overlapped job lie within it; its backward is the one that began last before its end
    both = whole.filter(kind="forward_backward").sort("start_ns")
    found = both.join_where(
        parts.rename({"rank": "part_rank", "step": "part_step", "start_ns": "part_ns"}),
        pl.col("rank") == pl.col("part_rank"),
        pl.col("part_ns") >= pl.col("start_ns"),
        pl.col("part_ns") < pl.col("end_ns"),
    ).select("rank", "start_ns", "backward_micro_batch", "backward_chunk")
    named = whole.join(found, on=["rank", "start_ns"], how="left").sort("lane", "start_ns")
    duration = pl.col("end_ns") - pl.col("start_ns")
    label = (
        pl.when(pl.col("backward_micro_batch").is_not_null())
        .then(pl.format("{}F+{}B", "micro_batch", "backward_micro_batch"))
        .otherwise(pl.col("micro_batch").cast(pl.String))
    )
    return conform(
        named.with_columns(
            job=pl.int_range(pl.len()),
            outer=pl.lit(None),
            direction=pl.lit(None),
            virtual_stage=pl.lit(None),
            backward_virtual_stage=pl.lit(None),
            is_inferred=pl.lit(False),
            confidence=pl.lit(None),
            phase=pl.lit(None),
            label=label,
            name=pl.format("{}_{}", "kind", "micro_batch"),
            role=pl.lit(None),
            range_id=pl.int_range(pl.len()),
            busy_ns=duration,
            compute_start_ns="start_ns",
            compute_end_ns="end_ns",
            compute_ns=duration,
            host_start_ns="start_ns",
            host_end_ns="end_ns",
            launch_delay_ns=pl.lit(0),
            op_count=pl.lit(1),
        ),
        RUN_JOBS,
    )


def expected_transfers(messages: pl.DataFrame, of_rank: dict[int, int]) -> pl.DataFrame:
    both = messages.drop_nulls(["send_start_ns", "receive_start_ns"])
    receive_wait = (pl.min_horizontal("send_start_ns", "receive_end_ns") - pl.col("receive_start_ns")).clip(0)
    send_wait = (pl.min_horizontal("receive_start_ns", "send_end_ns") - pl.col("send_start_ns")).clip(0)
    is_buffered = pl.col("send_end_ns") < pl.col("receive_start_ns")
    return conform(
        both.with_columns(
            sender=pl.col("sender").replace_strict(of_rank),
            receiver=pl.col("receiver").replace_strict(of_rank),
            direction="kind",
            size_bytes=pl.lit(None),
            send_wait_ns=pl.when(is_buffered).then(0).otherwise(send_wait),
            receive_wait_ns=receive_wait,
            transfer_ns=pl.col("receive_end_ns") - pl.col("receive_start_ns") - receive_wait,
            is_buffered=is_buffered,
            bound_ns=pl.lit(0),
            source=pl.lit("truth"),
            doubtful=pl.lit(None),
        ).sort("send_start_ns"),
        TRANSFERS,
    )


def expected_lane_states(causes: pl.DataFrame, jobs: pl.DataFrame, of_rank: dict[int, int]) -> pl.DataFrame:
    lane = pl.col("rank").replace_strict(of_rank, return_dtype=pl.UInt32)
    is_backward = pl.col("kind").is_in(["backward", "forward_backward"])
    is_forward = pl.col("kind").is_in(["forward", "forward_backward"])
    edges = jobs.group_by("lane", "step").agg(
        first_backward_ns=pl.col("start_ns").filter(is_backward).min(),
        last_forward_ns=pl.col("end_ns").filter(is_forward).max(),
    )
    located = (
        causes.with_columns(
            lane=lane,
            waits_for=pl.col("waits_for").replace_strict(of_rank, default=None, return_dtype=pl.UInt32),
            cause=pl.col("cause").replace({"optimizer": "compute"}),
        )
        .join(edges, on=["lane", "step"], how="left")
        .sort("lane", "start_ns")
    )
    position = (
        pl.when(pl.col("start_ns") < pl.col("first_backward_ns"))
        .then(pl.lit("warm-up"))
        .when(pl.col("start_ns") >= pl.col("last_forward_ns"))
        .then(pl.lit("cool-down"))
        .otherwise(pl.lit("steady"))
    )
    return conform(located.with_columns(position=position), LANE_STATES)


def measure_own_compute(training: Training) -> Training:
    """Subtract the time without compute on the lane from each job's compute: collectives inside jobs."""
    lanes = []
    for (lane,), jobs in training.jobs.partition_by("lane", as_dict=True).items():
        lane_states = training.lane_states.filter(lane=lane).sort("start_ns")
        edges = np.append(lane_states["start_ns"].to_numpy(), lane_states["end_ns"][-1])
        is_compute = (lane_states["cause"] == "compute").to_numpy()
        elapsed = np.concatenate([[0], np.cumsum(np.diff(edges) * is_compute)])
        ends = [
            np.interp(
                (jobs[column].to_numpy() - edges[0]).astype(float), (edges - edges[0]).astype(float), elapsed
            )
            for column in ("compute_start_ns", "compute_end_ns")
        ]
        lanes.append(jobs.with_columns(compute_ns=pl.Series((ends[1] - ends[0]).round().astype(np.int64))))
    return replace(training, jobs=pl.concat(lanes))


@cache
def simulate_training(text: str = "") -> Training:
    """Simulate a run of four stages of two replicas and return its truth.

    `text`: options of the simulator.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        schedule = simulate_truth(folder, f"--pp 4 --dp 2 --micro-batches 4 --layers 2 --steps 4 {text}")
        return measure_own_compute(expected_training(folder, schedule=schedule))


def simulate_truth(folder: Path, text: str) -> str:
    """Write the truth of a simulated run into `folder`, without reports; return its schedule."""
    chosen = options.build_parser().parse_args([str(folder), *text.split()])
    workers = train(options.build_training(chosen), seed=chosen.seed)
    recordings = build_recordings(
        workers,
        folder,
        site=options.build_site(chosen),
        errors=options.build_clock_errors(chosen),
        seed=chosen.seed,
    )
    write_truth(recordings, folder / "truth", is_brief=True)
    return str(chosen.schedule)


Row = tuple[int, str, int, int, int | None]  # lane, cause, start, end, whom it waits for


def build_small_training(rows: Sequence[Row], jobs: Sequence[tuple[int, str, int, int]] = ()) -> Training:
    """Build a training of one step from lane states, and jobs of (lane, kind, start, end)."""
    lane_states = pl.DataFrame(
        [
            {"lane": lane, "step": 0, "cause": cause, "start_ns": start, "end_ns": end, "waits_for": late}
            for lane, cause, start, end, late in rows
        ],
        schema=LANE_STATES,
    )
    steps = lane_states.group_by("lane", "step").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    lanes = pl.DataFrame(
        [{"lane": lane, "stage": lane} for lane in sorted({row[0] for row in rows})], schema=LANES
    )
    run = pl.DataFrame(
        [
            {"job": at, "lane": lane, "kind": kind, "compute_start_ns": start, "compute_end_ns": end}
            for at, (lane, kind, start, end) in enumerate(jobs)
        ],
        schema=RUN_JOBS,
    )
    return replace(
        simulate_training(),
        lanes=lanes,
        lane_states=lane_states,
        cover=COVER.to_frame(),
        coverage=COVERAGE.to_frame(),
        steps=conform(steps.with_columns(is_partial=pl.lit(False), source=pl.lit("range")), RUN_STEPS),
        jobs=run,
        zero_ns=0,
    )


def split_either(found: dict[str, int], true: dict[str, int]) -> dict[str, int]:
    """Give the unsplit time of a step to waits and transfers, as far as the truth has more of them.

    Args:
        found: Cause -> time.
        true: Likewise, without unsplit time.

    Returns:
        Cause -> time; what is left of the unsplit time is wrong.
    """
    split = dict(found)
    for need in ("message", "collective"):
        for cause in (f"{need}_wait", f"{need}_transfer"):
            given = min(split.get(need, 0), max(true.get(cause, 0) - split.get(cause, 0), 0))
            if given:
                split[cause], split[need] = split.get(cause, 0) + given, split[need] - given
    return split


SMALL = "--pp 2 --micro-batches 4 --layers 1 --steps 2 --brief-truth --jobs 1 --machines 1 --per machine"


APART = "--machines 2 --per rank"  # a report for each rank


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysedReport:
    """Jobs and steps of one report of a run; times are true UTC."""

    name: str
    report: Report
    rules: Rules
    jobs: pl.DataFrame  # JOBS with `rank`
    steps: pl.DataFrame  # STEPS with `rank`


def simulate_reports(folder: Path, arguments: str) -> Path:
    """Write a small run into `folder`."""
    main([str(folder), *SMALL.split(), *arguments.split()])
    return folder


def read_events(path: Path) -> Report:
    """Read ranges and operations of a report."""
    return build_report(read_report(path, need=SURVEY_GROUPS))


def analyse_report(
    report: Report, rules: Rules, *, step_rules: Rules | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return `JOBS` and `STEPS` of a report."""
    named, step_ranges = name_jobs(report.ranges, rules), name_steps(report.ranges, step_rules or rules)
    compute_ops = report.gpu_ops.filter(~pl.col("is_communication")).drop("op_id").with_row_index("op_id")
    ids = pl.concat([named["range_id"], step_ranges["range_id"]])
    threaded = named.filter(pl.col("kind").is_in(THREADED_KINDS))["range_id"]
    wanted = report.ranges.filter(pl.col("range_id").is_in(ids.implode()))
    wide = wanted.filter(pl.col("range_id").is_in(threaded.implode()))

    def project(ops: pl.DataFrame) -> pl.DataFrame:
        return widen_projections(
            project_ranges(wanted, report.api_calls, ops),
            project_ranges(wide, report.api_calls, ops, scope="process"),
        )

    launches = match_launches(report.api_calls, report.gpu_ops)
    ops = LaunchedOps(gpu_ops=report.gpu_ops, api_calls=report.api_calls, launches=launches)
    compute = project(compute_ops)
    jobs = build_jobs(named, projections=project(report.gpu_ops), compute=compute, ops=ops)
    steps = find_steps(step_ranges, compute=compute, jobs=jobs, ops=ops)
    return assign_steps(jobs, steps), steps


def analyse_reports(
    folder: Path, *, preset: str | None = None, with_steps: bool = True
) -> Iterator[AnalysedReport]:
    """Yield the analysis of each report of a run with exact clocks."""
    processes = pl.read_parquet(folder / "truth" / "processes.parquet")
    clocks = pl.read_parquet(folder / "truth" / "clocks.parquet")
    for name, zero_ns in clocks.select("report", "capture_utc_ns").sort("report").iter_rows():
        report = read_events(folder / name)
        rules = choose_rules(report.ranges, preset=preset)
        jobs, steps = analyse_report(report, rules, step_rules=None if with_steps else Rules())
        ranks = processes.filter(report=name).select("pid", "rank")
        times = [column for column in jobs.columns if column.endswith(("start_ns", "end_ns"))]
        yield AnalysedReport(
            name=name,
            report=report,
            rules=rules,
            jobs=_ranked(jobs.with_columns(pl.col(times) + zero_ns), ranks),
            steps=_ranked(steps.with_columns(pl.col("start_ns", "end_ns") + zero_ns), ranks),
        )


def _ranked(frame: pl.DataFrame, ranks: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pid=pid(pl.col("process_key"))).join(ranks, on="pid", maintain_order="left")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedReport:
    """A report, the causes of its operations, and its true steps."""

    report: Report
    links: Links
    steps: pl.DataFrame  # STEPS
    jobs: pl.DataFrame  # JOBS
    halves: pl.DataFrame  # HALVES


def read_truth(folder: Path) -> dict[str, pl.DataFrame]:
    """Read all tables of a run's truth."""
    return {path.stem: pl.read_parquet(path) for path in sorted((folder / "truth").glob("*.parquet"))}


def read_simulated_report(folder: Path, name: str, truth: dict[str, pl.DataFrame]) -> SimulatedReport:
    """Read one report of a simulated run with exact clocks."""
    report = build_report(read_report(folder / name, need=frozenset({"ranges", "ops", "communication"})))
    links = find_links(report)
    jobs, halves = name_message_jobs(report, links.launches)
    return SimulatedReport(
        report=report,
        links=links,
        steps=_steps(report, name, truth),
        jobs=jobs,
        halves=halves,
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
            first_op_ns=pl.col("start_ns").min().over("process_key", "device_id"),
            last_op_ns=pl.col("end_ns").max().over("process_key", "device_id"),
        )
        .sort("process_key", "device_id", "start_ns")
        .pipe(conform, STEPS)
    )


def name_message_jobs(
    report: Report, launches: pl.DataFrame, *, preset: str | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the jobs (`JOBS`, without times on a GPU) and the halves of their names (`HALVES`)."""
    rules = choose_rules(report.ranges, preset=preset)
    named = name_jobs(report.ranges, rules)
    nothing = PROJECTIONS.to_frame()
    ops = LaunchedOps(gpu_ops=report.gpu_ops, api_calls=report.api_calls, launches=launches)
    jobs = build_jobs(named, projections=nothing, compute=nothing, ops=ops)
    return jobs, split_names(named, rules)


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
    ops = LaunchedOps(gpu_ops=report.gpu_ops, api_calls=report.api_calls, launches=known.links.launches)
    data = report.ranges.filter(pl.col("name").cast(pl.String) == "next_batch")
    messages = find_messages(ops, requests=known.links.requests, jobs=known.jobs, halves=known.halves)
    segments, waited = find_segments(ops, known.steps), known.links.waited
    return {
        "messages": assign_steps(messages, known.steps),
        "compute_segments": build_compute_segments(segments, ops.devices),
        "waits": build_waits(
            segments,
            ops,
            stream_calls=report.stream_calls,
            steps=known.steps,
            messages=messages,
            waited=None if waited is None else (waited.certain.thread, waited.certain.call_row),
        ),
        "anchors": find_anchors(
            gpu_ops=report.gpu_ops, requests=known.links.requests, mpi_calls=report.mpi_calls
        ),
        "steps": known.steps,
        "data_jobs": data,
    }


IDS = ("micro_batch", "chunk", "backward_micro_batch", "backward_chunk")


_NO_LANE = ("process_key", "device_id")


JOBS_BY_LANE = build_schema(
    {"lane": pl.UInt32, **{name: dtype for name, dtype in JOBS.items() if name not in _NO_LANE}}
)


STEPS_BY_LANE = build_schema(
    {"lane": pl.UInt32, **{name: dtype for name, dtype in STEPS.items() if name not in _NO_LANE}}
)


RUNS = {  # schedule and chunks -> options
    "gpipe": "--schedule gpipe",
    "1f1b": "--schedule 1f1b --dp 2",
    "interleaved": "--schedule interleaved --chunks 2",
    "interleaved in 3": "--schedule interleaved --chunks 3",
    "zb-h1": "--schedule zb-h1 --tp 2",
    "dualpipev": "--schedule dualpipev --micro-batches 10",
}


@cache
def simulate_run(arguments: str) -> Training:
    """Return the truth of a simulated run of two steps; no report is written."""
    with TemporaryDirectory() as name:
        schedule = simulate_truth(Path(name), f"--layers 1 --steps 2 {arguments}")
        return expected_training(Path(name), schedule=schedule)


def build_unresolved_jobs(training: Training, *, hidden: Sequence[str] = ()) -> pl.DataFrame:
    """Return the jobs as `JOBS` by lane, with the hidden ids null."""
    jobs = training.jobs.with_columns(pl.lit(None).alias(name) for name in hidden)
    return fill_columns(jobs.with_columns(outer_id="outer"), JOBS_BY_LANE)


def fill_columns(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Return `frame` with the columns of `schema`, null where it lacks them."""
    absent = [pl.lit(None).alias(name) for name in schema if name not in frame.columns]
    return frame.with_columns(absent).select(pl.col(name).cast(dtype) for name, dtype in schema.items())


def build_scheduled_run(
    schedule: str, *, stages: int, micro_batches: int, chunks: int = 1, replicas: int = 1, steps: int = 2
) -> Training:
    """Build a run without a simulation: every lane runs its jobs of 900 ns, one every microsecond."""
    jobs_of_lanes: list[pl.DataFrame] = []
    lanes: list[dict[str, int]] = []
    for stage in range(stages):
        order = order_jobs(schedule, stage=stage, stages=stages, micro_batches=micro_batches, chunks=chunks)
        jobs_of_stage = order.select("kind", *IDS)
        for replica in range(replicas):
            lane = len(lanes)
            lanes.append({"lane": lane, "stage": stage, "replica": replica, "tensor": 0, "rank": lane})
            jobs_of_lanes += [
                jobs_of_stage.with_columns(
                    lane=lane, step=step, start_ns=1000 * pl.int_range(pl.len()) + step * 10**6
                )
                for step in range(steps)
            ]
    jobs = pl.concat(jobs_of_lanes).with_columns(
        job=pl.int_range(pl.len()),
        range_id=pl.int_range(pl.len()),
        end_ns=pl.col("start_ns") + 900,
        compute_start_ns="start_ns",
        compute_end_ns=pl.col("start_ns") + 900,
        compute_ns=900,
        is_inferred=False,
    )
    spans = jobs.group_by("lane", "step").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    return replace(
        expected_training(),
        lanes=fill_columns(pl.DataFrame(lanes), LANES),
        steps=fill_columns(
            spans.with_columns(is_partial=False, source=pl.lit("range")).sort("step", "lane"), RUN_STEPS
        ),
        jobs=fill_columns(jobs, RUN_JOBS),
        transfers=TRANSFERS.to_frame(),
        lane_states=LANE_STATES.to_frame(),
        cover=COVER.to_frame(),
        coverage=COVERAGE.to_frame(),
        schedule=Schedule(
            name=schedule,
            source="given",
            stage_count=stages,
            micro_batch_count=micro_batches,
            chunk_count=chunks,
            agreement=1.0,
        ),
    )


def list_alternatives(
    schedule: str, *, stages: int, micro_batches: int, chunks: int
) -> list[tuple[str, int, int]]:
    """List the other schedules, with micro-batches and chunks, that have all kinds of jobs in this order."""

    def list_kinds(name: str, number: int, parts: int) -> list[list[str]]:
        orders = [
            order_jobs(name, stage=stage, stages=stages, micro_batches=number, chunks=parts)
            for stage in range(stages)
        ]
        return [order["kind"].to_list() for order in orders]

    kinds = list_kinds(schedule, micro_batches, chunks)
    total = micro_batches * chunks
    others = [
        (name, total // parts, parts)
        for name in SCHEDULES
        for parts in range(1, total + 1)
        if total % parts == 0 and chunks_of(name, parts) == parts and total // parts >= stages
    ]
    return [
        other
        for other in others
        if other != (schedule, micro_batches, chunks)
        and (other[0] != "dualpipev" or other[1] >= 2 * stages)
        and (other[0] != "interleaved" or other[2] > 1)
        and list_kinds(*other) == kinds
    ]

"""Expected training of a simulated run, built from its truth; also input of charts, tables and outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
from polars.selectors import ends_with

from fixtures import options
from fixtures.program.schedule import chunks_of
from fixtures.recording.assignment import build_recordings
from fixtures.simulate import main, train
from fixtures.truth.tables import write_truth
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.ids import pid
from nsys_pp.frames.part import Part, PartOptions
from nsys_pp.frames.raw import SURVEY_GROUPS
from nsys_pp.frames.report import Report
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
from nsys_pp.read import read_report
from nsys_pp.run.report import survey_report
from nsys_pp.training.orders import order_jobs

PIPELINE = Path(__file__).parent.parent.parent / "fixtures" / "pipeline"


_KINDS = {"weight": "weight_gradient"}


def expected_training(folder: Path = PIPELINE, *, schedule: str = "1f1b") -> Training:
    """Return the training of the simulated reports in `folder`, from their truth; times are true UTC.

    Jobs are those of the compute stream (forwards, backwards, ...); their host times, which the truth
    does not hold, are their GPU times. Arrows are the messages of which both sides ran.
    """
    truth = read_truth(folder)
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


def leave_out_events(training: Training) -> Training:
    """Leave out all that happened."""
    names = ("steps", "jobs", "transfers", "lane_states", "ideal", "kernels")
    return replace(training, **{name: getattr(training, name).clear() for name in names})


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
            label=pl.when(pl.col("backward_micro_batch").is_not_null())
            .then(pl.format("{}F+{}B", "micro_batch", "backward_micro_batch"))
            .otherwise(pl.col("micro_batch").cast(pl.String)),
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
    edges = jobs.group_by("lane", "step").agg(
        first_backward_ns=pl.col("start_ns").filter(is_backward).min(),
        last_forward_ns=pl.col("end_ns").filter(pl.col("kind").is_in(["forward", "forward_backward"])).max(),
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
    recordings = build_recordings(
        train(options.build_training(chosen), seed=chosen.seed),
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
    return replace(
        simulate_training(),
        lanes=lanes,
        lane_states=lane_states,
        cover=COVER.to_frame(),
        coverage=COVERAGE.to_frame(),
        steps=conform(steps.with_columns(is_partial=pl.lit(False), source=pl.lit("range")), RUN_STEPS),
        jobs=pl.DataFrame(
            [
                {"job": at, "lane": lane, "kind": kind, "compute_start_ns": start, "compute_end_ns": end}
                for at, (lane, kind, start, end) in enumerate(jobs)
            ],
            schema=RUN_JOBS,
        ),
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


def simulate_reports(folder: Path, arguments: str) -> Path:
    main([str(folder), *SMALL.split(), *arguments.split()])
    return folder


def read_events(path: Path) -> Report:
    return build_report(read_report(path, need=SURVEY_GROUPS))


def survey(path: Path, *, preset: str | None = None) -> Part:
    """Find the training of a report, as commands do; times are those of the report."""
    return survey_report(path, PartOptions(preset=preset), nsys=None, with_training=True).part


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysedReport:
    """What is found in one report of a run with exact clocks; times are true UTC."""

    name: str
    preset: str
    frames: dict[str, pl.DataFrame]  # `REPORT_FRAMES` and anchors, with `lane` and, where it is free, `rank`


def analyse_reports(folder: Path, *, preset: str | None = None) -> Iterator[AnalysedReport]:
    """Yield what is found in each report of a run with exact clocks."""
    truth = read_truth(folder)
    lanes = expected_lanes(truth["processes"]).select("rank", "lane")
    for name, zero_ns in truth["clocks"].select("report", "capture_utc_ns").sort("report").iter_rows():
        part = survey(folder / name, preset=preset)
        processes = truth["processes"].filter(report=name).join(lanes, on="rank")
        frames = {}
        for what in ("jobs", "steps", "messages", "compute_segments", "waits", "anchors"):
            frame = part.frames[what].with_columns(pid=pid(pl.col("process_key")))
            own = processes.select("pid", "lane", *(["rank"] if "rank" not in frame.columns else []))
            times = ends_with("start_ns", "end_ns", "launch_ns", "op_ns")
            frames[what] = frame.with_columns(times + zero_ns).join(own, on="pid", maintain_order="left")
        yield AnalysedReport(name=name, preset=part.facts.preset, frames=frames)


def read_truth(folder: Path) -> dict[str, pl.DataFrame]:
    return {path.stem: pl.read_parquet(path) for path in sorted((folder / "truth").glob("*.parquet"))}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """All reports of a run with exact clocks: frames by lane, on true time."""

    truth: dict[str, pl.DataFrame]
    lanes: pl.DataFrame  # LANES
    steps: pl.DataFrame  # STEPS with `lane`
    messages: pl.DataFrame  # MESSAGES with `lane`
    compute_segments: pl.DataFrame  # COMPUTE_SEGMENTS with `lane`
    waits: pl.DataFrame  # WAITS with `lane`
    anchors: pl.DataFrame  # ANCHORS with `lane`
    data_jobs: pl.DataFrame  # lane, host_start_ns, host_end_ns of what loads data
    jobs: pl.DataFrame  # RUN_JOBS, as they truly are
    lane_states: pl.DataFrame  # LANE_STATES, as they truly are


def read_simulated_run(folder: Path) -> SimulatedRun:
    """Read a simulated run, and find its messages and compute segments, on true time."""
    truth = read_truth(folder)
    lanes = expected_lanes(truth["processes"])
    found = [one.frames for one in analyse_reports(folder)]
    frames = {what: pl.concat(frames[what] for frames in found) for what in found[0]}
    loading = frames.pop("jobs").filter(kind="data").select("lane", "host_start_ns", "host_end_ns").unique()
    of_rank = dict(lanes.select("rank", "lane").iter_rows())
    jobs = expected_jobs(truth["jobs"], of_rank)
    lane_states = expected_lane_states(truth["causes"], jobs, of_rank)
    return SimulatedRun(
        truth=truth, lanes=lanes, data_jobs=loading, jobs=jobs, lane_states=lane_states, **frames
    )


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

"""Jobs, their ids, intervals and steps, and the schedule, against the truth."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass

import polars as pl

from fixtures.plan_options import build_training
from fixtures.program.schedule import SCHEDULES, chunks_of
from tests.worlds.findings import Findings
from tests.worlds.truth import Truth

_KINDS = ("forward", "backward", "weight_gradient", "forward_backward")
_ROUNDING_NS = 2
_PROCESS = ["report", "pid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobScore:
    """Jobs with all operations recorded, and the schedule."""

    jobs: int
    missing: int  # without a job of the library that begins with it
    wrong_ids: int  # micro-batch or chunk
    unknown_ids: int
    extra: int  # jobs of the library that are none
    largest_error_ns: int  # of starts and ends of found jobs
    schedule: str  # "right", "wrong", "unknown", or "called uncertain" of a wrong one that is
    stages: int  # lanes with the right stage
    wrong_stages: int
    lanes: int


def score_jobs(findings: Findings, truth: Truth, options: Namespace) -> JobScore:
    """Compare jobs by process, kind and start."""
    true, found = list_true_jobs(truth), list_found_jobs(findings)
    matched = match_jobs(found, true)
    rows = matched.filter("is_recorded")
    ids = [("micro_batch", "true_micro_batch"), ("chunk", "true_chunk")]
    is_wrong = pl.any_horizontal(*((pl.col(a) != pl.col(b)).fill_null(False) for a, b in ids))
    is_unknown = pl.any_horizontal(pl.col(name).is_null() for name, _ in ids) & ~is_wrong
    errors = rows.select(
        start=(pl.col("start_ns") - pl.col("true_start_ns")).abs(),
        end=(pl.col("end_ns") - pl.col("true_end_ns")).abs(),
    )
    recorded = true.filter("is_recorded")
    stages = _compare_stages(findings, truth)
    return JobScore(
        jobs=len(recorded),
        missing=len(recorded.join(rows, on="true_job", how="anti")),
        wrong_ids=len(rows.filter(is_wrong)),
        unknown_ids=len(rows.filter(is_unknown)),
        extra=matched["true_job"].null_count(),
        largest_error_ns=max((value for value in errors.max().row(0) if value is not None), default=0),
        schedule=_compare_schedule(findings, options),
        stages=stages[0],
        wrong_stages=stages[1],
        lanes=len(findings.lanes),
    )


def list_true_jobs(truth: Truth) -> pl.DataFrame:
    """List the true jobs on the clocks of their reports; `true_job` numbers them."""
    processes = truth.table("processes").select("report", "rank", "pid")
    jobs = truth.table("jobs").filter(~pl.col("is_part")).join(processes, on=["report", "rank"])
    moved = truth.on_reports(jobs, "report", "start_ns", "end_ns").with_row_index("true_job")
    renamed = {name: f"true_{name}" for name in ("step", "micro_batch", "chunk", "end_ns")}
    return moved.rename(renamed).with_columns(
        pl.col("kind").replace("weight", "weight_gradient"), true_start_ns="start_ns"
    )


def list_found_jobs(findings: Findings) -> pl.DataFrame:
    """List the jobs of the library on the clocks of their reports."""
    schedule = findings.training.schedule
    has_one_chunk = schedule.name != "unknown" and schedule.chunk_count == 1
    chunk = pl.col("chunk").fill_null(0) if has_one_chunk else pl.col("chunk")
    jobs = findings.training.jobs.filter(
        pl.col("kind").cast(pl.String).is_in(_KINDS),
        pl.col("outer").is_null(),
        pl.col("compute_start_ns").is_not_null(),
    ).select(
        *("lane", "step", "micro_batch", chunk),
        kind=pl.col("kind").cast(pl.String),
        start_ns="compute_start_ns",
        end_ns="compute_end_ns",
    )
    return findings.on_reports(jobs, "lane", "start_ns", "end_ns")


def match_jobs(found: pl.DataFrame, true: pl.DataFrame) -> pl.DataFrame:
    """Add the true job of each job of the library; null without any."""
    columns = [
        *_PROCESS,
        "kind",
        "start_ns",
        "true_job",
        "is_recorded",
        "true_step",
        "true_micro_batch",
        "true_chunk",
        "true_start_ns",
        "true_end_ns",
    ]
    return found.sort("start_ns").join_asof(
        true.select(columns).sort("start_ns"),
        on="start_ns",
        by=[*_PROCESS, "kind"],
        strategy="nearest",
        tolerance=_ROUNDING_NS,
        check_sortedness=False,
    )


def _compare_stages(findings: Findings, truth: Truth) -> tuple[int, int]:
    """Count the lanes with the right stage, and with a wrong one."""
    true = truth.table("processes").select("report", "pid", true_stage="stage")
    lanes = findings.lanes.join(true, on=_PROCESS, how="left")
    is_right = (lanes["stage"] == lanes["true_stage"]).fill_null(False)
    return int(is_right.sum()), int((~is_right & lanes["stage"].is_not_null()).sum())


def _compare_schedule(findings: Findings, options: Namespace) -> str:
    """Compare the schedule with all schedules of the same order of jobs."""
    schedule = findings.training.schedule
    if schedule.name == "unknown":
        return "unknown"
    plan = build_training(options, 1)
    orders = {}
    for name, order in SCHEDULES.items():
        try:
            chunks = chunks_of(name, plan.chunks)
            orders[name] = [
                order(stage, plan.stages, plan.micro_batches, chunks) for stage in range(plan.stages)
            ]
        except ValueError:
            continue  # too few micro-batches for it
    if orders.get(schedule.name) == orders[plan.schedule]:
        return "right"
    return "called uncertain" if schedule.source == "uncertain" else "wrong"

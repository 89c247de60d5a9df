"""Intervals of the ranges of jobs on their GPUs, as `nsys-pp project` finds them, against the truth."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import polars as pl

import nsys_pp
from tests.worlds.truth import Truth

_ROUNDING_NS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeScore:
    """Ranges of jobs that are recorded with all their operations."""

    ranges: int
    missing: int  # without an interval
    wrong: int  # with another interval than that of the kernels launched for them


def score_ranges(truth: Truth) -> RangeScore:
    """Compare the projections of ranges of jobs, scope "auto", by process and start of the range."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        projected = nsys_pp.project([truth.folder]).ranges
    found = projected.select("report", "start_ns", "gpu_start_ns", "gpu_end_ns", pid="process_id")
    labels = {name: name.removesuffix(".sqlite") for name in truth.clocks}
    processes = truth.table("processes").select("report", "rank", "pid")
    jobs = (
        truth.table("jobs").filter("is_recorded", ~pl.col("is_part")).join(processes, on=["report", "rank"])
    )
    jobs = truth.on_reports(jobs, "report", "host_start_ns", "kernel_start_ns", "kernel_end_ns")
    key = ["report", "pid"]
    matched = (
        jobs.select(*key, "kernel_start_ns", "kernel_end_ns", start_ns="host_start_ns")
        .with_columns(label=pl.col("report").replace_strict(labels))
        .sort("start_ns")
        .join_asof(
            _whole_names(found, labels).sort("start_ns"),
            on="start_ns",
            by=key,
            strategy="nearest",
            tolerance=_ROUNDING_NS,
            check_sortedness=False,
        )
    )
    has_interval = pl.col("gpu_start_ns").is_not_null()
    errors = [(pl.col(f"gpu_{edge}_ns") - pl.col(f"kernel_{edge}_ns")).abs() for edge in ("start", "end")]
    is_wrong = pl.max_horizontal(errors) > _ROUNDING_NS
    return RangeScore(
        ranges=len(matched),
        missing=len(matched.filter(~has_interval)),
        wrong=len(matched.filter(has_interval & is_wrong)),
    )


def _whole_names(found: pl.DataFrame, labels: dict[str, str]) -> pl.DataFrame:
    """Replace the labels of reports, which may be the last part of their path, by their names."""
    names = {
        label: name
        for name, path in labels.items()
        for label in {path, *("/".join(path.split("/")[at:]) for at in range(path.count("/") + 1))}
    }
    return found.with_columns(
        pl.col("report").cast(pl.String).replace_strict(names, default=None, return_dtype=pl.String)
    )

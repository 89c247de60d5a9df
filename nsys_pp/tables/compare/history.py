"""History of baselines: length of steps, bubble and utilisation of each tagged run."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.frames.baseline import Baseline
from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import Column, Table, View, build_table_schema

_COLUMNS = (
    Column("number", pl.Int64, "number of the run among those with the name", heading="No."),
    Column("tagged_at", pl.String, "time of `baseline tag`, UTC", heading="Tagged (UTC)"),
    Column(
        "step_ns",
        pl.Float64,
        "median length of a step; null: unknown",
        heading="Step",
        display_unit="ms",
        decimals=3,
    ),
    Column(
        "step_change_fraction",
        pl.Float64,
        "relative change of it to the entry before with the name; null for the first",
        heading="Change",
        decimals=1,
        is_signed=True,
    ),
    Column(
        "bubble_fraction", pl.Float64, "median share of a step without compute", heading="Bubble", decimals=1
    ),
    Column(
        "compute_fraction",
        pl.Float64,
        "utilisation: median share of a step with kernels other than communication",
        heading="Compute",
        decimals=1,
    ),
    Column(
        "mfu_fraction",
        pl.Float64,
        "median model FLOPs utilisation; null: `tag` got neither `--model` nor `--flops-per-step`",
        heading="MFU",
        decimals=1,
    ),
    Column("step_count", pl.Int64, "complete steps"),
    Column("rank_count", pl.Int64, "GPU processes in the reports"),
    Column("gpus", pl.String, "names of the GPUs, with their number", heading="GPUs", priority=2),
    Column("made_by", pl.String, "version of nsys-pp", heading="nsys-pp", priority=1),
    Column("name", pl.String, "name of the baseline"),
)


def build_history(baselines: Sequence[Baseline]) -> pl.DataFrame:
    """Build the rows of `HISTORY_TABLE`, in the order of the baselines."""
    rows = [
        {
            "name": baseline.name,
            "number": baseline.number,
            "tagged_at": baseline.tagged_at,
            "step_ns": facts.step_ns,
            "bubble_fraction": facts.bubble_fraction,
            "compute_fraction": facts.compute_fraction,
            "mfu_fraction": facts.mfu_fraction,
            "step_count": len(facts.steps),
            "rank_count": facts.lane_count,
            "gpus": ", ".join(f"{count} x {name}" for name, count in sorted(facts.gpus.items())),
            "made_by": facts.made_by,
        }
        for baseline in baselines
        for facts in [baseline.sums.facts]
    ]
    schema = build_table_schema(_COLUMNS)
    known = {name: dtype for name, dtype in schema.items() if name != "step_change_fraction"}
    before = pl.col("step_ns").shift(1).over("name")
    return (
        pl.DataFrame(rows, schema=known)
        .with_columns(step_change_fraction=pl.when(before > 0).then(pl.col("step_ns") / before - 1))
        .pipe(conform, schema)
    )


def _shorten_times(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(
        pl.col("tagged_at").str.slice(0, 16).str.replace("T", " "),
    )


HISTORY_TABLE = Table(
    name="baselines",
    title="Baselines",
    columns=_COLUMNS,
    caption="medians over complete steps; change: to the run tagged before under the name; compute: utilisation of the GPUs, as"
    " a share of the step",
    build=build_history,
    empty="no baseline",
    view=View(columns=tuple(column.name for column in _COLUMNS), derive=_shorten_times),
)

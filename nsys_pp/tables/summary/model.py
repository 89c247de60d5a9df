"""The phases of training: what a step spends on data, forward, backward and the optimizer."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.frames.aggregates import ALL_JOBS, Summary
from nsys_pp.frames.training import JOB_KINDS
from nsys_pp.tables.summary.groups import add_groups, add_ranks, finish, over, share, sum_by
from nsys_pp.tables.summary.items import describe_items, item_columns
from nsys_pp.tables.summary.table import COLUMNS_OF_GROUP, Columns, SummaryTable, TableOptions, says_of

_COLUMNS: Columns = {
    **item_columns("of the time of steps on the CPU", "of the GPU time of steps"),
    "phase": (pl.String, "what the step did"),
}
_STEP, _OUTSIDE = "step", "outside phases"
_INDENT = "  "
_ORDER = [*dict.fromkeys([_STEP, "data", *JOB_KINDS]), _OUTSIDE]


def _build(summary: Summary, options: TableOptions) -> pl.DataFrame:
    groups = COLUMNS_OF_GROUP[options.by]
    items = summary.frames["item_aggregates"].filter(pl.col("item") == "phase")
    is_step, on_gpu = pl.col("name") == _STEP, pl.col("measure") == "gpu"
    # What lies outside the steps is no part of them, nor is what ran on a GPU of the process that has none.
    keys = ["report", "process_key"]
    items = items.join(summary.places.select("place", *keys), on="place", maintain_order="left")
    has_steps, has_own = is_step.any().over(keys), (is_step & on_gpu).any().over("place")
    items = items.filter(~has_steps | (pl.col("step").is_not_null() & (has_own | ~on_gpu))).drop(keys)
    named = add_groups(items.with_columns(phase=pl.col("name").cast(pl.String)), summary, options)
    rows = describe_items(named, [*groups, "phase"])
    on_gpus = named.filter(pl.col("measure") == "gpu")
    rows = add_ranks(rows, on_gpus, summary, groups=groups, keys=["phase"], value="total")
    is_step = pl.col("phase") == _STEP
    # A step that is the whole capture and has no phases tells nothing.
    has_phases = over((~is_step).any(), groups)
    rows = rows.filter(has_phases | pl.col("host_total_ns").is_not_null())
    rows = pl.concat([rows.filter(pl.col("phase") != ALL_JOBS), _find_outside(rows, groups)], how="diagonal")
    for side in ("host", "gpu"):
        total = pl.col(f"{side}_total_ns")
        whole = over(total.filter(is_step).sum(), groups)
        rows = rows.with_columns(share(total, whole).alias(f"{side}_fraction"))
    order = pl.col("phase").replace_strict(_ORDER, range(len(_ORDER)), return_dtype=pl.Int64)
    name = pl.when(is_step).then("phase").otherwise(_INDENT + pl.col("phase"))
    return finish(
        rows.with_columns(name.alias("phase"), _order=order), _COLUMNS, groups=groups, before=["_order"]
    )


def _find_outside(rows: pl.DataFrame, groups: Sequence[str]) -> pl.DataFrame:
    """Return what phases leave of the steps, for each group that has both."""
    left = {
        f"{side}_total_ns": pl.col(f"{side}_total_ns").filter(pl.col("phase") == _STEP).first()
        - pl.col(f"{side}_total_ns").filter(pl.col("phase") == ALL_JOBS).sum()
        for side in ("host", "gpu")
    }
    has_phases = over((pl.col("phase") != _STEP).any(), groups)
    others = sum_by(rows.filter(has_phases), groups, **left).with_columns(phase=pl.lit(_OUTSIDE))
    return others.filter(pl.any_horizontal(pl.col(name).is_not_null() for name in left))


MODEL_TABLE = SummaryTable(
    title="Phases of training",
    columns=says_of(_COLUMNS),
    says=(
        "Times of phases on the CPU, and the durations of what they launched added up. A phase inside another one counts in"
        " both; outside phases: steps less all phases that lie inside no other. Phases outside of steps are left out."
    ),
    needs=("ranges",),
    totals=(),
    sort="",
    build=_build,
    is_fixed=True,
)

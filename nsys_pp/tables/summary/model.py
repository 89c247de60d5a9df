"""The phases of training: time of a step in data loading, forward, backward and optimizer."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.frames.aggregates import ALL_JOBS, Summary
from nsys_pp.frames.table import Column, Table
from nsys_pp.frames.training import JOB_KINDS
from nsys_pp.tables.summary.groups import add_groups, add_ranks, order_table, over, share, sum_by
from nsys_pp.tables.summary.items import describe_items, item_columns
from nsys_pp.tables.summary.table import COLUMNS_OF_GROUP, SHARED_COLUMNS, TableOptions

_COLUMNS = (
    *item_columns("share of the time of steps on the CPU", "share of the GPU time of steps"),
    Column("phase", pl.String, "phase of the step"),
)
_STEP, _OUTSIDE = "step", "outside phases"
_INDENT = "  "
_ORDER = [*dict.fromkeys([_STEP, "data", *JOB_KINDS]), _OUTSIDE]


def _build(summary: Summary, options: TableOptions) -> pl.DataFrame:
    groups = COLUMNS_OF_GROUP[options.by]
    items = summary.frames["item_aggregates"].filter(pl.col("item") == "phase")
    is_step, on_gpu = pl.col("name") == _STEP, pl.col("measure") == "gpu"
    # Phases outside the steps are left out, and so are those on a GPU of the process that has no steps.
    keys = ["report", "process_key"]
    items = items.join(summary.processes.select("process", *keys), on="process", maintain_order="left")
    has_steps, has_own = is_step.any().over(keys), (is_step & on_gpu).any().over("process")
    is_timed = (is_step & ~on_gpu).any().over(keys)
    items = items.with_columns(is_timed=is_timed, phase=pl.col("name").cast(pl.String))
    items = items.filter(~has_steps | (pl.col("step").is_not_null() & (has_own | ~on_gpu))).drop(keys)
    named = add_groups(items, summary, options)
    # Steps of a process may have no range on the CPU: its phases there are in no step of the other processes.
    are_timed = over(pl.col("is_timed").any(), groups)
    named = named.filter(on_gpu | pl.col("is_timed") | ~are_timed)
    rows = describe_items(named, [*groups, "phase"])
    on_gpus = named.filter(pl.col("measure") == "gpu")
    rows = add_ranks(rows, on_gpus, summary, groups=groups, keys=["phase"], value="total")
    is_step = pl.col("phase") == _STEP
    # Without phases, a step that covers the whole capture holds no information.
    has_phases = over((~is_step).any(), groups)
    rows = rows.filter(has_phases | pl.col("host_total_ns").is_not_null())
    rows = pl.concat([rows.filter(pl.col("phase") != ALL_JOBS), _find_outside(rows, groups)], how="diagonal")
    for side in ("host", "gpu"):
        total = pl.col(f"{side}_total_ns")
        whole = over(total.filter(is_step).sum(), groups)
        rows = rows.with_columns(share(total, whole).alias(f"{side}_fraction"))
    order = pl.col("phase").replace_strict(_ORDER, range(len(_ORDER)), return_dtype=pl.Int64)
    name = pl.when(is_step).then("phase").otherwise(_INDENT + pl.col("phase"))
    return order_table(
        rows.with_columns(name.alias("phase"), _order=order), _COLUMNS, groups=groups, before=["_order"]
    )


def _find_outside(rows: pl.DataFrame, groups: Sequence[str]) -> pl.DataFrame:
    """Return the time of steps outside of phases, for each group that has both."""
    left = {
        f"{side}_total_ns": pl.col(f"{side}_total_ns").filter(pl.col("phase") == _STEP).first()
        - pl.col(f"{side}_total_ns").filter(pl.col("phase") == ALL_JOBS).sum()
        for side in ("host", "gpu")
    }
    has_phases = over((pl.col("phase") != _STEP).any(), groups)
    others = sum_by(rows.filter(has_phases), groups, **left).with_columns(phase=pl.lit(_OUTSIDE))
    return others.filter(pl.any_horizontal(pl.col(name).is_not_null() for name in left))


MODEL_TABLE = Table(
    name="model",
    title="Phases of training",
    columns=_COLUMNS,
    extra_columns=SHARED_COLUMNS,
    caption=(
        "Times of phases on the CPU, and durations of the operations that they launched, summed. A phase inside another"
        " counts in both; outside phases: steps less all outermost phases. Phases outside of steps are left out."
    ),
    needs=("ranges",),
    is_fixed=True,
    is_nested=True,
    build=_build,
)

"""Schedule of a run, with its ideal and its measured bubble."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import Column, Table, View, build_table_schema
from nsys_pp.frames.training import Schedule, Training
from nsys_pp.tables.training.lane_steps import select_whole_steps
from nsys_pp.tables.training.step_table import build_step_table

_COLUMNS = (
    Column("name", pl.String, "name of the schedule, or unknown", heading="Schedule"),
    Column("source", pl.String, "given, recognised, or uncertain: much compute belongs to no job"),
    Column(
        "agreement_fraction",
        pl.Float64,
        "share of the jobs whose position agrees with the schedule",
        heading="Agree",
        priority=4,
        decimals=1,
    ),
    Column(
        "unexplained_fraction",
        pl.Float64,
        "share of the compute between jobs that belongs to no job",
        heading="Unexplained",
        decimals=1,
    ),
    Column("stage_count", pl.Int64, "stages; null: unknown", priority=3),
    Column("micro_batch_count", pl.Int64, "micro-batches of a step; null: unknown", priority=3),
    Column("chunk_count", pl.Int64, "parts of the model on each stage", priority=2),
    Column(
        "formula", pl.String, "ideal bubble if all jobs of a kind are equally long and messages take no time"
    ),
    Column(
        "formula_bubble_fraction",
        pl.Float64,
        "value of the formula; null if no formula is exact",
        heading="Formula",
        decimals=1,
        note="formula: all jobs of a kind equally long",
    ),
    Column(
        "ideal_bubble_fraction",
        pl.Float64,
        "bubble with the recorded lengths of jobs; median of the complete steps, null: unknown",
        heading="Ideal",
        decimals=1,
        note="ideal: the same jobs without gaps between them",
    ),
    Column(
        "bubble_fraction",
        pl.Float64,
        "measured bubble, with optimizer and collectives; median of the complete steps",
        decimals=1,
    ),
    Column("sentence", pl.String, "description of the schedule, or the reason why it is unknown"),
    Column("preset", pl.String, "naming rules that recognise jobs; null if none fits", priority=2),
)
_SENTENCES = {
    "gpipe": "All forwards of a step, then all backwards.",
    "1f1b": "After the warm-up, each stage alternates one forward and one backward.",
    "interleaved": "1F1B in which each stage holds several chunks of the model, which shortens warm-up and cool-down.",
    "zb-h1": "1F1B with split backwards: weight gradients fill what would be bubble.",
    "dualpipev": "Each stage holds two chunks, from both ends of the model, and runs forwards and backwards of both at once.",
}
_FORMULAS = {"gpipe": "(p - 1) / (m + p - 1)", "1f1b": "(p - 1) / (m + p - 1)"}
_INTERLEAVED = "(p - 1) / (v * m + p - 1)"


def ideal_bubble_fraction(schedule: Schedule) -> tuple[str, float] | None:
    """Return the formula of a schedule's ideal bubble, and its value; None if no formula is exact.

    The ideal bubble is the share of the span without compute, with p stages, m micro-batches and v chunks, if all
    stages take equally long. GPipe: Huang et al., "GPipe", 2019, section 2.3; 1F1B and interleaved: Narayanan et al.,
    "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", 2021, section 2.2,
    who divide by the ideal time, m, instead of the span, m + p - 1. Schedules that split or overlap backwards
    have no such formula: their bubble depends on the lengths of the parts.

    >>> schedule = dict(source="given", stage_count=4, micro_batch_count=8, chunk_count=2, agreement=1.0)
    >>> ideal_bubble_fraction(Schedule(name="1f1b", **schedule))
    ('(p - 1) / (m + p - 1)', 0.2727272727272727)
    >>> ideal_bubble_fraction(Schedule(name="zb-h1", **schedule))
    """
    stages, batches = schedule.stage_count, schedule.micro_batch_count
    if not stages or not batches:
        return None
    if schedule.name in _FORMULAS:
        return _FORMULAS[schedule.name], (stages - 1) / (batches + stages - 1)
    if schedule.name == "interleaved" and schedule.chunk_count:
        return _INTERLEAVED, (stages - 1) / (schedule.chunk_count * batches + stages - 1)
    return None


def build_schedule_table(training: Training) -> pl.DataFrame:
    """Build the one row of `SCHEDULE_TABLE`."""
    schedule = training.schedule
    closed = (None if schedule.source == "uncertain" else ideal_bubble_fraction(schedule)) or (None, None)
    whole = select_whole_steps(training).select("lane", "step")
    steps = training.steps.join(whole, on=["lane", "step"], how="semi", maintain_order="left")
    complete = build_step_table(replace(training, steps=steps))
    row = {
        "name": schedule.name,
        "source": schedule.source or None,
        "agreement_fraction": schedule.agreement if schedule.source else None,
        "unexplained_fraction": schedule.unexplained,
        "stage_count": schedule.stage_count or None,
        "micro_batch_count": schedule.micro_batch_count or None,
        "chunk_count": schedule.chunk_count or None,
        "formula": closed[0],
        "formula_bubble_fraction": closed[1],
        "ideal_bubble_fraction": complete["ideal_bubble_fraction"].median(),
        "bubble_fraction": complete["bubble_fraction"].median(),
        "preset": training.preset or None,
        "sentence": _SENTENCES.get(schedule.name, schedule.reason or None),
    }
    return pl.DataFrame([row], schema=build_table_schema(_COLUMNS)).pipe(
        conform, build_table_schema(_COLUMNS)
    )


def _list_reasons(table: pl.DataFrame) -> list[str]:
    """List the reason for an unknown or uncertain schedule."""
    unknown = table.filter(pl.col("source").is_null())["sentence"].drop_nulls()
    uncertain = table.filter(source="uncertain")["unexplained_fraction"]
    return [
        *(f"unknown: {reason}" for reason in unknown),
        *(f"uncertain: {share:.0%} of the compute between jobs belongs to no job" for share in uncertain),
    ]


def _hide_small_shares(table: pl.DataFrame) -> pl.DataFrame:
    """Remove the share of unexplained compute of certain schedules."""
    return table.with_columns(pl.when(source="uncertain").then("unexplained_fraction"))


SCHEDULE_TABLE = Table(
    name="schedule",
    title="Schedule",
    columns=_COLUMNS,
    caption="bubble: as measured",
    build=build_schedule_table,
    view=View(
        columns=(
            *("name", "preset", "stage_count", "micro_batch_count", "chunk_count", "agreement_fraction"),
            "unexplained_fraction",
            *("bubble_fraction", "ideal_bubble_fraction", "formula_bubble_fraction", "formula"),
        ),
        derive=_hide_small_shares,
        notes=_list_reasons,
    ),
)

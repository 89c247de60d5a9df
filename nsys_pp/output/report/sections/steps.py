"""Steps over time by rank: a heat map, on a canvas."""

from __future__ import annotations

from typing import Any

import polars as pl

from nsys_pp.output.chart.page import embed_json, pack_table, round_exact
from nsys_pp.output.colors import color_of, to_hex
from nsys_pp.output.report.fragments import pack_text
from nsys_pp.output.report.section import Drawn, Section
from nsys_pp.output.report.source import PageSource, name_rows

_PARTS_PER_UNIT = 1_000_000  # of a fraction, in the page's data
_TIMES = ("span_ns", "compute_ns", "bubble_ns", "wait_ns", "late_ns")
_METRICS = (  # column, title, color, meaning
    (
        "excess_fraction",
        "own time against the peers",
        "send",
        "own compute per micro-batch, waiting not counted, relative to the median of the other ranks of the stage (of all"
        " other ranks where a stage has one)",
    ),
    ("compute_ns", "compute", "forward", "time of kernels other than communication"),
    ("bubble_fraction", "bubble", "bubble", "share of the step without compute"),
    (
        "wait_ns",
        "communication",
        "message_wait",
        "bubble for messages and collectives: waiting and transfers",
    ),
    (
        "late_ns",
        "late launches and data",
        "data",
        "bubble for late launches of the host, and loading of data",
    ),
    ("span_ns", "step length", "step", "length of the rank's step"),
)
_METRIC_OF = {  # kind of finding -> value that shows it
    "straggler": "excess_fraction",
    "host": "late_ns",
    "idle": "late_ns",
    "link": "wait_ns",
    "communication": "wait_ns",
    "step": "span_ns",
}
_CANVAS = (
    '<div class="heat"><div class="controls" role="group" aria-label="Heat map"><label>Show <select id="heat-metric"></select></label>'
    '<label>Order <select id="heat-order"><option value="stage">by stage and rank</option>'
    '<option value="value">by largest value</option></select></label><span id="heat-scale"></span></div>'
    '<p id="heat-meaning" class="muted"></p>'
    '<div id="heat-holder"><canvas id="heat" tabindex="0" role="img" aria-describedby="heat-meaning"></canvas></div>'
    '<p id="heat-read" role="status" aria-live="polite">Point at a cell, or use the arrow keys; Enter or a click keeps it, Escape leaves'
    ' it.</p><p id="heat-place"></p></div>'
)


def _draw(source: PageSource) -> Drawn:
    frame = source.rank_steps
    if frame.is_empty():
        return Drawn(absent="No step was found: no kernel ran in one.")
    if len(frame) == 1:
        return Drawn(
            absent="One rank and one step: nothing develops over time. Steps come from ranges, jobs, or launches that repeat;"
            " `nsys_pp.capture` marks them in a program."
        )
    return Drawn(html=_CANVAS, data={"packed": pack_text(embed_json(describe_heat_map(source)))})


def describe_heat_map(source: PageSource) -> dict[str, Any]:
    """Describe the data of the heat map: a dense grid, by lane and step, in which null is an absent step."""
    frame, lanes = source.rank_steps, source.training.lanes
    steps = frame.select("step", "last_step").unique().sort("step")
    grid = (
        lanes.select("lane")
        .join(steps.select("step"), how="cross")
        .join(frame, on=["lane", "step"], how="left", maintain_order="left")
    )
    metrics = [metric for metric in _METRICS if _has_values(frame, metric[0])]
    columns = grid.select(
        *(round_exact(grid[name]) for name in _TIMES),
        pl.col("start_ns").cast(pl.Float64),
        (pl.col("excess_fraction") * _PARTS_PER_UNIT).round().cast(pl.Int64),
        "is_complete",
        length_ns=(pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64),
    )
    return {
        "lanes": lanes.select("label", "stage", "machine").to_dicts(),
        "rows": name_rows(lanes),
        "steps": steps.rows(),
        "lengths": _list_lengths(source, steps),
        "grid": pack_table(columns.to_dict()),
        "metrics": [
            {"name": name, "title": title, "color": to_hex(color_of(color)), "meaning": meaning}
            for name, title, color, meaning in metrics
        ],
        "first": _choose_metric(source, [name for name, *_ in metrics]),
        "cool": to_hex(color_of("forward")),
        "named": [
            {"lane": finding.lane, "since": finding.since_step, "step": finding.step}
            for finding in source.verdict.findings
            if finding.lane is not None
        ],
        "shown": {shown.role: shown.step for shown in source.steps},
        "traceLinks": None
        if source.trace_links is None
        else {
            "isLink": source.trace_links.is_link,
            "parts": [source.trace_links.head, source.trace_links.middle, source.trace_links.tail],
        },
    }


def _list_lengths(source: PageSource, steps: pl.DataFrame) -> list[float | None]:
    """List the length of each step, or the mean of each block of steps; None for steps that the capture cuts."""
    lengths: list[float | None] = (
        steps.join_where(
            source.step_lengths.rename({"step": "number"}),
            pl.col("number") >= pl.col("step"),
            pl.col("number") <= pl.col("last_step"),
        )
        .group_by("step")
        .agg(pl.col("span_ns").mean())
        .join(steps, on="step", how="right")
        .sort("step")["span_ns"]
        .to_list()
    )
    return lengths


def _has_values(frame: pl.DataFrame, name: str) -> bool:
    """Return whether a value can be shown: it is known, and of parts of the bubble there are any."""
    if name == "bubble_fraction":
        return True
    values = frame[name].drop_nulls()
    return bool(len(values)) and (
        name in ("span_ns", "compute_ns", "excess_fraction") or bool((values != 0).any())
    )


def _choose_metric(source: PageSource, names: list[str]) -> str:
    """Choose the value that is shown first: the one of the first finding."""
    wanted = [_METRIC_OF[finding.kind] for finding in source.verdict.findings if finding.kind in _METRIC_OF]
    return next((name for name in wanted if name in names), names[0])


SECTION = Section(
    name="steps",
    title="Steps over time, by rank",
    lead="Which rank, and since when: a row per rank, a column per step. The bars on top are the lengths of the steps.",
    kinds=("straggler", "host", "profiler", "gpu_clock", "step", "none"),
    tables=("steps", "lanes", "kinds", "iterations"),
    draw=_draw,
)

"""Changes as bars: of ranks, links, stages and kernels; and the causes of the bubble in both runs."""

from __future__ import annotations

from typing import Any

import polars as pl

from nsys_pp.frames.training import BUBBLE_CAUSES
from nsys_pp.output.compare_page.source import ComparisonSource
from nsys_pp.output.report.bars import Bar, Piece, draw_bars
from nsys_pp.units import format_duration

_MOST_ROWS = 24
_LEAST_SCALE = 0.1
_CHANGED = ("slower", "faster", "unknown")


def draw_ranks(source: ComparisonSource) -> str:
    """Draw the changes of ranks, those beyond noise first."""
    return _draw_members(source, "ranks", "rank")


def draw_links(source: ComparisonSource) -> str:
    """Draw the changes of links, those beyond noise first."""
    return _draw_members(source, "links", "link")


def draw_stages(source: ComparisonSource) -> str:
    """Draw the changes of the compute of stages, and of jobs by kind."""
    stages = source.tables["stages"].frame.filter(pl.col("unit") == "ns", pl.col("subject") == "compute")
    kinds = source.tables["kinds"].frame.filter(pl.col("stage").is_null())
    return _draw_changes(stages, "Compute of the jobs of a stage, per rank") + _draw_changes(
        kinds, "Compute of a job, mean, by kind"
    )


def draw_bubbles(source: ComparisonSource) -> str:
    """Draw a step of both runs by causes."""
    bars, used = [], set()
    for letter, samples in zip("AB", source.samples, strict=True):
        times = samples["bubbles"].filter(pl.col("unit") == "ns", pl.col("metric") == "per lane")
        medians = dict(times.group_by("subject").agg(pl.col("value").median()).iter_rows())
        spans = samples["bubbles"].filter(pl.col("unit") == "fraction", pl.col("subject") == "bubble")
        share = spans["value"].median()
        if not medians or not isinstance(share, float):
            continue
        bubble = medians.get("bubble", 0.0)
        compute = bubble * (1 - share) / share if share > 0 else 0.0
        parts = {"compute": compute, **{cause: medians.get(cause, 0.0) for cause in BUBBLE_CAUSES}}
        used |= {name for name, value in parts.items() if value}
        pieces = tuple(
            Piece(key=name, value=value, text=f"{name.replace('_', ' ')} {format_duration(round(value))}")
            for name, value in parts.items()
            if value
        )
        text = f"bubble {format_duration(round(bubble))} ({share:.1%})".replace("%", " %")
        bars.append(Bar(label=letter, pieces=pieces, text=text))
    legend = {name: name.replace("_", " ") for name in ("compute", *BUBBLE_CAUSES) if name in used}
    return draw_bars(bars, caption="A step on a rank, by cause: medians of all complete steps", legend=legend)


def draw_kernels(source: ComparisonSource) -> str:
    """Draw the families of kernels whose total differs most."""
    families = source.tables["families"].frame.with_columns(
        size=pl.col("b").fill_null(0) - pl.col("a").fill_null(0)
    )
    rows = families.sort(pl.col("size").abs(), descending=True).head(_MOST_ROWS)
    bars = [
        Bar(
            label=row["subject"],
            pieces=(Piece(key=_key(row), value=row["size"], text=_describe_size(row)),),
            text=_describe_size(row),
            is_marked=row["verdict"] in ("slower", "faster", "new", "gone"),
        )
        for row in rows.iter_rows(named=True)
    ]
    least = float(families["a"].sum() or 0) * 0.01
    return draw_bars(bars, caption="B less A, per rank and step", least=least)


def _draw_members(source: ComparisonSource, name: str, noun: str) -> str:
    frame = source.tables[name].frame
    both = frame.drop_nulls("change_fraction")
    if both.is_empty():
        return ""
    changed = both.filter(pl.col("verdict").is_in(_CHANGED))
    shown = changed if len(changed) else both
    shown = shown.sort(pl.col("change_fraction").abs(), descending=True)
    folded = len(both) - len(changed)
    caption = "Changes beyond noise" if len(changed) else "No change beyond noise; the largest ones"
    if len(shown) > _MOST_ROWS:
        caption += f", the {_MOST_ROWS} largest of {len(shown):,}"
    caption += f"; {folded:,} of {len(both):,} {noun}s within noise"
    return _draw_changes(shown.head(_MOST_ROWS), caption)


def _draw_changes(rows: pl.DataFrame, caption: str) -> str:
    known = rows.drop_nulls("change_fraction")
    bars = [_draw_change(row) for row in known.iter_rows(named=True)]
    return draw_bars(bars, caption=caption, least=_LEAST_SCALE)


def _draw_change(row: dict[str, Any]) -> Bar:
    change, noise = row["change_fraction"], row["noise_fraction"]
    text = f"{round(change, 3) + 0.0:+.1%}"  # no "-0.0 %"
    text += " (noise unknown)" if noise is None else f" (noise {noise:.1%})"
    text = text.replace("%", " %")
    is_marked = row["verdict"] in ("slower", "faster")
    if is_marked:
        text += f", {row['verdict']}"
    if row["since_step"] is not None:
        text += f" since step {row['since_step']}"
    label = row["subject"]
    if label == "compute":
        label = f"stage {row['stage']}"
    return Bar(
        label=label, pieces=(Piece(key=_key(row), value=change, text=text),), text=text, is_marked=is_marked
    )


def _key(row: dict[str, Any]) -> str:
    """Return the key of the color of a change."""
    return {"slower": "bubble", "new": "bubble", "faster": "backward", "gone": "backward"}.get(
        row["verdict"], "compute"
    )


def _describe_size(row: dict[str, Any]) -> str:
    size = row["size"]
    sign = "+" if size > 0 else "-" if size < 0 else ""
    text = f"{sign}{format_duration(abs(round(size)))}"
    if row["change_fraction"] is not None:
        text += f" ({row['change_fraction']:+.1%})".replace("%", " %")
    return f"{text}, {row['verdict']}"

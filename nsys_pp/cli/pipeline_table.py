"""Tables of a pipeline as a person reads them: in milliseconds and percent, each with how it was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import click
import polars as pl
from rich.console import Console
from rich.text import Text

from nsys_pp.units import NS_PER_MS, NS_PER_US
from nsys_pp.write.tables.frames import print_table

_UNITS = {"ms": 1 / NS_PER_MS, "us": 1 / NS_PER_US, "%": 100.0, "GB/s": 1e-9}
_DECIMALS = {"ms": 3, "us": 1, "%": 1, "GB/s": 2}
_CAUSES = (
    *("message_wait_ns", "transfer_ns", "collective_wait_ns", "collective_ns"),
    *("copy_ns", "data_ns", "host_ns", "idle_ns"),
)
_MOST_CAUSES = 3
_LEAST_SHARE = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a terminal shows of a table.

    Attributes:
        columns: Heading -> column. The last word of a heading, or before " if ", is its unit. The last column
            gives way where a terminal is narrow.
        how: How its numbers were made, in one line.
        explains: Heading -> what is said of it after that, where the column is there.
        optional: Headings that are left out where they tell nothing apart.
        only: Column of booleans: rows without it are counted, not shown.
        reason: Column that says why something is unknown, where `source` does not say how it is known.
    """

    columns: Mapping[str, str]
    how: str
    explains: Mapping[str, str] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    only: str | None = None
    reason: str | None = None


_TIMES = {
    "span ms": "span_ns",
    "bubble ms": "bubble_ns",
    "bubble %": "bubble_fraction",
    "ideal ms": "ideal_bubble_ns",
    "to gain ms": "gain_ns",
    "compute ms": "compute_ns",
    "steps": "step_count",
    "lanes": "lane_count",
    "the bubble is": "causes",
}
# Of an ideal whose jobs take their medians, a step can be better.
_GAIN = {"to gain ms": "to gain: bubble beyond the ideal; negative: better than the ideal of its medians"}
VIEWS: Mapping[str, View] = {
    "schedule": View(
        columns={
            "schedule": "name",
            "preset": "preset",
            "stages": "stage_count",
            "micro-batches": "micro_batch_count",
            "chunks": "chunk_count",
            "agree %": "agreement_fraction",
            "bubble %": "bubble_fraction",
            "ideal %": "ideal_bubble_fraction",
            "formula %": "formula_bubble_fraction",
            "formula": "formula",
        },
        how="bubble: as measured",
        explains={
            "ideal %": "ideal: the same jobs with nothing in between",
            "formula %": "formula: all jobs of a kind alike",
        },
        reason="sentence",
    ),
    "steps": View(
        columns={
            "step": "step",
            "start ms": "start_ns",
            "span ms": "span_ns",
            "lanes": "lane_count",
            "compute %": "compute_fraction",
            "bubble %": "bubble_fraction",
            "ideal %": "ideal_bubble_fraction",
            "worst %": "worst_bubble_fraction",
            "slowest stage": "slowest_stage",
            "partial": "is_partial",
            "worst lane": "worst_lane",
        },
        how="bubble: time in the step without kernels that compute, over all lanes",
        explains={"ideal %": "ideal: the same jobs in the same order with nothing in between"},
        optional=("partial",),
    ),
    "stages": View(
        columns={"stage": "stage", **_TIMES},
        how="of a complete step, mean over steps and lanes; what the bubble is: shares of it by cause",
        explains=_GAIN,
    ),
    "lanes": View(
        columns={"lane": "label", "stage": "stage", **_TIMES},
        how="of a complete step, mean over steps; what the bubble is: shares of it by cause",
        explains=_GAIN,
        optional=("lanes",),
    ),
    "kinds": View(
        columns={
            "stage": "stage",
            "chunk": "chunk",
            "jobs": "job_count",
            "median ms": "median_ns",
            "min ms": "min_ns",
            "max ms": "max_ns",
            "busy %": "busy_fraction",
            "with messages ms": "median_hull_ns",
            "launch delay us": "median_launch_delay_ns",
            "kind": "kind",
        },
        how="of one job, from its first to its last kernel that is not communication; jobs of complete steps",
        optional=("chunk",),
    ),
    "stragglers": View(
        columns={
            "what": "what",
            "takes ms": "value_ns",
            "others ms": "usual_ns",
            "longer %": "excess_fraction",
            "noise %": "noise_fraction",
            "clock error us": "bound_ns",
            "samples": "sample_count",
            "which": "label",
        },
        how="own compute per micro-batch, or transfer of a message, against the median of its likes:"
        " waiting for others makes nobody slow",
        only="is_slow",
    ),
    "links": View(
        columns={
            "messages": "message_count",
            "wait ms": "median_wait_ns",
            "95 % wait ms": "p95_wait_ns",
            "transfer us": "median_transfer_ns",
            "95 % transfer us": "p95_transfer_ns",
            "GB/s": "bytes_per_s",
            "clock error us": "bound_ns",
            "slow": "is_slow",
            "link": "link",
        },
        how="wait: of a receive for its sender to begin; transfer: the rest of it; medians of all messages",
        optional=("slow",),
    ),
    "critical": View(
        columns={
            "time ms": "time_ns",
            "of the path %": "fraction",
            "gain ms if 10 % faster": "most_gain_ns",
            "stage": "stage",
            "on": "doing",
        },
        how="of a complete step: what its length hangs on, from its first start to its last end across lanes;"
        " gain: 10 % of the time, or less where another path is then the longest",
    ),
    "critical_path": View(
        columns={
            "step": "step",
            "start ms": "start_ns",
            "end ms": "end_ns",
            "lane": "label",
            "stage": "stage",
            "on": "doing",
        },
        how="what the length of each step hangs on, in order of time",
    ),
}


def print_tables(frames: Mapping[str, pl.DataFrame], titles: Mapping[str, str], *, limit: int) -> None:
    """Print tables under their titles, and below each how it was made.

    Args:
        frames: Tables of `nsys_pp.PIPELINE_TABLES` by name.
        titles: What stands above each.
        limit: Most rows of each.
    """
    console = Console(highlight=False, markup=False, emoji=False)
    with console.capture() as screen:
        for number, (name, frame) in enumerate(frames.items()):
            console.print("\n" * (number > 0) + titles[name], style="cyan", soft_wrap=True)
            print_view(frame, VIEWS[name], limit=limit, console=console)
    # names can be of any script, and the locale plain ASCII: click can write them, rich cannot
    click.echo("\n".join(line.rstrip() for line in screen.get().splitlines()))


def print_view(frame: pl.DataFrame, view: View, *, limit: int, console: Console) -> None:
    """Print what a terminal shows of a table, and how it was made."""
    rows = frame if view.only is None else frame.filter(view.only)
    explained: list[str] = []
    if len(rows):
        table = arrange(rows, view)
        explained = [text for heading, text in view.explains.items() if heading in table.columns]
        decimals = {heading: _DECIMALS.get(_unit(heading), 3) for heading in table.columns}
        print_table(table, limit=limit, console=console, decimals=decimals)
    notes = ["; ".join([view.how, *explained])]
    if view.only is not None and len(rows) < len(frame):
        notes.insert(0, f"{len(frame) - len(rows):,} of {len(frame):,} are as their likes")
    if view.reason is not None:
        reasons = rows.filter(pl.col("source").is_null())[view.reason].drop_nulls()
        notes[:0] = [f"unknown: {reason}" for reason in reasons]
    if frame.is_empty():
        notes = ["nothing is known for this"]
    if len(rows) > limit:
        hidden = len(rows) - limit
        notes.append(f"{hidden:,} more row{'s' * (hidden > 1)}: `--limit {len(rows)}` shows all")
    for line in notes:
        console.print(Text(line, style="dim"), soft_wrap=not console.is_terminal)


def arrange(frame: pl.DataFrame, view: View) -> pl.DataFrame:
    """Make the columns of a view; those of which nothing is known are left out, but never all.

    Args:
        frame: A table.
        view: What is shown of it.
    """
    if "causes" in view.columns.values():
        frame = frame.with_columns(causes=_name_causes(frame))
    if "doing" in view.columns.values():
        doing = pl.concat_str("cause", "kind", separator=": ", ignore_nulls=True)
        frame = frame.with_columns(doing=doing.str.replace_all("_", " "))
    table = frame.select(
        (pl.col(column) * _UNITS[_unit(heading)] if _unit(heading) in _UNITS else pl.col(column)).alias(
            heading
        )
        for heading, column in view.columns.items()
    )
    table = table.with_columns(pl.selectors.enum().cast(pl.String).str.replace_all("_", " "))
    empty = [heading for heading in table.columns if table[heading].null_count() == len(table)]
    equal = [heading for heading in view.optional if table[heading].n_unique() < 2]
    if len({*empty, *equal}) < len(table.columns):
        table = table.drop({*empty, *equal})
    return table


def _unit(heading: str) -> str:
    return heading.partition(" if ")[0].rsplit(" ", 1)[-1]


def _name_causes(frame: pl.DataFrame) -> pl.Series:
    """Write the largest causes of each bubble with their shares: "message wait 63 %, idle 21 %"."""
    shares = (
        frame.select(_CAUSES)
        .with_row_index("row")
        .unpivot(index="row", variable_name="cause", value_name="time_ns")
        .with_columns(share=pl.col("time_ns") / pl.col("time_ns").sum().over("row"))
        .filter(pl.col("share").fill_nan(0) >= _LEAST_SHARE)  # of no bubble there are no shares
        .sort("row", "share", descending=[False, True], maintain_order=True)
        .group_by("row", maintain_order=True)
        .head(_MOST_CAUSES)
    )
    words = pl.col("cause").str.strip_suffix("_ns").str.replace_all("_", " ")
    texts = shares.group_by("row", maintain_order=True).agg(
        causes=pl.format("{} {} %", words, (100 * pl.col("share")).round().cast(pl.Int64)).str.join(", ")
    )
    rows = pl.DataFrame({"row": range(len(frame))}, schema={"row": pl.UInt32})
    return rows.join(texts, on="row", how="left", maintain_order="left")["causes"]

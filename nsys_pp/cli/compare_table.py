"""What changed between two runs, as a person reads it."""

from __future__ import annotations

from collections.abc import Mapping

import click
import polars as pl
from rich.console import Console
from rich.text import Text

from nsys_pp.units import NS_PER_MS
from nsys_pp.write.tables.frames import print_table

TITLES = {
    "steps": "Steps",
    "bubbles": "Bubbles",
    "stages": "Stages",
    "kinds": "Jobs by kind",
    "kernels": "Kernels",
}
HOW = (
    "A, B: medians over complete steps; change: relative for times, in points for shares of a step;"
    " what is not beyond noise is the same"
)
_DECIMALS = {"A": 3, "B": 3, "change %": 1, "noise %": 1}


def print_comparison(frames: Mapping[str, pl.DataFrame], *, limit: int) -> None:
    """Print what changed; of what did not, the steps alone, and how much there is.

    Args:
        frames: Tables of `nsys_pp.compare` by name.
        limit: Most rows of each.
    """
    console = Console(highlight=False, markup=False, emoji=False)
    with console.capture() as screen:
        for name, frame in frames.items():
            _print_one(TITLES.get(name, name), frame, name == "steps", limit, console)
        console.print(Text(HOW, style="dim"), soft_wrap=not console.is_terminal)
    # names can be of any script, and the locale plain ASCII: click can write them, rich cannot
    click.echo("\n".join(line.rstrip() for line in screen.get().splitlines()))


def arrange(frame: pl.DataFrame) -> pl.DataFrame:
    """Make the columns of the table: milliseconds and percent, each row with its unit."""
    is_share = pl.col("unit") == "fraction"
    scale = pl.when(is_share).then(100.0).otherwise(1 / NS_PER_MS)
    table = frame.select(
        (pl.col("a") * scale).alias("A"),
        (pl.col("b") * scale).alias("B"),
        pl.when(is_share).then(pl.lit("%")).otherwise(pl.lit("ms")).alias("unit"),
        (100 * pl.col("change_fraction")).alias("change %"),
        (100 * pl.col("noise_fraction")).alias("noise %"),
        "verdict",
        "stage",
        pl.format("{}: {}", pl.col("subject").cast(pl.String), "metric").alias("what"),
    )
    return table.drop("stage") if frame["stage"].null_count() == len(frame) else table


def _print_one(title: str, frame: pl.DataFrame, is_whole: bool, limit: int, console: Console) -> None:
    shown = frame if is_whole else frame.filter(pl.col("verdict") != "same")
    console.print(title, style="cyan")
    if len(shown):
        print_table(arrange(shown), limit=limit, console=console, decimals=_DECIMALS)
    lines = []
    if len(shown) > limit:
        hidden = len(shown) - limit
        lines.append(f"{hidden:,} more row{'s' * (hidden > 1)}: `--limit {len(shown)}` shows all")
    if len(shown) < len(frame):
        lines.append(f"{len(frame) - len(shown):,} of {len(frame):,} are the same within noise")
    if frame.is_empty():
        lines.append("there is nothing to compare")
    for line in lines:
        console.print(Text(line, style="dim"), soft_wrap=not console.is_terminal)
    console.print()

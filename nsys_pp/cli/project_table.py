"""Projections as a person reads them: in milliseconds, names indented as the ranges nest."""

from __future__ import annotations

import click
import polars as pl
from rich.console import Console
from rich.text import Text

from nsys_pp.units import NS_PER_MS
from nsys_pp.write.tables.frames import print_table

_INDENT = "  "
_PLACES = {
    "machine": "machine",
    "report": "report",
    "gpu": "GPU",
    "stream_id": "stream",
    "thread_id": "thread",
}


def print_projections(frame: pl.DataFrame, *, limit: int, ops: tuple[str, ...], scope: str) -> None:
    """Print the first projections, and below them how they were made and how many there are more.

    Args:
        frame: With `api.PROJECT_COLUMNS`.
        limit: Most rows to print.
        ops: Which operations counted.
        scope: Whose calls counted.
    """
    console = Console(highlight=False, markup=False, emoji=False)
    differing = _find_differing(frame)
    with console.capture() as captured:
        if len(frame):
            table = _describe_rows(_arrange(frame), differing)
            print_table(table, limit=limit, console=console, decimals={"busy %": 1})
            console.print()
        for line in _describe_whole(frame, differing, limit, ops, scope):
            console.print(Text(line, style="dim"), soft_wrap=not console.is_terminal)
    # names can be of any script, and the locale plain ASCII: click can write them, rich cannot
    click.echo(captured.get(), nl=False)


def _find_differing(frame: pl.DataFrame) -> list[str]:
    """Name the columns of places that tell rows apart; what they share is said once."""
    differing = [column for column in _PLACES if frame[column].n_unique() > 1]
    gpus = frame.select("machine", "gpu", "report").unique()
    if gpus.select("machine", "gpu").is_unique().all():
        return [column for column in differing if column != "report"]  # the GPU tells
    return differing


def _arrange(frame: pl.DataFrame) -> pl.DataFrame:
    """Order projections by report, GPU and thread, and there each before those inside it."""
    thread = ("report_place", "gpu_place", "process_id", "thread_id")
    frame = frame.with_columns(
        report_place=pl.struct("machine", "report").rle_id(),
        gpu_place=pl.col("gpu").str.extract(r"(\d+)").cast(pl.Int64),
    )
    by_thread = (
        pl.col("gpu_start_ns").min().over(thread).alias("thread_start_ns"),
        "process_id",
        "thread_id",
    )
    by_nesting = ("start_ns", -pl.col("end_ns"), "depth", "range_id")
    frame = frame.sort("report_place", "gpu_place", *by_thread, *by_nesting, maintain_order=True)

    # A range that ended on another thread is nobody's parent: it stands behind those it interrupts.
    around = frame.select("report_place", range_id="parent_id", is_around=True).drop_nulls().unique()
    frame = frame.join(around, on=["report_place", "range_id"], how="left", maintain_order="left")
    reach_ns = pl.col("end_ns").cum_max().shift(1).over(thread)
    interrupts = (pl.col("depth") == 0) & (pl.col("start_ns") < reach_ns) & pl.col("is_around").is_null()
    turn_ns = pl.when(interrupts).then(reach_ns).otherwise("start_ns").alias("turn_ns")
    return frame.sort("report_place", "gpu_place", *by_thread, turn_ns, maintain_order=True)


def _describe_rows(frame: pl.DataFrame, differing: list[str]) -> pl.DataFrame:
    """Make the columns of the table; its last one is the name."""
    duration = pl.col("gpu_end_ns") - pl.col("gpu_start_ns")
    name = pl.col("name").cast(pl.String).fill_null("(no name)")
    identifiers = pl.selectors.integer().cast(pl.String)
    return frame.select(
        (pl.col("gpu_start_ns") / NS_PER_MS).alias("start ms"),
        (duration / NS_PER_MS).alias("duration ms"),
        pl.when(duration > 0).then(100 * pl.col("busy_ns") / duration).alias("busy %"),
        pl.col("op_count").alias("ops"),
        *(frame.select(differing).with_columns(identifiers).rename(_PLACES, strict=False)),
        pl.concat_str(pl.lit(_INDENT).repeat_by("depth").list.join(""), name).alias("range"),
    )


def _describe_whole(
    frame: pl.DataFrame, differing: list[str], limit: int, ops: tuple[str, ...], scope: str
) -> list[str]:
    """Say what all rows share, how they were made, and how many are not shown."""
    made = f"--ops {','.join(ops)} --scope {scope}"
    if frame.is_empty():
        return [f"no range launched an operation that counts with {made}"]
    shared = [
        f"{word} {frame[column][0]}".removeprefix("GPU ")
        for column, word in _PLACES.items()
        if column not in (*differing, "report") and frame[column][0] is not None
    ]
    lines = [", ".join(shared), made] if shared else [made]
    of_process = frame.filter(pl.col("scope") == "process").height
    if scope == "auto" and of_process:
        lines[-1] += f": {of_process:,} rows count the launches of the whole process"
    if len(frame) > limit:
        more = f"{len(frame) - limit:,} more rows"
        lines.append(f"{more}: `--limit {len(frame)}` shows all, `-o FILE` writes them")
    return lines

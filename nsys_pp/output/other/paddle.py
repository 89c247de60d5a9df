"""The two files of Paddle's pipeline timeline tool (`profiler_helper_static.py`).

`pipeline_profile.json` is for Chrome's viewer. `pipeline_profile_perfetto.json` is the same with numbers instead of
names for threads, as the tool writes it for Perfetto. Both are `{"traceEvents": [...]}` with pairs of B and E events:

    name   <type>_<micro-batch>; step<n>      pid  0
    cat    <type>; step                       tid  GPU<device>, GPU<device>(machine:<i>), Step
    ts     microseconds                            2334 + machine * devices + index of the device; 2333
    cname  a color of Chrome's palette

The interval of a job is its compute interval, as in the tool; jobs without compute kernels (sends and
receives) are skipped. Types have Paddle's names: `forward` and `backward`, followed by the
chunk if a stage has several; `backward_b` and `backward_w` for a split backward.

Differences from the tool, which correct its errors: selected devices keep their numbers; machines are numbered
by name (`machine10` is 10) or else in natural order; both files have the same rows; each type has a
color; partly captured steps are marked; processes that share a GPU, and jobs that overlap, have separate
rows; notes list missing ranks and GPUs. `ts` is relative to the first job (`otherData.base_ns`), because a
double holds absolute microseconds only to some hundred nanoseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.types import Int64s
from nsys_pp.errors import MissingDataError
from nsys_pp.frames.training import Training
from nsys_pp.output.chrome.trace import encode_texts
from nsys_pp.output.exporters import ExportedFile, ExportOptions, ExportResult
from nsys_pp.output.files import check_output, open_output, replace_file, translate_errors
from nsys_pp.output.other.paddle_jobs import STEP_COLOR, describe_jobs
from nsys_pp.output.other.paddle_rows import (
    STEP_THREAD,
    PaddleRow,
    add_overlaps,
    find_missing,
    find_rows,
    list_devices,
    number_machines,
)
from nsys_pp.output.trace.packing import nest_order, pack_nested
from nsys_pp.units import NS_PER_US

CHROME_NAME = "pipeline_profile.json"
PERFETTO_NAME = "pipeline_profile_perfetto.json"

_BLOCK_ROWS = 1 << 15


class PaddleFiles(Struct, frozen=True, kw_only=True):
    """The files of an export to Paddle's tool.

    Attributes:
        chrome: The file with names of threads.
        perfetto: The file with numbers of threads.
        jobs: Number of jobs in each file.
        notes: Sentences about missing and inferred facts; both files also have them in `otherData`.
    """

    chrome: Path
    perfetto: Path
    jobs: int
    notes: list[str]


def export_paddle(training: Training, folder: Path, options: ExportOptions) -> ExportResult:
    """Write both files of Paddle's timeline tool into a folder.

    Raises:
        MissingDataError: None of `options.devices` exists.
        OutputError: A file exists, or cannot be written.
    """
    if options.devices is not None:
        numbers = list_devices(training.lanes)
        if not {*options.devices} & {*numbers}:
            raise MissingDataError(
                f"no machine has a GPU {', '.join(map(str, sorted(options.devices)))}",
                f"the GPUs are {', '.join(map(str, numbers))}",
            )
    written = write_paddle(training, folder, devices=options.devices, force=options.force)
    return ExportResult(
        files=tuple(
            ExportedFile(path=path, row_count=written.jobs) for path in (written.chrome, written.perfetto)
        ),
        notes=tuple(written.notes),
        hint="To view the latter, open https://ui.perfetto.dev and drop the file there (it stays on your machine).",
    )


def write_paddle(
    training: Training, folder: Path, *, devices: Sequence[int] | None, force: bool
) -> PaddleFiles:
    """Write both files into a folder; create it if necessary.

    Args:
        training: The run.
        folder: The folder.
        devices: Numbers of the GPUs to write (index per machine), in this order; None writes all.
        force: Replace existing files.

    Raises:
        OutputError: A file exists and `force` is not set, or cannot be written.
    """
    with translate_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    chrome, perfetto = folder / CHROME_NAME, folder / PERFETTO_NAME
    for path in (chrome, perfetto):
        check_output(path, force=force)

    rows = find_rows(training.lanes, devices)
    jobs, inferred = describe_jobs(training, [row.lane for row in rows])
    notes = [*find_missing(training.lanes, rows, devices, jobs), *inferred]
    steps = _find_steps(training.steps, jobs)
    first_ns = training.zero_ns if jobs.is_empty() else int(jobs["start_ns"].to_numpy().min())
    base_ns = first_ns // NS_PER_US * NS_PER_US
    events, shown = _pair_events(jobs, steps, rows)
    machines = number_machines([*training.lanes["machine"].fill_null("")])
    other = {
        "base_ns": str(base_ns),
        "machines": {str(number): name for name, number in machines.items()},
        "partial_steps": steps.filter("is_partial")["step"].to_list(),
        "notes": notes,
    }
    names = {0: "Step", **{at: row.text for at, row in shown.items()}}
    _write(chrome, [], events, names, base_ns, other, force)
    threads = {0: STEP_THREAD, **{at: row.thread for at, row in shown.items()}}
    titles = {STEP_THREAD: "STEP", **{row.thread: row.title for row in shown.values()}}
    _write(perfetto, _name_threads(titles), events, threads, base_ns, other, force)
    return PaddleFiles(chrome=chrome, perfetto=perfetto, jobs=len(jobs), notes=notes)


def _find_steps(steps: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """Find the interval of each step on all GPUs: from the earliest start to the latest end of its jobs.

    As in the tool, a step does not begin before the previous one ends.

    Args:
        steps: `RUN_STEPS`.
        jobs: Jobs of the drawn lanes.

    Returns:
        step, start_ns, end_ns, is_partial, by step.
    """
    drawn = steps.filter(pl.col("lane").is_in(jobs["lane"].unique().implode()))
    lane_count = drawn["lane"].n_unique()
    partial = drawn.group_by("step").agg(
        is_partial=pl.col("is_partial").any() | (pl.col("lane").n_unique() < lane_count)
    )
    reach_ns = pl.col("end_ns").cum_max().shift(1)
    return (
        jobs.filter(pl.col("step").is_not_null())
        .group_by("step")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .sort("step")
        .with_columns(start_ns=pl.max_horizontal("start_ns", reach_ns))
        .with_columns(end_ns=pl.max_horizontal("start_ns", "end_ns"))
        .join(partial, on="step", how="left", maintain_order="left")
        .with_columns(pl.col("is_partial").fill_null(True))
    )


def _pair_events(
    jobs: pl.DataFrame, steps: pl.DataFrame, rows: Sequence[PaddleRow]
) -> tuple[pl.DataFrame, Mapping[int, PaddleRow]]:
    """List the begin and end events of steps and jobs, in order of writing.

    Returns:
        The events: row (0 for steps), name, cat, cname, ph, time_ns. And the rows of jobs by number (1, 2, ...).
    """
    start, end = jobs["start_ns"].to_numpy(), jobs["end_ns"].to_numpy()
    lanes = jobs["lane"].to_numpy()
    number, depth = _pack(lanes, start, end, jobs["parent"].to_numpy())
    numbered = sorted(add_overlaps(rows, lanes, number).items(), key=lambda item: item[1].thread)
    row_numbers = pl.DataFrame(
        [(*key, at) for at, (key, _) in enumerate(numbered, 1)],
        schema={"lane": pl.UInt32, "number": pl.Int64, "row": pl.Int64},
        orient="row",
    )
    of_jobs = (
        jobs.with_columns(number=pl.Series(number), depth=pl.Series(depth))
        .join(row_numbers, on=["lane", "number"], how="left", maintain_order="left")
        .select("row", "name", "cname", "start_ns", "end_ns", "depth", cat="type")
    )
    partial = pl.when("is_partial").then(pl.lit(" (partial)")).otherwise(pl.lit(""))
    of_steps = steps.select(
        pl.lit(0, pl.Int64).alias("row"),
        pl.format("step{}{}", "step", partial).alias("name"),
        pl.lit(STEP_COLOR).alias("cname"),
        "start_ns",
        "end_ns",
        pl.lit(0, pl.Int64).alias("depth"),
        cat=pl.lit("step"),
    )
    shown = {at: row for at, (_, row) in enumerate(numbered, 1)}
    return _order_events(pl.concat([of_steps, of_jobs])), shown


def _pack(lanes: npt.NDArray[np.uint32], start: Int64s, end: Int64s, parent: Int64s) -> tuple[Int64s, Int64s]:
    """Return the row of each job within its lane, and its depth there."""
    number, depth = np.zeros(len(lanes), np.int64), np.zeros(len(lanes), np.int64)
    for lane in np.unique(lanes):
        at = np.flatnonzero(lanes == lane)
        # parents are of the same lane
        local = np.where(parent[at] >= 0, np.searchsorted(at, parent[at]), -1)
        number[at], above = pack_nested(start[at], end[at], local)
        _, depth[at] = nest_order(start[at], end[at], number[at], above)
    return number, depth


def _order_events(slices: pl.DataFrame) -> pl.DataFrame:
    """Order begins and ends by row and time; at equal times, ends precede begins."""
    index = np.arange(len(slices))
    row, depth = slices["row"].to_numpy(), slices["depth"].to_numpy()
    start, end = slices["start_ns"].to_numpy(), slices["end_ns"].to_numpy()
    is_instant = end <= start
    # at equal times: ends, inner ones first; begins and ends of empty slices; begins
    rank = np.concatenate([np.where(is_instant, 1, 2), np.where(is_instant, 1, 0)])
    turn = np.concatenate([np.where(is_instant, index, depth), np.where(is_instant, index, -depth)])
    time, is_end = np.concatenate([start, end]), np.repeat([False, True], len(slices))
    order = np.lexsort((is_end, turn, rank, time, np.tile(row, 2)))
    return slices[np.tile(index, 2)[order]].select(
        "row",
        "name",
        "cat",
        "cname",
        ph=pl.Series(np.where(is_end, "E", "B")[order], dtype=pl.String),
        time_ns=pl.Series(time[order], dtype=pl.Int64),
    )


def _name_threads(titles: Mapping[int, str]) -> list[str]:
    row = {"name": "thread_name", "ph": "M", "pid": 0}
    return [
        json.dumps({**row, "tid": thread, "args": {"name": title}}, ensure_ascii=False)
        for thread, title in titles.items()
    ]


def _write(
    path: Path,
    head: Sequence[str],
    events: pl.DataFrame,
    threads: Mapping[int, str | int],
    base_ns: int,
    other: Mapping[str, Any],
    force: bool,
) -> None:
    """Write one file; `threads` are the texts or numbers of the rows."""
    with replace_file(path, force=force) as target, open_output(target) as stream:
        stream.write(b'{"traceEvents": [\n')
        separator = b""
        for piece in chain(head, _encode(events, threads, base_ns)):
            stream.write(separator + piece.encode())
            separator = b",\n"
        stream.write(b'\n],\n"otherData": ' + json.dumps(other, ensure_ascii=False).encode() + b"}\n")


def _encode(events: pl.DataFrame, threads: Mapping[int, str | int], base_ns: int) -> Iterator[str]:
    """Encode events as JSON, `_BLOCK_ROWS` at a time, with microseconds in decimal."""
    encoded = {row: json.dumps(thread, ensure_ascii=False) for row, thread in threads.items()}
    time_ns = pl.col("time_ns") - base_ns
    for block in events.iter_slices(_BLOCK_ROWS):
        names, categories = encode_texts(block["name"]), encode_texts(block["cat"])
        yield block.select(
            pl.concat_str(
                pl.lit('{"name": '),
                names,
                pl.lit(', "cat": '),
                categories,
                pl.format(', "ph": "{}", "ts": {}.', "ph", time_ns // NS_PER_US),
                (time_ns % NS_PER_US).cast(pl.String).str.zfill(3),
                pl.lit(', "pid": 0, "tid": '),
                pl.col("row").replace_strict(encoded, return_dtype=pl.String),
                pl.format(', "cname": "{}"}}', "cname"),
            ).str.join(",\n")
        ).item()

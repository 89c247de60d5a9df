"""The two files of Paddle's pipeline timeline tool (`profiler_helper_static.py`).

`pipeline_profile.json` is for Chrome's viewer. `pipeline_profile_perfetto.json` is the same with numbers
instead of names for threads, as the tool writes it for Perfetto. Both are `{"traceEvents": [...]}` with pairs
of B and E events:

    name   <type>_<micro-batch>; step<n>      pid  0
    cat    <type>; step                       tid  GPU<device>, GPU<device>(machine:<i>), Step
    ts     microseconds                            2334 + machine * devices + index of the device; 2333
    cname  a color of Chrome's palette

The interval of a job is its compute interval, as in the tool; jobs without compute kernels (sends and
receives) are skipped. Types have Paddle's names: `forward` and `backward`, followed by the
chunk if a stage has several; `backward_b` and `backward_w` for a split backward.

Differences from the tool, which correct its errors: selected devices keep their numbers; machines are
numbered by name (`machine10` is 10) or else in natural order; both files have the same rows; each type has a
color; partly captured steps are marked; processes that share a GPU, and jobs that overlap, have separate
rows; notes list missing ranks and GPUs. `ts` is relative to the first job (`otherData.base_ns`), because a
double holds absolute microseconds only to some hundred nanoseconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.columns import find_distinct, numbers
from nsys_pp.arrays.names import natural_key
from nsys_pp.arrays.search import list_groups
from nsys_pp.errors import MissingDataError
from nsys_pp.frames.training import MESSAGE_KINDS, MICRO_BATCH_KINDS, Training, mark_split_backwards
from nsys_pp.output.chrome import encode_texts
from nsys_pp.output.colors import COLORS
from nsys_pp.output.files import check_output, make_folders, open_output, replace_file
from nsys_pp.output.formats import ExportedFile, ExportOptions, ExportResult
from nsys_pp.output.trace.tracks import nested_subtracks
from nsys_pp.units import NS_PER_US

_BLOCK_ROWS = 1 << 15


def export_paddle(training: Training, folder: Path, options: ExportOptions) -> ExportResult:
    """Write both files of Paddle's timeline tool into a folder; create it if necessary.

    Both files also have the notes, in `otherData`.

    Raises:
        MissingDataError: None of `options.devices` exists.
        OutputError: A file exists, or cannot be written.
    """
    known = sorted({device for _, device in _group_lanes(training.lanes)})
    if options.devices is not None and not {*options.devices} & {*known}:
        raise MissingDataError(
            f"no machine has a GPU {', '.join(map(str, sorted(options.devices)))}",
            f"the GPUs are {', '.join(map(str, known))}",
        )
    chrome, perfetto = folder / "pipeline_profile.json", folder / "pipeline_profile_perfetto.json"
    rows = find_rows(training.lanes, options.devices)
    jobs, inferred = describe_jobs(training, [row.lane for row in rows])
    notes = [*find_missing(training.lanes, rows, options.devices, jobs), *inferred]
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
    threads = {0: STEP_THREAD, **{at: row.thread for at, row in shown.items()}}
    titles = {
        STEP_THREAD: "STEP",
        **{row.thread: row.text.replace("GPU", "GPU:", 1) for row in shown.values()},
    }
    head = [
        json.dumps(
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": thread, "args": {"name": title}},
            ensure_ascii=False,
        )
        for thread, title in titles.items()
    ]
    with make_folders([folder]), ExitStack() as all_or_none:
        for path in (chrome, perfetto):
            check_output(path, force=options.force, inputs=[source.path for source in options.sources])
        for path, first, labels in ((chrome, [], names), (perfetto, head, threads)):
            target = all_or_none.enter_context(replace_file(path, force=options.force))
            _write(target, first, events, labels, base_ns, other)
    return ExportResult(
        files=tuple(ExportedFile(path=path, row_count=len(jobs)) for path in (chrome, perfetto)),
        notes=tuple(notes),
        hint="To view the latter, open https://ui.perfetto.dev and drop the file there (it stays on your"
        " machine).",
    )


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
    partial = drawn.group_by("step").agg(
        is_partial=pl.col("is_partial").any() | (pl.col("lane").n_unique() < drawn["lane"].n_unique())
    )
    return (
        jobs.filter(pl.col("step").is_not_null())
        .group_by("step")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .sort("step")
        .with_columns(start_ns=pl.max_horizontal("start_ns", pl.col("end_ns").cum_max().shift(1)))
        .with_columns(end_ns=pl.max_horizontal("start_ns", "end_ns"))
        .join(partial, on="step", how="left", maintain_order="left")
        .with_columns(pl.col("is_partial").fill_null(True))
    )


def _pair_events(
    jobs: pl.DataFrame, steps: pl.DataFrame, rows: Sequence[PaddleRow]
) -> tuple[pl.DataFrame, Mapping[int, PaddleRow]]:
    """List the begin and end events of steps and jobs, in order of writing.

    Returns:
        The events: row (0 for steps), name, cat, cname, ph, time_ns. And the rows of jobs by number (1, 2,
        ...).
    """
    first, group = find_distinct(numbers(jobs["lane"]))
    tracks = [(("",), own) for own in list_groups(group, len(first))]
    parts = list(nested_subtracks(jobs[["start_ns", "end_ns", "parent"]], tracks))
    nothing = np.zeros(0, dtype=np.int64)
    numbers_of = (np.full(len(part.rows), part.number) for part in parts)
    jobs = jobs[np.concatenate([nothing, *(part.rows for part in parts)])].with_columns(
        number=pl.Series(np.concatenate([nothing, *numbers_of])),
        depth=pl.Series(np.concatenate([nothing, *(part.depth for part in parts)])),
    )
    numbered = sorted(add_overlaps(rows, jobs).items(), key=lambda item: item[1].thread)
    row_numbers = pl.DataFrame(
        [(*key, at) for at, (key, _) in enumerate(numbered, 1)],
        schema={"lane": pl.UInt32, "number": pl.Int64, "row": pl.Int64},
        orient="row",
    )
    of_jobs = jobs.join(row_numbers, on=["lane", "number"], how="left", maintain_order="left").select(
        "row", "name", "cname", "start_ns", "end_ns", "depth", cat="type"
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
    return _order_events(pl.concat([of_steps, of_jobs])), {at: row for at, (_, row) in enumerate(numbered, 1)}


def _order_events(slices: pl.DataFrame) -> pl.DataFrame:
    """Order begins and ends by row and time; at equal times, ends precede begins."""
    # at equal times: ends, inner ones first; begins and ends of empty slices; begins
    index, is_instant = pl.int_range(pl.len()), pl.col("end_ns") <= pl.col("start_ns")
    begins, ends = (
        slices.select(
            *("row", "name", "cat", "cname"),
            ph=pl.lit(phase),
            time_ns=time,
            rank=pl.when(is_instant).then(1).otherwise(rank),
            turn=pl.when(is_instant).then(index).otherwise(sign * pl.col("depth")),
        )
        for phase, time, rank, sign in (("B", "start_ns", 2, 1), ("E", "end_ns", 0, -1))
    )
    return (
        pl.concat([begins, ends])
        .sort("row", "time_ns", "rank", "turn", "ph", maintain_order=True)
        .drop("rank", "turn")
    )


def _write(
    target: Path,
    head: Sequence[str],
    events: pl.DataFrame,
    threads: Mapping[int, str | int],
    base_ns: int,
    other: Mapping[str, Any],
) -> None:
    # `threads`: texts or numbers of the rows
    with open_output(target) as stream:
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


STEP_COLOR = "thread_state_unknown"


_COLORS = {  # kind -> colors of even and odd chunks: the colors of the tool, and similar ones for other kinds
    "forward": ("thread_state_running", "good"),
    "backward": ("rail_idle", "rail_animation"),
    "weight_gradient": ("bad", "bad"),
    "forward_backward": ("thread_state_uninterruptible", "thread_state_uninterruptible"),
    "optimizer": ("rail_response", "rail_response"),
    "recompute": (COLORS["recompute"].cname, COLORS["recompute"].cname),
    "data": (COLORS["data"].cname, COLORS["data"].cname),
}


_OTHERS = ("grey", "yellow", "thread_state_runnable", "thread_state_sleeping", "generic_work", "startup")


def describe_jobs(training: Training, lanes: Sequence[int]) -> tuple[pl.DataFrame, list[str]]:
    """Describe the jobs of lanes with Paddle's names.

    Args:
        training: The run.
        lanes: Lanes to include.

    Returns:
        One row per job with compute kernels, in order of `RUN_JOBS`: lane, step, start_ns, end_ns, parent
        (row of the job around it, or -1), type, name, cname. And sentences about inferred facts.
    """
    jobs = training.jobs.filter(
        pl.col("lane").is_in(lanes),
        pl.col("compute_start_ns").is_not_null(),
        ~pl.col("kind").is_in(MESSAGE_KINDS),
    ).with_row_index("row")
    around = jobs.select(parent=pl.col("row").cast(pl.Int64), outer="job")
    described = _name_types(jobs).join(around, on="outer", how="left", maintain_order="left")
    counted = pl.int_range(pl.len()).over("lane", "step", "type")  # without micro-batches
    number = pl.coalesce("micro_batch", counted).cast(pl.String)
    both = pl.format("{}+{}", "micro_batch", "backward_micro_batch")
    is_overlapped = pl.col("kind") == "forward_backward"
    described = described.select(
        *("lane", "step"),
        start_ns="compute_start_ns",
        end_ns="compute_end_ns",
        parent=pl.col("parent").fill_null(-1),
        type="type",
        name=pl.format(
            "{}_{}", "type", pl.when(is_overlapped).then(pl.coalesce(both, number)).otherwise(number)
        ),
        cname=_color(described),
    )
    unknown = jobs.filter(pl.col("kind").is_in(MICRO_BATCH_KINDS), pl.col("micro_batch").is_null()).height
    notes = [f"no micro-batch is known of {unknown:,} jobs: they are counted in each step"] if unknown else []
    return described, notes


def _name_types(jobs: pl.DataFrame) -> pl.DataFrame:
    """Add `type`, Paddle's name of a kind and chunk.

    A backward is split if weight gradients of its micro-batch follow.
    """
    jobs = jobs.with_columns(is_split=mark_split_backwards(jobs))
    has_chunks = pl.lit(jobs["chunk"].drop_nulls().n_unique() > 1)
    chunk, backward_chunk = (
        pl.when(has_chunks).then(pl.col(column).cast(pl.String)).otherwise(None).fill_null("")
        for column in ("chunk", "backward_chunk")
    )
    kind = pl.col("kind").cast(pl.String)
    of_backward = pl.when("is_split").then(pl.lit("backward_b")).otherwise(pl.lit("backward"))
    named = pl.col("name").cast(pl.String).str.replace(r"[\s_.:#/-]*\d*$", "")
    return jobs.with_columns(
        type=pl.when(kind == "backward")
        .then(of_backward + chunk)
        .when(kind == "weight_gradient")
        .then(pl.lit("backward_w") + chunk)
        .when(kind == "forward_backward")
        .then(pl.lit("forward") + chunk + pl.lit("_backward") + backward_chunk)
        .when(kind.is_in(["forward", "recompute"]))
        .then(kind + chunk)
        .when(kind == "other")
        .then(pl.when(named != "").then(named).otherwise(kind))
        .otherwise(kind)
    )


def _color(jobs: pl.DataFrame) -> pl.Series:
    """Return the color of each job by kind and chunk; for a kind without a color, by the name of its type."""
    is_odd = (pl.col("chunk") % 2 == 1).fill_null(False)
    keys = jobs.select(pl.col("kind").cast(pl.String), "type", is_odd=is_odd.cast(pl.Int8))
    distinct = keys.unique()
    others = {name: _OTHERS[crc32(name.encode()) % len(_OTHERS)] for name in distinct["type"]}
    others |= {"default": STEP_COLOR}
    colors = [
        _COLORS[kind][odd] if kind in _COLORS else others[name] for kind, name, odd in distinct.iter_rows()
    ]
    named = distinct.with_columns(color=pl.Series(colors, dtype=pl.String))
    return keys.join(named, on=keys.columns, how="left", maintain_order="left")["color"]


STEP_THREAD = 2333

_RANK_LIMIT = 8  # ranks listed in a sentence


class PaddleRow(Struct, frozen=True, kw_only=True):
    """One row, with its names in both files.

    Attributes:
        lane: Lane of its jobs.
        text: Its thread in the file for Chrome, `GPU2(machine:0)`.
        thread: Its thread in the file for Perfetto.
    """

    lane: int
    text: str
    thread: int


def number_machines(names: Sequence[str]) -> dict[str, int]:
    """Number machines by their names (`machine10` is 10), or in natural order if a name has another form.

    >>> number_machines(["machine10", "machine2"])
    {'machine2': 2, 'machine10': 10}
    >>> number_machines(["node10", "node2"])
    {'node2': 0, 'node10': 1}
    """
    ordered = sorted({*names}, key=natural_key)
    matches = [re.fullmatch(r"machine[-_]?(\d+)", name, re.IGNORECASE) for name in ordered]
    found = [int(match[1]) for match in matches if match]
    is_numbered = len({*found}) == len(ordered)
    return dict(zip(ordered, found if is_numbered else range(len(ordered)), strict=True))


def find_rows(lanes: pl.DataFrame, devices: Sequence[int] | None) -> list[PaddleRow]:
    """Build the row of each lane.

    Args:
        lanes: `LANES`.
        devices: Numbers of the GPUs to include, in this order; None includes all.

    Returns:
        Rows by machine and device; threads are numbered as in the tool, except for lanes that share a GPU.
    """
    groups = _group_lanes(lanes)
    machines = number_machines([machine for machine, _ in groups])
    shown = sorted({device for _, device in groups}) if devices is None else [*dict.fromkeys(devices)]
    spare = STEP_THREAD + 1 + len(machines) * len(shown)
    rows = []
    for at, (machine, number) in enumerate(machines.items()):
        of_machine = f"(machine:{number})" if len(machines) > 1 else ""
        for position, device in enumerate(shown):
            sharing = groups.get((machine, device), [])
            for nth, (lane, rank) in enumerate(sharing):
                suffix = f"(process:{nth})" if rank is None else f"(rank:{rank})"
                thread = STEP_THREAD + 1 + at * len(shown) + position
                if nth:
                    thread, spare = spare, spare + 1
                text = f"GPU{device}{of_machine}" + suffix * (len(sharing) > 1)
                rows.append(PaddleRow(lane=lane, text=text, thread=thread))
    return rows


def find_missing(
    lanes: pl.DataFrame, rows: Sequence[PaddleRow], devices: Sequence[int] | None, jobs: pl.DataFrame
) -> list[str]:
    """List missing ranks, GPUs and jobs, in sentences.

    Args:
        lanes: `LANES`.
        rows: Rows of `find_rows`.
        devices: The selected GPUs.
        jobs: Jobs of the rows; only the column `lane` is read.

    Returns:
        The sentences; empty if nothing is missing.
    """
    notes = []
    ranks = {*lanes["rank"].drop_nulls()}
    if missing := sorted({*range(max(ranks, default=-1) + 1)} - ranks):
        listed = ", ".join(map(str, missing[:_RANK_LIMIT])) + ", ..." * (len(missing) > _RANK_LIMIT)
        notes.append(f"there is no report of rank {listed}")
    present = _group_lanes(lanes)
    notes += [
        f"there is no report of GPU {device} of `{machine}`"
        for machine in sorted({*lanes["machine"].fill_null("")}, key=natural_key)
        for device in devices or ()
        if (machine, device) not in present
    ]
    busy = {*jobs["lane"]}
    notes += [f"`{row.text}` has no jobs" for row in rows if row.lane not in busy]
    return notes


def add_overlaps(rows: Sequence[PaddleRow], jobs: pl.DataFrame) -> Mapping[tuple[int, int], PaddleRow]:
    """Add rows for jobs that overlap without nesting.

    Args:
        rows: One row per lane.
        jobs: Lane of each job, and the number of its row within the lane: 0 for the lane's own row.

    Returns:
        Rows by lane and number within the lane.
    """
    of_lane = {row.lane: row for row in rows}
    numbered = {(row.lane, 0): row for row in rows}
    spare = max((row.thread for row in rows), default=STEP_THREAD) + 1
    for lane, number in sorted({*jobs.select("lane", "number").iter_rows()} - {*numbered}):
        row = of_lane[lane]
        numbered[lane, number] = replace(row, text=f"{row.text}(overlap:{number})", thread=spare)
        spare += 1
    return numbered


def _group_lanes(lanes: pl.DataFrame) -> dict[tuple[str, int], list[tuple[int, int | None]]]:
    """List the lanes and ranks of each machine and GPU number."""
    groups: dict[tuple[str, int], list[tuple[int, int | None]]] = {}
    for lane, machine, gpu, device_id, rank in lanes.select(
        "lane", "machine", "gpu", "device_id", "rank"
    ).iter_rows():
        numbered = re.match(r"GPU (\d+)", gpu or "")
        device = int(numbered[1]) if numbered else device_id
        groups.setdefault((machine or "", device), []).append((lane, rank))
    return groups

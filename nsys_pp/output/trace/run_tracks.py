"""Drawings of the training of a run: steps, jobs, messages and bubbles.

pipeline                the whole run
  steps                 from the earliest start to the latest end on any lane
  bubble of stage 0     counter: share of the stage's lanes that are in a bubble
node2
  GPU 0
    steps
    jobs                compute intervals of jobs
    messages            sends and receives; an arrow joins a send to the transfer inside its receive

These rows depend on all reports, so they are drawn when reports are merged. Times are on the trace's clock.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.columns import find_distinct, is_among, list_distinct, numbers, pack
from nsys_pp.arrays.search import find_rows, list_groups
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.clock import describe_groups
from nsys_pp.frames.conform import NO_NAME, build_frame, conform
from nsys_pp.frames.part import Track
from nsys_pp.frames.training import MESSAGE_KINDS, Training, span_steps
from nsys_pp.output.trace.drawing import (
    SAMPLES,
    Drawing,
    Subtrack,
    draw_all,
    sequence_id,
)
from nsys_pp.output.trace.tracks import all_of, flat_subtracks, nested_subtracks

# Name of the outermost row of the run; it is a sibling of the machines.
RUN = "pipeline"

_RANKS = {"jobs": -3 << 40, "steps": -2 << 40, "messages": -1 << 40}  # above all rows of a report on its GPU

_LETTERS = {"forward": "F", "backward": "B", "weight_gradient": "W", "recompute": "R"}


_MESSAGE_COLUMNS = [
    *("start_ns", "end_ns", "name", "color", "flow_id", "step", "micro_batch", "size_bytes", "wait_ns"),
    *("transfer_ns", "bound_ns", "is_buffered", "paired_by", "doubtful"),
]


_NO_FLOW = pl.lit(None, dtype=pl.UInt64)


class GpuRow(Struct, frozen=True, kw_only=True):
    """Row of the trace that shows a lane."""

    machine: str
    row: str  # name of the GPU's row under its machine


def draw_training(
    training: Training,
    gpu_rows: Mapping[int, GpuRow],
    *,
    start_ns: int | None = None,
    end_ns: int | None = None,
) -> dict[str, Drawing]:
    """Draw a training, machine by machine.

    Args:
        training: The run.
        gpu_rows: Rows by lane; other lanes are not drawn.
        start_ns: Omit events that end before this time. Default: no limit.
        end_ns: Omit events that start at or after this time. Default: no limit.

    Returns:
        Drawings by machine; the drawing of the run has the key `RUN`. Empty without `gpu_rows`, or if the
        training has no jobs, no transfers and no steps by ranges or jobs.
    """
    steps = training.steps.filter(pl.col("source") != "capture")
    has_steps = steps["source"].is_in(["range", "jobs"]).any()  # only tables need inferred ones
    if not gpu_rows or not (has_steps or len(training.jobs) or len(training.transfers)):
        return {}
    is_drawn = _overlaps(start_ns, end_ns)
    lane_steps = steps.filter(is_drawn).with_columns(is_inferred=pl.col("source") == "inferred")
    rows = {
        "steps": _arrange(_steps(lane_steps, "lane", parent=pl.lit(-1, pl.Int64))),
        "messages": _messages(training, is_drawn),
    }
    ranks = dict(_RANKS)
    roles = training.jobs["role"].unique().drop_nulls().sort()
    for number, role in enumerate([None, *roles]):  # None: the jobs without a role
        name = "jobs" if role is None else f"jobs of {role}"
        rows[name] = _arrange(_jobs(training, is_drawn, role))
        ranks[name] = _RANKS["jobs"] + number * len(training.lanes)
    labels = dict(training.lanes.select("lane", "label").iter_rows())
    lane_counts = Counter(gpu_rows.values())
    drawings = {
        machine: Drawing(report_id=_hash_id(f"training\0{machine}"), tracks=[], subtracks=[])
        for machine in [RUN, *sorted({row.machine for row in gpu_rows.values()})]
    }
    for lane, gpu_row in gpu_rows.items():
        drawing = drawings[gpu_row.machine]
        for kind, rank in ranks.items():
            if lane in rows[kind]:
                name = kind if lane_counts[gpu_row] == 1 else f"{kind} of {labels[lane]}"
                path = (gpu_row.row, name)
                drawing.tracks.append(Track(path=path, name=name, rank=rank + lane))
                drawing.subtracks.extend(replace(subtrack, track=path) for subtrack in rows[kind][lane])
    _draw_run(training, span_steps(steps), drawings[RUN], is_drawn)
    return {machine: drawing for machine, drawing in drawings.items() if drawing.subtracks}


def _hash_id(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"nsys-pp {name}".encode(), digest_size=8).digest(), "little")


def _arrange(slices: pl.DataFrame) -> dict[int, list[Subtrack]]:
    """Split slices with `lane` and `parent` into subtracks of nested slices, by lane."""
    lane = slices["lane"].to_numpy()
    first, number = find_distinct(lane)
    lanes, rows = lane[first].tolist(), list_groups(number, len(first))
    by_lane: dict[int, list[Subtrack]] = {one: [] for one in lanes}
    tracks = [((str(one),), own) for one, own in zip(lanes, rows, strict=True)]
    for subtrack in nested_subtracks(slices.drop("lane"), tracks):
        by_lane[int(subtrack.track[0])].append(subtrack)
    return by_lane


def _steps(steps: pl.DataFrame, *columns: str, **more: pl.Expr) -> pl.DataFrame:
    return steps.select(
        *columns,
        *("start_ns", "end_ns"),
        name=pl.concat_str(pl.lit("step "), "step").cast(pl.Categorical()),
        color=pl.lit("step", dtype=pl.Categorical()),
        flow_id=_NO_FLOW,
        **more,
        is_partial=pl.when("is_partial").then(pl.lit(True)),
        is_inferred=pl.when("is_inferred").then(pl.lit(True)),
    )


def _overlaps(start_ns: int | None, end_ns: int | None) -> pl.Expr:
    overlaps = pl.lit(True)
    if start_ns is not None:
        overlaps &= pl.col("end_ns") >= start_ns
    if end_ns is not None:
        overlaps &= pl.col("start_ns") < end_ns
    return overlaps


def _jobs(training: Training, is_drawn: pl.Expr, role: str | None) -> pl.DataFrame:
    """Build the slices of the jobs of a role, with compute intervals if known.

    `parent` is the row of the job around each, or -1.
    """
    jobs = (
        training.jobs.filter(~pl.col("kind").is_in(MESSAGE_KINDS), pl.col("role").eq_missing(role))
        .with_columns(all_start_ns="start_ns", all_end_ns="end_ns")
        .with_columns(
            start_ns=pl.coalesce("compute_start_ns", "start_ns"),
            end_ns=pl.coalesce("compute_end_ns", "end_ns"),
        )
        .filter(is_drawn)
    )
    naming = jobs.select("kind", "chunk", pl.col("label").cast(pl.Categorical()))
    return jobs.select(
        "lane",
        "start_ns",
        "end_ns",
        parent=pl.Series(find_rows(numbers(jobs["job"]), numbers(jobs["outer"], null=-1))),
        name=_format_texts(naming, _job_name(training)),
        color=pl.col("kind").cast(pl.String).cast(pl.Categorical()),
        flow_id=_NO_FLOW,
        range=pl.col("name"),
        step="step",
        micro_batch="micro_batch",
        chunk="chunk",
        backward_micro_batch="backward_micro_batch",
        is_inferred=pl.when("is_inferred").then(pl.lit(True)),
        confidence=pl.col("confidence").round(3),
        compute_ns="compute_ns",
        busy_ns="busy_ns",
        all_kernels_start_ns=pl.col("all_start_ns") - training.zero_ns,
        all_kernels_duration_ns=pl.col("all_end_ns") - pl.col("all_start_ns"),
        host_duration_ns=pl.col("host_end_ns") - pl.col("host_start_ns"),
        launch_delay_ns="launch_delay_ns",
        operations="op_count",
        role=pl.col("role").cast(pl.Categorical()),
    )


def _format_texts(columns: pl.DataFrame, text: pl.Expr) -> pl.Series:
    """Evaluate the expression of a text for each row; once per distinct row, since most rows repeat."""
    first, index = find_distinct(pack(*(numbers(column, null=-1) for column in columns.iter_columns())))
    return columns[first].select(text.cast(pl.Categorical())).to_series()[index]


def _job_name(training: Training) -> pl.Expr:
    """Format the name of a job: `F3`, or `F3 chunk 1` if there are several chunks.

    Its kind if the kind has no letter.
    """
    kind = pl.col("kind").cast(pl.String)
    letter = kind.replace_strict(_LETTERS, default=None, return_dtype=pl.String)
    has_chunks = training.jobs["chunk"].drop_nulls().n_unique() > 1 and training.schedule.name != "dualpipev"
    label = pl.col("label").cast(pl.String)
    number = label.str.extract(r"^(\d+)").fill_null("")  # a label may have its own letter: "3b"
    chunk = (
        pl.when(pl.col("chunk").is_not_null() & pl.lit(has_chunks))
        .then(pl.concat_str(pl.lit(" chunk "), "chunk"))
        .otherwise(pl.lit(""))
    )
    return (
        pl.when(kind == "forward_backward")
        .then(label)
        .when(letter.is_not_null())
        .then(pl.concat_str(letter, number, chunk))
        .when(kind == "other")
        .then(label.fill_null(NO_NAME))
        .otherwise(kind)
    )


def _messages(training: Training, is_drawn: pl.Expr) -> dict[int, list[Subtrack]]:
    """Build the slices of messages by lane.

    The kernels of sends and receives, and inside each receive its transfer.

    An arrow joins a send to the slice of the transfer, not to the receive: the receive usually starts before
    the send, and viewers draw arrows from the earlier slice to the later one. Lanes with clocks that cannot
    be compared have neither arrows nor transfers.
    """
    rows = training.transfers.with_row_index("number").with_columns(
        is_buffered=pl.when("is_buffered").then(pl.lit(True)),
        paired_by=pl.col("source").cast(pl.Categorical()),
        doubtful=pl.col("doubtful").cast(pl.String).cast(pl.Categorical()),
    )
    sent_ns = pl.col("send_start_ns") + 1  # after the send: equal times have no direction
    arrives = (sent_ns < pl.col("receive_end_ns")) & pl.col("transfer_ns").is_not_null()
    flow = pl.lit(sequence_id(_hash_id(f"training\0{RUN}")) << 32, pl.UInt64) + pl.col("number")
    transfer_start = pl.max_horizontal(sent_ns, "receive_start_ns")
    send_name = _message_names(training, "send", " to ", "receiver")
    receive_name = _message_names(training, "receive", " from ", "sender")
    transfer_name, no_wait = pl.lit("transfer", pl.Categorical()), pl.lit(None, pl.Int64)
    kinds: list[tuple[str, str, str | pl.Expr, str, pl.Series | pl.Expr, str | pl.Expr]] = [
        ("send", "sender", "send_start_ns", "send_end_ns", send_name, "send_wait_ns"),
        ("receive", "receiver", "receive_start_ns", "receive_end_ns", receive_name, "receive_wait_ns"),
        ("communication", "receiver", transfer_start, "receive_end_ns", transfer_name, no_wait),
    ]
    parts = [
        rows.with_columns(
            id=3 * pl.col("number").cast(pl.Int64) + at,
            lane=lane,
            start_ns=start,
            end_ns=end,
            name=name,
            color=pl.lit(color, pl.Categorical()),
            flow_id=pl.when(arrives & (color != "receive")).then(flow),
            wait_ns=wait,
        )
        for at, (color, lane, start, end, name, wait) in enumerate(kinds)
    ]
    parts[2] = parts[2].filter(arrives)
    drawn = pl.concat(parts).filter(is_drawn)
    ids = drawn["id"].to_numpy()
    parent = find_rows(ids, np.where(ids % 3 == 2, ids - 1, -1))  # of a transfer, its receive
    return _arrange(drawn.select(*_MESSAGE_COLUMNS, "lane", parent=pl.Series(parent)))


def _message_names(training: Training, verb: str, preposition: str, other: str) -> pl.Series:
    """Format the name of each message: "send F3 to rank 1", with the micro-batch of activations if known."""
    labels = dict(training.lanes.select("lane", "label").iter_rows())
    letter = pl.col("direction").cast(pl.String).replace_strict(_LETTERS, default="", return_dtype=pl.String)
    payload = pl.concat_str(letter.fill_null(""), pl.col("micro_batch").cast(pl.String).fill_null(""))
    carried = pl.when(payload == "").then(payload).otherwise(pl.lit(" ") + payload)
    label = pl.col(other).replace_strict(labels, return_dtype=pl.String)
    text = pl.concat_str(pl.lit(verb), carried, pl.lit(preposition), label)
    return _format_texts(training.transfers.select("direction", "micro_batch", other), text)


def _draw_run(training: Training, spans: pl.DataFrame, drawing: Drawing, is_drawn: pl.Expr) -> None:
    """Draw the rows of the run: its steps, and the share of lanes in a bubble for each stage."""
    steps = _steps(spans.filter(is_drawn), lanes=pl.col("lane_count"))
    if len(steps):
        texts = ["from the first GPU to the last", describe_groups(training.lanes["clock_group"])]
        track = Track(path=("steps",), name="steps", rank=0, description="; ".join(filter(None, texts)))
        drawing.tracks.append(track)
        drawing.subtracks.extend(flat_subtracks(steps, all_of(steps, track.path)))
    lane_states = training.lane_states[["lane", "cause", "start_ns", "end_ns"]].filter(is_drawn)
    lane = lane_states["lane"].to_numpy()
    start, end = lane_states["start_ns"].to_numpy(), lane_states["end_ns"].to_numpy()
    waits = ~is_among(lane_states["cause"], ("compute", "pause"))
    stages = training.lanes.drop_nulls("stage").select("stage", "lane")
    for (stage,), lanes in sorted(stages.partition_by("stage", as_dict=True, include_key=False).items()):
        is_of_stage = np.isin(lane, lanes["lane"].to_numpy())
        if not is_of_stage.any():
            continue
        name = f"bubble of stage {stage}"
        track = Track(path=(name,), name=name, rank=1 + int(str(stage)), counter_unit="%")
        drawing.tracks.append(track)
        rows = np.flatnonzero(is_of_stage & waits)
        samples = _bubble_samples(start[rows], end[rows], count=len(list_distinct(lane[is_of_stage])))
        drawing.subtracks.append(draw_all(track.path, "counter", samples))


def _bubble_samples(start: Int64s, end: Int64s, *, count: int) -> pl.DataFrame:
    """Sample the percentage of `count` lanes that are in a bubble: `SAMPLES`, at each change.

    Bubbles are [start, end).
    """
    times = np.concatenate([start, end])
    order = np.argsort(times)
    times, lanes = times[order], np.cumsum(np.repeat([1, -1], [len(start), len(end)])[order])
    last = np.flatnonzero(np.append(times[1:] != times[:-1], True)[: len(times)])  # of each time
    changed = last[np.diff(lanes[last], prepend=0) != 0]
    share = np.round(100 * lanes[changed] / count, 1)
    return conform(build_frame([pl.Series("time_ns", times[changed]), pl.Series("value", share)]), SAMPLES)


TITLE = "MPI messages"

_RANK = 5000  # of the process, above its threads


def draw_mpi_messages(
    messages: pl.DataFrame,
    pairs: pl.DataFrame,
    *,
    start_ns: int | None = None,
    end_ns: int | None = None,
) -> dict[int, Drawing]:
    """Draw the messages of a run, report by report, on the trace's clock.

    An arrow joins a send to the slice "message" inside the receive: the receive usually starts first, and
    viewers draw arrows from the earlier slice to the later one. Where the end of a receive is unknown, or is
    not after the start of the send, there is no arrow.

    Args:
        messages: `RUN_MPI_MESSAGES`.
        pairs: `MPI_PAIRS` of them.
        start_ns: Omit messages that end before this time. Default: no limit.
        end_ns: Omit messages that start at or after this time. Default: no limit.

    Returns:
        Drawings by report; empty without messages.
    """
    slices = _build_slices(messages.hstack(pairs)).filter(_overlaps(start_ns, end_ns))
    drawings = {}
    for (report,), of_report in sorted(slices.partition_by("report", as_dict=True).items()):
        number = int(str(report))
        drawings[number] = Drawing(report_id=_hash_id(f"messages of MPI\0{number}"), tracks=[], subtracks=[])
        for (row,), own in of_report.partition_by("process_row", as_dict=True, maintain_order=True).items():
            path = (str(row), TITLE)
            drawings[number].tracks.append(Track(path=path, name=TITLE, rank=_RANK))
            parent = find_rows(numbers(own["id"]), numbers(own["outer"], null=-1))
            columns = own.drop("report", "process_row", "id", "outer").with_columns(parent=pl.Series(parent))
            drawings[number].subtracks.extend(nested_subtracks(columns, all_of(columns, path)))
    return drawings


def _build_slices(messages: pl.DataFrame) -> pl.DataFrame:
    """Build the slices of messages, and of arrivals inside receives.

    Report, process_row, id, outer, and the columns of `SLICES`.
    """
    rows = messages.with_row_index("id").with_columns(pl.col("id").cast(pl.Int64))
    rows = rows.join(
        rows.select("id", sent_ns="start_ns"),
        left_on="other",
        right_on="id",
        how="left",
        maintain_order="left",
    ).with_columns(pl.col("other").cast(pl.Int64))
    left_ns = pl.col("sent_ns") + 1  # after the send: equal times have no direction
    arrives = (~pl.col("is_send") & (left_ns < pl.col("end_ns"))).fill_null(value=False)
    joined = rows.filter(arrives).select(send="other").with_columns(is_joined=pl.lit(value=True))
    rows = rows.join(joined, left_on="id", right_on="send", how="left", maintain_order="left")
    high = pl.lit(sequence_id(_hash_id("messages of MPI\0-1")) << 32, pl.UInt64)
    own = {
        "report": pl.col("report"),
        "process_row": pl.col("process_row"),
        "call": pl.col("name"),
        "peer": pl.col("peer"),
        "tag": pl.col("tag"),
        "size_bytes": pl.col("size_bytes"),
        "communicator": pl.col("communicator").cast(pl.Categorical()),
        "is_guess": pl.when("is_guess").then(pl.lit(value=True)),
        "not_joined": pl.col("unpaired").cast(pl.String).cast(pl.Categorical()),
    }
    verb = pl.when("is_send").then(pl.lit("send to ")).otherwise(pl.lit("receive from "))
    peer = pl.format("rank {}", "peer").fill_null("any rank")
    calls = rows.select(
        "id",
        **own,
        start_ns="start_ns",
        end_ns=pl.coalesce("end_ns", "start_ns"),
        outer=pl.lit(None, pl.Int64),
        name=pl.concat_str(verb, peer).cast(pl.Categorical()),
        color=pl.when("is_send").then(pl.lit("send")).otherwise(pl.lit("receive")).cast(pl.Categorical()),
        flow_id=pl.when("is_joined").then(pl.col("id").cast(pl.UInt64) + high),
    )
    arrivals = rows.filter(arrives).select(
        id=pl.col("id") + len(rows),
        **own,
        start_ns=pl.max_horizontal(left_ns, "start_ns"),
        end_ns="end_ns",
        outer="id",
        name=pl.lit("message").cast(pl.Categorical()),
        color=pl.lit("communication").cast(pl.Categorical()),
        flow_id=pl.col("other").cast(pl.UInt64) + high,
    )
    return pl.concat([calls, arrivals])

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

from nsys_pp.arrays.columns import find_distinct, is_among, list_distinct, numbers, pack
from nsys_pp.arrays.search import list_groups
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.clock import describe_groups
from nsys_pp.frames.conform import NO_NAME, build_frame, conform
from nsys_pp.frames.part import Track
from nsys_pp.frames.training import MESSAGE_KINDS, Training, span_steps
from nsys_pp.output.trace.drawing import (
    SAMPLES,
    ArrangedSlices,
    CounterSubtrack,
    Drawing,
    SliceSubtrack,
    Subtrack,
    sequence_id,
)
from nsys_pp.output.trace.tracks import flat_subtracks, nested_subtracks

RUN = "pipeline"


"""Name of the outermost row of the run; it is a sibling of the machines."""


_RANKS = {"jobs": -3 << 40, "steps": -2 << 40, "messages": -1 << 40}  # above all rows of a report on its GPU


_LETTERS = {"forward": "F", "backward": "B", "weight_gradient": "W", "recompute": "R"}


_SEND, _RECEIVE, _TRANSFER = range(3)


_MESSAGE_COLUMNS = [
    *("start_ns", "end_ns", "name", "color", "flow_id", "step", "micro_batch", "size_bytes", "wait_ns"),
    *("transfer_ns", "bound_ns", "is_buffered", "paired_by", "doubtful"),
]


_BUSY = ("compute", "pause")


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
    has_steps = training.steps["source"].is_in(["range", "jobs"]).any()  # only tables need the others
    if not gpu_rows or not (has_steps or len(training.jobs) or len(training.transfers)):
        return {}
    is_drawn = _overlaps(start_ns, end_ns)
    rows = {
        "steps": _arrange(_lane_steps(training).filter(is_drawn)),
        "messages": _messages(training, is_drawn),
    }
    ranks = dict(_RANKS)
    for number, (name, role) in enumerate(_list_job_rows(training.jobs)):
        rows[name] = _arrange(_jobs(training, is_drawn, role))
        ranks[name] = _RANKS["jobs"] + number * len(training.lanes)
    labels = dict(training.lanes.select("lane", "label").iter_rows())
    lane_counts = Counter(gpu_rows.values())
    drawings = {
        machine: _empty(machine) for machine in [RUN, *sorted({row.machine for row in gpu_rows.values()})]
    }
    for lane, gpu_row in gpu_rows.items():
        drawing = drawings[gpu_row.machine]
        for kind, rank in ranks.items():
            if lane not in rows[kind]:
                continue
            name = kind if lane_counts[gpu_row] == 1 else f"{kind} of {labels[lane]}"
            track = Track(path=(gpu_row.row, name), name=name, rank=rank + lane)
            drawing.tracks.append(track)
            drawing.subtracks.extend(
                SliceSubtrack(track=track.path, number=number, content=slices)
                for number, slices in enumerate(rows[kind][lane])
            )
    _draw_run(training, drawings[RUN], is_drawn)
    return {machine: drawing for machine, drawing in drawings.items() if drawing.subtracks}


def _empty(machine: str) -> Drawing:
    digest = hashlib.blake2b(f"nsys-pp training\0{machine}".encode(), digest_size=8).digest()
    return Drawing(report_id=int.from_bytes(digest, "little"), tracks=[], subtracks=[])


def _arrange(slices: pl.DataFrame) -> dict[int, list[ArrangedSlices]]:
    """Split slices with `lane` and `parent` into subtracks of nested slices, by lane."""
    lane = slices["lane"].to_numpy()
    first, number = find_distinct(lane)
    by_lane: dict[int, list[ArrangedSlices]] = {}
    for at, _, part in nested_subtracks(slices.drop("lane"), list_groups(number, len(first))):
        by_lane.setdefault(int(lane[first[at]]), []).append(part)
    return by_lane


def _lane_steps(training: Training) -> pl.DataFrame:
    return training.steps.select(
        "lane",
        *("start_ns", "end_ns"),
        name=pl.concat_str(pl.lit("step "), "step").cast(pl.Categorical()),
        color=_color("step"),
        flow_id=_no_flow(),
        is_partial=pl.when("is_partial").then(pl.lit(True)),
        parent=pl.lit(-1, pl.Int64),
    )


def _overlaps(start_ns: int | None, end_ns: int | None) -> pl.Expr:
    """Return the mask of rows that overlap a window."""
    overlaps = pl.lit(True)
    if start_ns is not None:
        overlaps &= pl.col("end_ns") >= start_ns
    if end_ns is not None:
        overlaps &= pl.col("start_ns") < end_ns
    return overlaps


def _list_job_rows(jobs: pl.DataFrame) -> list[tuple[str, str | None]]:
    """List the rows of jobs with their roles: one for each role, and one for jobs without a role."""
    roles = jobs["role"].unique().drop_nulls().sort().to_list()
    return [("jobs", None), *((f"jobs of {role}", role) for role in roles)]


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
    row_of = np.full(
        int(training.jobs["job"].to_numpy().max(initial=0)) + 2, -1
    )  # the last item stays -1: index -1 stands for no outer job
    row_of[jobs["job"].to_numpy()] = np.arange(len(jobs))
    outer = numbers(jobs["outer"], null=-1)
    naming = jobs.select("kind", "chunk", "name", pl.col("label").cast(pl.Categorical()))
    return jobs.select(
        "lane",
        "start_ns",
        "end_ns",
        parent=pl.Series(row_of[outer]),
        name=_format_texts(naming, _job_name(training)),
        color=pl.col("kind").cast(pl.String).cast(pl.Categorical()),
        flow_id=_no_flow(),
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
    code = pack(*(numbers(column, null=-1) for column in columns.iter_columns()))
    first, index = find_distinct(code)
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
        .then(pl.col("name").cast(pl.String).fill_null(NO_NAME))
        .otherwise(kind)
    )


def _messages(training: Training, is_drawn: pl.Expr) -> dict[int, list[ArrangedSlices]]:
    """Build the slices of messages by lane.

    The kernels of sends and receives, and inside each receive its transfer.

    An arrow joins a send to the slice of the transfer, not to the receive: the receive usually starts before
    the send, and viewers draw arrows from the earlier slice to the later one. Lanes with clocks that cannot
    be compared have neither arrows nor transfers.
    """
    transfers, count = training.transfers, len(training.transfers)
    sent, left, received, arrived = (
        transfers[f"{verb}_{edge}_ns"].to_numpy() for verb in ("send", "receive") for edge in ("start", "end")
    )
    left_ns = sent + 1  # after the send: equal times have no direction
    arrives = (left_ns < arrived) & transfers["transfer_ns"].is_not_null().to_numpy()
    # Each slice has a transfer and a kind; sends and receives alternate, transfers follow. Columns are
    # gathered only once, in order of writing.
    transfer = np.concatenate([np.repeat(np.arange(count), 2), np.flatnonzero(arrives)])
    kind = np.repeat([_SEND, _RECEIVE, _TRANSFER], [count, count, len(transfer) - 2 * count])
    kind[: 2 * count] = np.tile([_SEND, _RECEIVE], count)
    index = (
        kind * count + transfer
    )  # row in the concatenation of the columns of all sends, receives and transfers
    start = np.concatenate([sent, received, np.maximum(left_ns, received)])[index]
    end = np.concatenate([left, arrived, arrived])[index]
    drawn = (
        pl.DataFrame({"start_ns": start, "end_ns": end})
        .with_row_index("at")
        .filter(is_drawn)["at"]
        .to_numpy()
    )
    at = np.full(len(transfer), -1)
    at[drawn] = np.arange(len(drawn))
    parent = np.where(kind == _TRANSFER, at[2 * transfer + 1], -1)
    lane = pl.concat([transfers["sender"], transfers["receiver"], transfers["receiver"]]).to_numpy()[index]
    start, end, transfer, kind, index, lane, parent = (
        column[drawn] for column in (start, end, transfer, kind, index, lane, parent)
    )
    shared = transfers.select(
        *("step", "micro_batch", "size_bytes", "transfer_ns", "bound_ns"),
        is_buffered=pl.when("is_buffered").then(pl.lit(True)),
        paired_by=pl.col("source").cast(pl.Categorical()),
        doubtful=pl.col("doubtful").cast(pl.String).cast(pl.Categorical()),
    )[transfer]
    flow = pl.Series((sequence_id(_empty(RUN).report_id) << 32) + transfer).cast(pl.UInt64)
    no_wait = pl.Series([None], dtype=pl.Int64)
    waits = pl.concat([transfers["send_wait_ns"], transfers["receive_wait_ns"], no_wait])
    slices = pl.DataFrame(
        {
            "start_ns": start,
            "end_ns": end,
            "name": _message_names(training)[np.minimum(index, 2 * count)],
            "color": pl.Series(["send", "receive", "communication"], dtype=pl.Categorical())[kind],
            "flow_id": flow.set(pl.Series((kind == _RECEIVE) | ~arrives[transfer]), None),
            "wait_ns": waits[np.minimum(index, 2 * count)],
        }
    ).hstack(shared)
    placed = slices[_MESSAGE_COLUMNS].with_columns(lane=pl.Series(lane), parent=pl.Series(parent))
    return _arrange(placed)


def _message_names(training: Training) -> pl.Series:
    """Format the names of all sends, then of all receives; the last item is the name of every transfer."""
    labels = dict(training.lanes.select("lane", "label").iter_rows())
    names = []
    for verb, preposition, other in (("send", " to ", "receiver"), ("receive", " from ", "sender")):
        label = pl.col(other).replace_strict(labels, return_dtype=pl.String)
        text = pl.concat_str(pl.lit(verb), _carried(), pl.lit(preposition), label)
        names.append(_format_texts(training.transfers.select("direction", "micro_batch", other), text))
    return pl.concat([*names, pl.Series(["transfer"], dtype=pl.Categorical())])


def _carried() -> pl.Expr:
    """Format the payload of a message: " F3" for the activations of micro-batch 3; "" if unknown."""
    letter = pl.col("direction").cast(pl.String).replace_strict(_LETTERS, default="", return_dtype=pl.String)
    payload = pl.concat_str(letter.fill_null(""), pl.col("micro_batch").cast(pl.String).fill_null(""))
    return pl.when(payload == "").then(payload).otherwise(pl.lit(" ") + payload)


def _draw_run(training: Training, drawing: Drawing, is_drawn: pl.Expr) -> None:
    """Draw the rows of the run: its steps, and the share of lanes in a bubble for each stage."""
    steps = (
        span_steps(training.steps)
        .filter(is_drawn)
        .select(
            *("start_ns", "end_ns"),
            name=pl.concat_str(pl.lit("step "), "step").cast(pl.Categorical()),
            color=_color("step"),
            flow_id=_no_flow(),
            lanes="lane_count",
            is_partial=pl.when("is_partial").then(pl.lit(True)),
        )
    )
    if len(steps):
        texts = ["from the first GPU to the last", describe_groups(training.lanes["clock_group"])]
        track = Track(path=("steps",), name="steps", rank=0, description="; ".join(filter(None, texts)))
        drawing.tracks.append(track)
        drawing.subtracks.extend(
            SliceSubtrack(track=track.path, number=number, content=part)
            for _, number, part in flat_subtracks(steps)
        )
    lane_states = training.lane_states[["lane", "cause", "start_ns", "end_ns"]].filter(is_drawn)
    lane = lane_states["lane"].to_numpy()
    start, end = lane_states["start_ns"].to_numpy(), lane_states["end_ns"].to_numpy()
    waits = ~is_among(lane_states["cause"], _BUSY)
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
        drawing.subtracks.append(CounterSubtrack(track=track.path, samples=samples))


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


def _color(key: str) -> pl.Expr:
    return pl.lit(key, dtype=pl.Categorical())


def _no_flow() -> pl.Expr:
    return pl.lit(None, dtype=pl.UInt64)


TITLE = "MPI messages"


_RANK = 5000  # of the process, above its threads


_ARGUMENTS = ("call", "peer", "tag", "size_bytes", "communicator", "is_guess", "not_joined")


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
    if messages.is_empty():
        return {}
    slices = _build_slices(messages.hstack(pairs))
    last = pl.coalesce("end_ns", "start_ns")
    if start_ns is not None:
        slices = slices.filter(last >= start_ns)
    if end_ns is not None:
        slices = slices.filter(pl.col("start_ns") < end_ns)
    drawings = {}
    for (report,), of_report in sorted(slices.partition_by("report", as_dict=True).items()):
        number = int(str(report))
        tracks, subtracks = [], list[Subtrack]()
        for (row,), own in of_report.partition_by("process_row", as_dict=True, maintain_order=True).items():
            path = (str(row), TITLE)
            tracks.append(Track(path=path, name=TITLE, rank=_RANK))
            subtracks += _draw_row(own, path)
        drawings[number] = Drawing(report_id=_report_id(number), tracks=tracks, subtracks=subtracks)
    return drawings


def _build_slices(messages: pl.DataFrame) -> pl.DataFrame:
    """Build the slices of messages, and of arrivals inside receives.

    Report, process_row, id, outer, and the columns of `SLICES`.
    """
    rows = messages.with_row_index("id").with_columns(pl.col("id").cast(pl.Int64))
    sends = rows.select("id", sent_ns="start_ns")
    rows = rows.join(sends, left_on="other", right_on="id", how="left", maintain_order="left").with_columns(
        pl.col("other").cast(pl.Int64)
    )
    left_ns = pl.col("sent_ns") + 1  # after the send: equal times have no direction
    arrives = (~pl.col("is_send") & (left_ns < pl.col("end_ns"))).fill_null(value=False)
    joined = rows.filter(arrives).select(send="other").with_columns(is_joined=pl.lit(value=True))
    rows = rows.join(joined, left_on="id", right_on="send", how="left", maintain_order="left")
    high = pl.lit(sequence_id(_report_id(-1)) << 32, pl.UInt64)
    own = {name: pl.col(name) for name in ("report", "process_row", "peer", "tag", "size_bytes")} | {
        "communicator": pl.col("communicator").cast(pl.Categorical()),
        "is_guess": pl.when("is_guess").then(pl.lit(value=True)),
        "not_joined": pl.col("unpaired").cast(pl.String).cast(pl.Categorical()),
        "call": pl.col("name"),
    }
    verb = pl.when("is_send").then(pl.lit("send to ")).otherwise(pl.lit("receive from "))
    peer = pl.format("rank {}", pl.col("peer"))
    calls = rows.select(
        "id",
        **own,
        start_ns="start_ns",
        end_ns=pl.coalesce("end_ns", "start_ns"),
        outer=pl.lit(None, pl.Int64),
        title=pl.concat_str(verb, peer.fill_null("any rank")).cast(pl.Categorical()),
        color=pl.when("is_send").then(pl.lit("send")).otherwise(pl.lit("receive")).cast(pl.Categorical()),
        flow_id=pl.when("is_joined").then(pl.col("id").cast(pl.UInt64) + high),
    )
    arrivals = rows.filter(arrives).select(
        id=pl.col("id") + len(rows),
        **own,
        start_ns=pl.max_horizontal(left_ns, "start_ns"),
        end_ns="end_ns",
        outer="id",
        title=pl.lit("message").cast(pl.Categorical()),
        color=pl.lit("communication").cast(pl.Categorical()),
        flow_id=pl.col("other").cast(pl.UInt64) + high,
    )
    return pl.concat([calls, arrivals])


def _draw_row(slices: pl.DataFrame, path: tuple[str, ...]) -> list[SliceSubtrack]:
    row_of = slices.select("id", row=pl.int_range(pl.len()))
    parents = slices.join(row_of, left_on="outer", right_on="id", how="left", maintain_order="left")["row"]
    columns = slices.select(
        "start_ns",
        "end_ns",
        name="title",
        color="color",
        flow_id="flow_id",
        **{name: name for name in _ARGUMENTS},
    ).with_columns(parents.fill_null(-1).alias("parent"))
    return [
        SliceSubtrack(track=path, number=number, content=content)
        for _, number, content in nested_subtracks(columns)
    ]


def _report_id(report: int) -> int:
    digest = hashlib.blake2b(f"nsys-pp messages of MPI\0{report}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")

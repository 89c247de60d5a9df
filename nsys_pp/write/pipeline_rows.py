"""What a run's training shows in a trace, besides what each report shows by itself.

pipeline                the whole run
  steps                 from the first lane that begins to the last one that ends
  bubble of stage 0     counter: share of the stage's GPUs that compute nothing
node2
  GPU 0
    steps
    jobs                where their kernels ran that are not communication
    messages            sends and receives; arrows go to the moment from which a message was on its way

These rows need all reports, so they are drawn when reports are put together; times are the trace's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys_pp.part import Track
from nsys_pp.training import MESSAGE_KINDS, Training, span_steps
from nsys_pp.write.drawing import SAMPLES, CounterLane, Drawing, Lane, SliceLane
from nsys_pp.write.perfetto_clocks import sequence_id
from nsys_pp.write.slices import flat_lanes, nested_lanes

RUN = "pipeline"
"""The row of what belongs to no machine; it stands where machines stand."""

_RANKS = {"steps": -3000, "jobs": -2000, "messages": -1000}  # above all that a report shows on its GPU
_LETTERS = {"forward": "F", "backward": "B", "weight_gradient": "W", "recompute": "R"}
_BUSY = ("compute", "pause")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow:
    """Where a lane is drawn."""

    machine: str
    row: str  # the GPU's row under its machine


def draw_training(
    training: Training,
    places: Mapping[int, GpuRow],
    *,
    start_ns: int | None = None,
    end_ns: int | None = None,
) -> dict[str, Drawing]:
    """Draw what a training is, machine by machine.

    Args:
        training: The run.
        places: Of each lane that is drawn.
        start_ns: Leave out what ended before.
        end_ns: Leave out what began after.

    Returns:
        By machine; the whole run's stands under `RUN`. Empty without jobs and messages, or places.
    """
    if not places or (training.jobs.is_empty() and training.arrows.is_empty()):
        return {}
    is_drawn = _reaches(start_ns, end_ns)
    rows = {
        "steps": _lane_steps(training).filter(is_drawn),
        "jobs": _jobs(training, is_drawn),
        "messages": _messages(training, is_drawn),
    }
    by_lane = {kind: frame.partition_by("lane", as_dict=True) for kind, frame in rows.items()}
    labels = dict(training.lanes.select("lane", "label").iter_rows())
    taken: dict[GpuRow, int] = {}
    for place in places.values():
        taken[place] = taken.get(place, 0) + 1
    drawings = {machine: _empty(machine) for machine in [RUN, *sorted({p.machine for p in places.values()})]}
    for lane, place in places.items():
        drawing = drawings[place.machine]
        for kind, rank in _RANKS.items():
            frame = by_lane[kind].get((lane,))
            if frame is None:
                continue
            name = kind if taken[place] == 1 else f"{kind} of {labels[lane]}"
            track = Track(path=(place.row, name), name=name, rank=rank + lane)
            drawing.tracks.append(track)
            drawing.lanes.extend(_lanes(track, frame.drop("lane")))
    _draw_run(training, drawings[RUN], is_drawn)
    return {machine: drawing for machine, drawing in drawings.items() if drawing.lanes}


def _empty(machine: str) -> Drawing:
    digest = hashlib.blake2b(f"nsys-pp training\0{machine}".encode(), digest_size=8).digest()
    return Drawing(report_id=int.from_bytes(digest, "little"), tracks=[], lanes=[])


def _lanes(track: Track, slices: pl.DataFrame) -> list[Lane]:
    split = nested_lanes if "parent" in slices.columns else flat_lanes
    return [SliceLane(track=track.path, lane=number, slices=part) for number, part in split(slices)]


def _lane_steps(training: Training) -> pl.DataFrame:
    return training.steps.select(
        "lane",
        *("start_ns", "end_ns"),
        name=pl.concat_str(pl.lit("step "), "step").cast(pl.Categorical()),
        color=_color("step"),
        flow_id=_no_flow(),
        is_partial=pl.when("is_partial").then(pl.lit(True)),
    )


def _reaches(start_ns: int | None, end_ns: int | None) -> pl.Expr:
    """Say which rows reach into a window."""
    reaches = pl.lit(True)
    if start_ns is not None:
        reaches &= pl.col("end_ns") >= start_ns
    if end_ns is not None:
        reaches &= pl.col("start_ns") < end_ns
    return reaches


def _jobs(training: Training, is_drawn: pl.Expr) -> pl.DataFrame:
    """Draw jobs where they computed; `parent` is the row of the job around each on its lane."""
    jobs = (
        training.jobs.filter(~pl.col("kind").is_in(MESSAGE_KINDS))
        .with_columns(all_start_ns="start_ns", all_end_ns="end_ns")
        .with_columns(
            start_ns=pl.coalesce("compute_start_ns", "start_ns"),
            end_ns=pl.coalesce("compute_end_ns", "end_ns"),
        )
        .filter(is_drawn)
    )
    row = pl.int_range(pl.len()).over("lane")
    parents = jobs.select("lane", outer="job", parent=row)
    return jobs.join(parents, on=["lane", "outer"], how="left", maintain_order="left").select(
        "lane",
        "start_ns",
        "end_ns",
        parent=pl.col("parent").fill_null(-1),
        name=_job_name(training).cast(pl.Categorical()),
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


def _job_name(training: Training) -> pl.Expr:
    """Name a job as its bar has it: `F3`, with several chunks `F3 chunk 1`; others by their kind."""
    kind = pl.col("kind").cast(pl.String)
    letter = kind.replace_strict(_LETTERS, default=None, return_dtype=pl.String)
    several = training.jobs["chunk"].drop_nulls().n_unique() > 1 and training.schedule.name != "dualpipev"
    number = pl.col("label").str.extract(r"^(\d+)").fill_null("")  # a label may have its own letter: "3b"
    chunk = (
        pl.when(pl.col("chunk").is_not_null() & pl.lit(several))
        .then(pl.concat_str(pl.lit(" chunk "), "chunk"))
        .otherwise(pl.lit(""))
    )
    return (
        pl.when(kind == "forward_backward")
        .then(pl.col("label"))
        .when(letter.is_not_null())
        .then(pl.concat_str(letter, number, chunk))
        .when(kind == "other")
        .then(pl.col("name").cast(pl.String).fill_null("(no name)"))
        .otherwise(kind)
    )


def _messages(training: Training, is_drawn: pl.Expr) -> pl.DataFrame:
    """Draw both kernels of each message, and inside the receive the time in which it was on its way.

    An arrow joins the send to that inner slice: the receive itself usually begins before its send,
    and a viewer directs arrows by time.
    """
    labels = training.lanes.select("lane", "label")
    arrows = (
        training.arrows.with_columns(what=_carried(), arrow=pl.int_range(pl.len()).cast(pl.UInt64))
        .join(labels.rename({"lane": "sender", "label": "source_label"}), on="sender", how="left")
        .join(labels.rename({"lane": "receiver", "label": "target_label"}), on="receiver", how="left")
        .sort("arrow")
    )
    high = pl.lit(sequence_id(_empty(RUN).report_id) << 32, pl.UInt64)
    left_ns = pl.col("send_start_ns") + 1  # later than the send: equal times do not tell a direction
    arrives = left_ns < pl.col("receive_end_ns")
    flow = pl.when(arrives).then(pl.col("arrow") + high)
    sends = _message_slices(
        arrows,
        lane="sender",
        start_ns=pl.col("send_start_ns"),
        end_ns=pl.col("send_end_ns"),
        name=pl.concat_str(pl.lit("send"), "what", pl.lit(" to "), "target_label"),
        color="send",
        flow_id=flow,
        wait_ns=pl.col("send_wait_ns"),
        level=0,
    )
    receives = _message_slices(
        arrows,
        lane="receiver",
        start_ns=pl.col("receive_start_ns"),
        end_ns=pl.col("receive_end_ns"),
        name=pl.concat_str(pl.lit("receive"), "what", pl.lit(" from "), "source_label"),
        color="receive",
        flow_id=_no_flow(),
        wait_ns=pl.col("receive_wait_ns"),
        level=0,
    )
    ways = _message_slices(
        arrows.filter(arrives),
        lane="receiver",
        start_ns=pl.max_horizontal(left_ns, "receive_start_ns"),
        end_ns=pl.col("receive_end_ns"),
        name=pl.lit("transfer"),
        color="communication",
        flow_id=flow,
        wait_ns=pl.lit(None, pl.Int64),
        level=1,
    )
    slices = pl.concat([sends, receives, ways]).filter(is_drawn).sort("lane", "start_ns", "level", "arrow")
    row = pl.int_range(pl.len()).over("lane")
    outer = slices.with_columns(parent=row).filter(~pl.col("is_send"), level=0)
    return (
        slices.join(
            outer.select("lane", "arrow", "parent", level=pl.lit(1, pl.Int32)),
            on=["lane", "arrow", "level"],
            how="left",
            maintain_order="left",
        )
        .with_columns(pl.col("parent").fill_null(-1))
        .drop("arrow", "level", "is_send")
    )


def _message_slices(
    arrows: pl.DataFrame,
    *,
    lane: str,
    start_ns: pl.Expr,
    end_ns: pl.Expr,
    name: pl.Expr,
    color: str,
    flow_id: pl.Expr,
    wait_ns: pl.Expr,
    level: int,
) -> pl.DataFrame:
    return arrows.select(
        lane=lane,
        arrow="arrow",
        level=pl.lit(level, pl.Int32),
        is_send=pl.lit(lane == "sender"),
        start_ns=start_ns,
        end_ns=end_ns,
        name=name.cast(pl.Categorical()),
        color=_color(color),
        flow_id=flow_id,
        step="step",
        micro_batch="micro_batch",
        size_bytes="size_bytes",
        wait_ns=wait_ns,
        transfer_ns="transfer_ns",
        bound_ns="bound_ns",
        is_buffered=pl.when("is_buffered").then(pl.lit(True)),
        paired_by=pl.col("source").cast(pl.Categorical()),
    )


def _carried() -> pl.Expr:
    """Say what a message carries: ` F3`; nothing where that is unknown."""
    letter = pl.col("direction").cast(pl.String).replace_strict(_LETTERS, default="", return_dtype=pl.String)
    what = pl.concat_str(letter.fill_null(""), pl.col("micro_batch").cast(pl.String).fill_null(""))
    return pl.when(what == "").then(what).otherwise(pl.lit(" ") + what)


def _draw_run(training: Training, drawing: Drawing, is_drawn: pl.Expr) -> None:
    """Draw what belongs to no machine: steps from first to last lane, and the bubble of each stage."""
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
        track = Track(path=("steps",), name="steps", rank=0, description="from the first GPU to the last")
        drawing.tracks.append(track)
        drawing.lanes.extend(_lanes(track, steps))
    stages = training.lanes.drop_nulls("stage").select("lane", "stage")
    pieces = training.pieces.filter(is_drawn).join(stages, on="lane", how="inner")
    for (stage,), rows in sorted(pieces.partition_by("stage", as_dict=True).items()):
        name = f"bubble of stage {stage}"
        track = Track(path=(name,), name=name, rank=1 + int(str(stage)), counter_unit="%")
        drawing.tracks.append(track)
        drawing.lanes.append(CounterLane(track=track.path, samples=_bubble_samples(rows)))


def _bubble_samples(pieces: pl.DataFrame) -> pl.DataFrame:
    """Sample the share of a stage's lanes that compute nothing, wherever it changes (`SAMPLES`, percent)."""
    waits = pieces.filter(~pl.col("cause").is_in(_BUSY))
    begins = waits.select(time_ns="start_ns", change=pl.lit(1))
    ends = waits.select(time_ns="end_ns", change=pl.lit(-1))
    changes = pl.concat([begins, ends]).group_by("time_ns").agg(pl.col("change").sum()).sort("time_ns")
    count = np.cumsum(changes["change"].to_numpy())
    share = np.round(100 * count / max(pieces["lane"].n_unique(), 1), 1)
    return (
        pl.DataFrame({"time_ns": changes["time_ns"], "value": share, "change": changes["change"]})
        .filter(pl.col("change") != 0)
        .select(pl.col(name).cast(dtype) for name, dtype in SAMPLES.items())
    )


def _color(key: str) -> pl.Expr:
    return pl.lit(key, dtype=pl.Categorical())


def _no_flow() -> pl.Expr:
    return pl.lit(None, dtype=pl.UInt64)

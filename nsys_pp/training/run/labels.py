"""Labels of jobs: the short texts on their bars."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import as_whole_numbers, find_distinct, pack, whole_numbers
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import MESSAGE_KINDS, RUN_JOBS, RUN_STEPS, Schedule, mark_split_backwards
from nsys_pp.training.run.orders import WEIGHT_GRADIENT, order_jobs, running_count
from nsys_pp.training.run.sequences import build_sequences

_WORDS = {  # labels of jobs without a micro-batch, or in addition to it
    "forward": "F",
    "backward": "B",
    "weight_gradient": "W",
    "recompute": "R",
    "forward_backward": "F+B",
    "optimizer": "opt",
    "send": "send",
    "receive": "recv",
    "send_receive": "send+recv",
    "data": "data",
    "other": "",
}
_IDS = ("micro_batch", "chunk", "backward_micro_batch", "backward_chunk")


def label_jobs(jobs: pl.DataFrame, lanes: pl.DataFrame, schedule: Schedule) -> pl.DataFrame:
    """Label the jobs, and add the phases of a DualPipeV schedule.

    The label of a forward or backward is its micro-batch; the halves of a split backward are `3b` and `3w`, a
    recomputation is `3r`, a combined forward and backward `7F+13B`. DualPipeV has the labels of msprof-analyze:
    micro-batch k of the second chunk is number m + k of m micro-batches, and backwards are `3B`. Other
    jobs are labelled by a word for their kind, messages by a word and their micro-batch.

    Args:
        jobs: All `RUN_JOBS`.
        lanes: `LANES`.
        schedule: The schedule of the run.

    Returns:
        `RUN_JOBS` with `label`, and `phase` where a lane has the number of jobs of DualPipeV in a step.
    """
    is_v = schedule.name == "dualpipev"
    phase = _find_phases(jobs, lanes, schedule) if is_v else as_whole_numbers(np.full(len(jobs), -1))
    jobs = jobs.with_columns(phase=phase)
    is_split = mark_split_backwards(jobs)
    # few labels are distinct
    keys = jobs[["kind", "phase", *_IDS]].hstack([is_split.alias("is_split")])
    ids = (whole_numbers(jobs[name]) for name in ("kind", "phase", *_IDS))
    code = pack(*ids, is_split.to_numpy().astype(np.int64))
    first, distinct = find_distinct(code)
    text = _build_label(base=schedule.micro_batch_count if is_v else 0, is_v=is_v)
    label = keys[first].select(text).to_series()
    return conform(jobs.with_columns(label=label[distinct]), RUN_JOBS)


def _build_label(*, base: int, is_v: bool) -> pl.Expr:
    """Build the label of a job; micro-batches of the second chunk count from `base`."""
    number = pl.col("micro_batch") + base * pl.col("chunk").fill_null(0)
    partner = pl.col("backward_micro_batch") + base * pl.col("backward_chunk").fill_null(0)
    kind = pl.col("kind").cast(pl.String)
    word = kind.replace_strict(_WORDS, return_dtype=pl.String)
    half = pl.when("is_split").then(pl.concat_str(number, pl.lit("b")))
    forms = {
        "forward": pl.when(pl.col("phase") == 3).then(pl.concat_str(number, pl.lit("F"))),
        "backward": pl.coalesce(half, pl.concat_str(number, pl.lit("B"))) if is_v else half,
        "weight_gradient": pl.concat_str(number, pl.lit("w")),
        "recompute": pl.concat_str(number, pl.lit("r")),
        "forward_backward": pl.concat_str(number, pl.lit("F+"), partner, pl.lit("B")),
        **{message: pl.concat_str(word, number, separator=" ") for message in MESSAGE_KINDS},
    }
    form = pl.coalesce(pl.when(kind == name).then(form) for name, form in forms.items())
    return pl.coalesce(form, pl.when(kind.is_in(["forward", "backward"])).then(number.cast(pl.String)), word)


def _find_phases(jobs: pl.DataFrame, lanes: pl.DataFrame, schedule: Schedule) -> pl.Series:
    """Return the phase of DualPipeV of each job by its position, in groups with all jobs."""
    sequences = build_sequences(lanes, RUN_STEPS.to_frame(), jobs)
    stages, micro_batches = schedule.stage_count, schedule.micro_batch_count
    if not 0 < 2 * stages <= micro_batches:
        return as_whole_numbers(np.full(len(jobs), -1))
    orders = [
        order_jobs("dualpipev", stage=stage, stages=stages, micro_batches=micro_batches, chunks=2)
        for stage in range(stages)
    ]
    kept = [order.phase[order.kind != WEIGHT_GRADIENT] for order in orders]
    lengths = np.array([len(phases) for phases in kept])
    stage = sequences.stage[sequences.group]
    count = np.bincount(sequences.group) - sequences.weights
    is_whole = (stage >= 0) & (count[sequences.group] == lengths[stage])
    # a weight gradient has the phase of the job before it
    before = running_count(sequences.group) - sequences.weight_rank - 1
    position = np.where(sequences.is_weight, before.clip(0), sequences.position)
    offsets = np.cumsum(lengths) - lengths
    phase = np.full(len(jobs), -1)
    phase[sequences.row[is_whole]] = np.concatenate(kept)[(offsets[stage] + position)[is_whole]]
    return as_whole_numbers(phase)

"""Orders of the jobs of a stage under each schedule.

Every schedule keeps the order of micro-batches: the n-th forward of a chunk is micro-batch n, and so are its
n-th backward and its n-th weight gradient. An order is therefore a sequence of tokens (kind, chunk);
micro-batches are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from msgspec import Struct

from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.training import SCHEDULED_KINDS
from nsys_pp.options import SCHEDULES

FORWARD, BACKWARD, WEIGHT_GRADIENT, BOTH = range(len(SCHEDULED_KINDS))
"""Indices of `SCHEDULED_KINDS`: the kinds of jobs in arrays."""

# Tokens of jobs: kind, chunk, chunk of the backward of a combined job.
_F, _B, _W = [FORWARD, 0, -1], [BACKWARD, 0, -1], [WEIGHT_GRADIENT, 0, -1]
_F1, _B1, _W1 = [FORWARD, 1, -1], [BACKWARD, 1, -1], [WEIGHT_GRADIENT, 1, -1]
_F_B1, _F1_B = [BOTH, 0, 1], [BOTH, 1, 0]


class Order(Struct, frozen=True, kw_only=True):
    """Jobs of one stage in one step, in order; -1 for absent numbers.

    Attributes:
        kind: Index of `SCHEDULED_KINDS`.
        micro_batch: Micro-batch; for a combined job, of its forward.
        chunk: Chunk; for a combined job, of its forward.
        backward_micro_batch: Micro-batch of the backward of a combined job.
        backward_chunk: Chunk of the backward of a combined job.
        phase: Phase of DualPipeV, 0 to 6.
    """

    kind: Int64s
    micro_batch: Int64s
    chunk: Int64s
    backward_micro_batch: Int64s
    backward_chunk: Int64s
    phase: Int64s


@lru_cache(maxsize=4096)
def order_jobs(
    schedule: str, *, stage: int, stages: int, micro_batches: int, chunks: int = 1, group: int | None = None
) -> Order:
    """List the jobs of a stage in one step.

    Args:
        schedule: One of `SCHEDULES`.
        stage: The stage, from 0.
        stages: Stages of the pipeline.
        micro_batches: Micro-batches of a step.
        chunks: Chunks of a stage: any number if "interleaved", 2 if "dualpipev", else 1.
        group: For "interleaved": consecutive micro-batches of one chunk (Megatron-LM's
            `microbatch_group_size_per_vp_stage`); the last group may be smaller. Default:
            `micro_batches // stages` groups of nearly equal size.

    Returns:
        The order, with each forward and backward of each chunk and micro-batch once.

    Raises:
        ValueError: The schedule is unknown, or DualPipeV has fewer than two micro-batches per stage.

    >>> order = order_jobs("1f1b", stage=2, stages=4, micro_batches=3)
    >>> [(SCHEDULED_KINDS[kind], number) for kind, number in zip(order.kind, order.micro_batch.tolist())][:3]
    [('forward', 0), ('forward', 1), ('backward', 0)]
    """
    if schedule == "interleaved":
        tokens = _interleaved(stage, stages, chunks, _group_sizes(stages, micro_batches, group))
    elif schedule in _ONE_WAY:
        tokens = _ONE_WAY[schedule](stage, stages, micro_batches)
    else:
        raise ValueError(f"unknown schedule {schedule!r}; expected one of {', '.join(SCHEDULES)}")
    phase = _phases(stage, stages, len(tokens)) if schedule == "dualpipev" else np.full(len(tokens), -1)
    return _build_order(tokens, phase)


def running_count(values: Int64s) -> Int64s:
    """Count the earlier occurrences of each value.

    >>> running_count(np.array([4, 7, 4, 4, 7]))
    array([0, 0, 1, 2, 1])
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    index = np.arange(len(values))
    is_first = np.ones(len(values), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    count = np.empty(len(values), np.int64)
    count[order] = index - np.maximum.accumulate(np.where(is_first, index, 0))
    return count


def count_micro_batches(
    kind: Int64s, chunk: Int64s, backward_chunk: Int64s, group: Int64s | None = None
) -> tuple[Int64s, Int64s]:
    """Number jobs by counting earlier jobs of the same direction and chunk.

    Args:
        kind: Indices of `SCHEDULED_KINDS`, in order of time.
        chunk: -1 counts as a chunk of its own.
        backward_chunk: Chunk of the backward of combined jobs; ignored for others.
        group: Counts restart in every group. Default: one group.

    Returns:
        Micro-batches, and micro-batches of the backwards of combined jobs; -1 for others.
    """
    is_both = kind == BOTH
    base = int(max(chunk.max(initial=0), backward_chunk.max(initial=0))) + 2
    forward = np.where(is_both, FORWARD, kind) * base + chunk + 1
    backward = np.where(is_both, BACKWARD * base + backward_chunk + 1, len(SCHEDULED_KINDS) * base)
    keys = np.stack([forward, backward], axis=1)
    if group is not None:
        keys += ((len(SCHEDULED_KINDS) + 1) * base * group)[:, None]
    counted = running_count(keys.ravel()).reshape(-1, 2)
    return counted[:, 0], np.where(is_both, counted[:, 1], -1)


def _build_order(tokens: Int64s, phase: Int64s) -> Order:
    """Build an order from tokens, with micro-batches."""
    kind, chunk, backward_chunk = np.ascontiguousarray(tokens.T)
    micro_batch, backward_micro_batch = count_micro_batches(kind, chunk, backward_chunk)
    order = Order(
        kind=kind,
        micro_batch=micro_batch,
        chunk=chunk,
        backward_micro_batch=backward_micro_batch,
        backward_chunk=backward_chunk,
        phase=phase,
    )
    for name in Order.__struct_fields__:
        getattr(order, name).flags.writeable = False  # cached and shared
    return order


def _all_forward_all_backward(stage: int, stages: int, micro_batches: int) -> Int64s:
    """Return the tokens of GPipe, Paddle's FThenB."""
    del stage, stages
    return _join(_repeat([_F], micro_batches), _repeat([_B], micro_batches))


def _one_forward_one_backward(stage: int, stages: int, micro_batches: int) -> Int64s:
    warm_up = min(stages - stage - 1, micro_batches)
    return _join(_repeat([_F], warm_up), _repeat([_F, _B], micro_batches - warm_up), _repeat([_B], warm_up))


def _zero_bubble_h1(stage: int, stages: int, micro_batches: int) -> Int64s:
    """Return the tokens of ZB-H1: 1F1B of forwards and input gradients.

    Weight gradients of stage s lag s micro-batches.
    """
    warm_up = min(stages - stage - 1, micro_batches)
    index = np.arange(micro_batches)
    exists = np.stack([warm_up + index < micro_batches, index >= 0, index >= stage], axis=1)
    steady = _repeat([_F, _B, _W], micro_batches)[exists.ravel()]
    return _join(_repeat([_F], warm_up), steady, _repeat([_W], min(stage, micro_batches)))


def _interleaved(stage: int, stages: int, chunks: int, sizes: Int64s) -> Int64s:
    """Return the tokens of Megatron-LM's interleaved 1F1B.

    Groups of micro-batches pass through the chunks in turn.
    """
    turns = np.repeat(np.tile(np.arange(chunks), len(sizes)), np.repeat(sizes, chunks))
    forwards, backwards = np.full((2, len(turns), 3), -1)
    forwards[:, 0], forwards[:, 1] = FORWARD, turns
    backwards[:, 0], backwards[:, 1] = BACKWARD, chunks - 1 - turns
    warm_up = 2 * (stages - stage - 1) + (chunks - 1) * int(sizes.max(initial=0))
    warm_up = min(warm_up, len(turns))
    steady = len(turns) - warm_up
    pairs = np.stack([forwards[warm_up:], backwards[:steady]], axis=1).reshape(-1, 3)
    return _join(forwards[:warm_up], pairs, backwards[steady:])


def _group_sizes(stages: int, micro_batches: int, group: int | None) -> Int64s:
    """Return the number of micro-batches of each group.

    >>> _group_sizes(4, 10, None), _group_sizes(4, 10, 4)
    (array([5, 5]), array([4, 4, 2]))
    """
    if group is not None:
        return np.diff(np.append(np.arange(0, micro_batches, group), micro_batches))
    count = max(1, micro_batches // stages)
    return np.diff(micro_batches * np.arange(count + 1) // count)


def _dualpipev(stage: int, stages: int, micro_batches: int) -> Int64s:
    """Return the tokens of DualPipeV.

    Two chunks in a V, forwards of one combined with backwards of the other.
    """
    if micro_batches < 2 * stages:
        raise ValueError(f"DualPipeV on {stages} stages needs {2 * stages} micro-batches or more")
    after = stages - stage - 1  # later stages
    overlaps = _repeat([_F_B1, _F1_B], micro_batches - stages - after)
    if after == 0:  # the last stage cannot begin a backward before its forward has ended
        overlaps = _join(_repeat([_F, _B1], 1), overlaps[1:])
    return _join(
        _repeat([_F], 2 * after),
        _repeat([_F, _F1], stage + 1),
        _repeat([_B1, _W1, _F1], after),
        overlaps,
        _repeat([_B1, _F1_B], after),
        _repeat([_B1, _B], stage + 1),
        _repeat([_B], after),
    )


def _phases(stage: int, stages: int, count: int) -> Int64s:
    """Return the phase of DualPipeV of each job.

    0 warm-up, 1 interleaved forward, 2 backward, weight gradient and forward in turn, 3 overlap, 4 backward
    and overlap in turn, 5 interleaved backward, 6 cool-down.
    """
    after = stages - stage - 1
    sizes = np.array([2 * after, 2 * (stage + 1), 3 * after, 0, 2 * after, stage + 1, stages])
    sizes[3] = count - sizes.sum()
    return np.repeat(np.arange(7), sizes)


def _repeat(tokens: list[list[int]], times: int) -> Int64s:
    return np.tile(np.array(tokens, np.int64), (times, 1))


def _join(*parts: Int64s) -> Int64s:
    return np.concatenate(parts)


_ONE_WAY: dict[str, Callable[[int, int, int], Int64s]] = {  # schedules without a choice of chunks
    "gpipe": _all_forward_all_backward,
    "1f1b": _one_forward_one_backward,
    "zb-h1": _zero_bubble_h1,
    "dualpipev": _dualpipev,
}

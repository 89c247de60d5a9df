"""Orders of the jobs of a stage under each schedule.

Every schedule keeps the order of micro-batches: the n-th forward of a chunk is micro-batch n, and so are its
n-th backward and its n-th weight gradient. An order is therefore a list of tokens (kind, chunk);
micro-batches are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

import polars as pl

from nsys_pp.frames.training import JOB_KIND

# What a job does; a combined job is a forward and a backward.
WAYS = ("forward", "backward", "weight")

# Tokens of jobs: kind, chunk, chunk of the backward of a combined job.
_Token = tuple[str, int, int | None]
_F, _F1 = (("forward", chunk, None) for chunk in (0, 1))
_B, _B1 = (("backward", chunk, None) for chunk in (0, 1))
_W, _W1 = (("weight_gradient", chunk, None) for chunk in (0, 1))
_F_B1, _F1_B = ("forward_backward", 0, 1), ("forward_backward", 1, 0)


def mark_ways() -> list[pl.Expr]:
    """Return the masks is_forward, is_backward and is_weight of jobs with `kind`."""
    kinds = (
        ["forward", "forward_backward"],
        ["backward", "forward_backward"],
        ["weight_gradient"],
    )
    return [pl.col("kind").is_in(own).alias(f"is_{way}") for way, own in zip(WAYS, kinds, strict=True)]


def count_earlier(mark: str, *by: str) -> pl.Expr:
    """Count the earlier marked rows of the same group."""
    return (pl.col(mark).cum_sum().cast(pl.Int64) - pl.col(mark).cast(pl.Int64)).over(*by)


def number_jobs(*by: str) -> list[pl.Expr]:
    """Return the micro-batch of jobs, and of the backward of combined jobs, by counting earlier jobs.

    Jobs in the same direction and of the same chunk are counted; an unknown chunk counts as one of its own.

    Args:
        by: Columns; counts restart in every group.
    """
    backward_chunk = pl.when("is_forward").then("backward_chunk").otherwise("chunk")
    backward = (pl.col("is_backward").cum_sum().cast(pl.Int64) - 1).over(*by, backward_chunk)
    forward, weight = (count_earlier(f"is_{way}", *by, "chunk") for way in ("forward", "weight"))
    micro_batch = pl.when("is_forward").then(forward).when("is_backward").then(backward).otherwise(weight)
    return [
        micro_batch.alias("micro_batch"),
        pl.when(pl.col("is_forward") & pl.col("is_backward")).then(backward).alias("backward_micro_batch"),
    ]


@lru_cache(maxsize=4096)
def order_jobs(
    schedule: str, *, stage: int, stages: int, micro_batches: int, chunks: int = 1
) -> pl.DataFrame:
    """List the jobs of a stage in one step.

    Args:
        schedule: One of `SCHEDULES`.
        stage: The stage, from 0.
        stages: Stages of the pipeline.
        micro_batches: Micro-batches of a step.
        chunks: Chunks of a stage: any number if "interleaved", 2 if "dualpipev", else 1.

    Returns:
        kind, micro_batch, chunk, and backward_micro_batch and backward_chunk of combined jobs (else null), in
        order: each forward and backward of each chunk and micro-batch once. Also is_forward, is_backward and
        is_weight, and the phase of DualPipeV, 0 to 6 (else null).

    Raises:
        ValueError: DualPipeV has fewer than two micro-batches per stage.

    >>> order = order_jobs("1f1b", stage=2, stages=4, micro_batches=3)
    >>> order.select("kind", "micro_batch").rows()[:3]
    [('forward', 0), ('forward', 1), ('backward', 0)]
    """
    warm_up = min(stages - stage - 1, micro_batches)
    orders: dict[str, Callable[[], Sequence[_Token]]] = {
        "gpipe": lambda: [_F] * micro_batches + [_B] * micro_batches,
        "1f1b": lambda: [_F] * warm_up + [_F, _B] * (micro_batches - warm_up) + [_B] * warm_up,
        "zb-h1": lambda: _zero_bubble_h1(stage, warm_up, micro_batches),
        "interleaved": lambda: _interleaved(stage, stages, micro_batches, chunks),
        "dualpipev": lambda: _dualpipev(stage, stages, micro_batches),
    }
    tokens = orders[schedule]()
    phases = _list_phases(stage, stages, len(tokens)) if schedule == "dualpipev" else [None] * len(tokens)
    schema = {"kind": pl.String, "chunk": pl.Int64, "backward_chunk": pl.Int64}
    jobs = (
        pl.DataFrame(tokens, schema=schema, orient="row")
        .with_columns(pl.col("kind").cast(JOB_KIND))
        .with_columns(mark_ways())
    )
    return jobs.with_columns(*number_jobs(), pl.Series("phase", phases, dtype=pl.Int64))


def _zero_bubble_h1(stage: int, warm_up: int, micro_batches: int) -> list[_Token]:
    """Return the tokens of ZB-H1: 1F1B of forwards and input gradients.

    Weight gradients of stage s lag s micro-batches.
    """
    tokens: list[_Token] = [_F] * warm_up
    for number in range(micro_batches):
        tokens += [_F] * (warm_up + number < micro_batches) + [_B] + [_W] * (number >= stage)
    return tokens + [_W] * min(stage, micro_batches)


def _interleaved(stage: int, stages: int, micro_batches: int, chunks: int) -> list[_Token]:
    """Return the tokens of Megatron-LM's interleaved 1F1B.

    Groups of micro-batches pass through the chunks in turn: `micro_batches // stages` groups of nearly equal
    size.
    """
    count = max(1, micro_batches // stages)
    edges = [micro_batches * number // count for number in range(count + 1)]
    sizes = [last - first for first, last in pairwise(edges)]
    turns = [chunk for size in sizes for chunk in range(chunks) for _ in range(size)]
    forwards: list[_Token] = [("forward", chunk, None) for chunk in turns]
    backwards: list[_Token] = [("backward", chunks - 1 - chunk, None) for chunk in turns]
    warm_up = min(2 * (stages - stage - 1) + (chunks - 1) * max(sizes), len(turns))
    pairs = zip(forwards[warm_up:], backwards, strict=False)
    return [
        *forwards[:warm_up],
        *(token for pair in pairs for token in pair),
        *backwards[len(turns) - warm_up :],
    ]


def _dualpipev(stage: int, stages: int, micro_batches: int) -> list[_Token]:
    """Return the tokens of DualPipeV.

    Two chunks in a V, forwards of one combined with backwards of the other.
    """
    if micro_batches < 2 * stages:
        raise ValueError(f"DualPipeV on {stages} stages needs {2 * stages} micro-batches or more")
    after = stages - stage - 1  # later stages
    overlaps: list[_Token] = [_F_B1, _F1_B] * (micro_batches - stages - after)
    if after == 0:  # the last stage cannot begin a backward before its forward has ended
        overlaps[:1] = [_F, _B1]
    return [
        *[_F] * (2 * after),
        *[_F, _F1] * (stage + 1),
        *[_B1, _W1, _F1] * after,
        *overlaps,
        *[_B1, _F1_B] * after,
        *[_B1, _B] * (stage + 1),
        *[_B] * after,
    ]


def _list_phases(stage: int, stages: int, count: int) -> list[int]:
    """Return the phase of DualPipeV of each job.

    0 warm-up, 1 interleaved forward, 2 backward, weight gradient and forward in turn, 3 overlap, 4 backward
    and overlap in turn, 5 interleaved backward, 6 cool-down.
    """
    after = stages - stage - 1
    sizes = [2 * after, 2 * (stage + 1), 3 * after, 0, 2 * after, stage + 1, stages]
    sizes[3] = count - sum(sizes)
    return [phase for phase, size in enumerate(sizes) for _ in range(size)]

"""Evidence of pairs of routes: the times of all messages that would belong together."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import find_distinct, gather, keep_rows, whole_numbers
from nsys_pp.arrays.order import order_rows
from nsys_pp.arrays.records import join_rows
from nsys_pp.arrays.series import build_column
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.clock import CLOCK, SKEW_NS, is_comparable, is_same_clock, relative_bound
from nsys_pp.frames.columns import select_columns
from nsys_pp.frames.training import DIRECTION, JOB_KINDS
from nsys_pp.training.run.end_evidence import MOST, SOON, Evidence, Times, score_pairs
from nsys_pp.training.run.step_positions import POSITION_COLUMNS, PositionFinder, PositionPairs

_SPAN = ("start_ns", "end_ns")
_COLUMNS = ("verb", "route", "direction", *CLOCK, *_SPAN, *POSITION_COLUMNS)
_SAMPLE = 100  # messages of a route that are compared with those of each candidate
_MOST_PAIRS = 4_000_000  # rows of all candidates: fewer messages are compared where there are many lanes
_BLOCK_PAIRS = 1 << 19  # rows of the candidates that are compared at a time, for memory
_SHORT = 0.1  # quantile of jobs, and of intervals between sends, that stands for a short job


def score_candidates(
    messages: pl.DataFrame, candidates: pl.DataFrame, job_times: pl.DataFrame, *, share: float = MOST
) -> pl.DataFrame:
    """Add the evidence of their messages to candidates.

    Messages are compared at the same position of the same step; where steps are unknown, a send with the receive that
    ends nearest. Where sends do not wait for their receives, only receives that wait for their sends are compared.
    Lanes with clocks that cannot be compared, or without known bounds, have no evidence, except of what fits if clocks
    may be wrong.

    Args:
        messages: From `number_in_steps`.
        candidates: candidate, send_route, receive_route.
        job_times: From `measure_jobs`.
        share: Share of the messages of two routes that belong together at least, if these have common messages.

    Returns:
        The candidates, in order, with score, contrast, count and together as in `Evidence`, and wild_score and wild_count: the
        same if clocks may be wrong by any constant.
    """
    size = max(12, min(_SAMPLE, _MOST_PAIRS // max(len(candidates), 1)))
    messages = select_columns(messages, _COLUMNS)
    all_sends, receives = (messages.filter(verb=verb) for verb in ("send", "receive"))
    sides = _describe_candidates(all_sends, receives, candidates, job_times)
    sends = _sample(all_sends, size)
    has_evidence = sides["is_comparable"].to_numpy()
    finder, block = PositionFinder(sends, receives), max(_BLOCK_PAIRS // size, 1)
    evidence = [
        _score_block(sends, receives, sides[first : first + block], finder, share=share)
        for first in range(0, max(len(candidates), 1), block)
    ]
    certain, wild = (
        {name: np.concatenate([getattr(part[at], name) for part in evidence]) for name in names}
        for at, names in enumerate((("score", "contrast", "count", "together"), ("score", "count")))
    )
    return candidates.hstack(
        [
            *(build_column(name, np.where(has_evidence, values, 0)) for name, values in certain.items()),
            *(build_column(f"wild_{name}", values) for name, values in wild.items()),
        ]
    )


def _score_block(
    sends: pl.DataFrame, receives: pl.DataFrame, sides: pl.DataFrame, finder: PositionFinder, *, share: float
) -> tuple[Evidence, Evidence]:
    """Compute the evidence of some candidates, as far as clocks are known, and if they may be wrong.

    Args:
        sends: Sampled.
        receives: All.
        sides: Candidates, from `_describe_candidates`.
        finder: Of both.
        share: As in `score_candidates`.
    """
    pairs = finder.pair(whole_numbers(sides["send_route"]), whole_numbers(sides["receive_route"]))
    is_seen = np.zeros(len(sides), np.bool_)
    is_seen[pairs.candidate] = True
    is_comparable = sides["is_comparable"].to_numpy()
    rest = np.flatnonzero(is_comparable & ~is_seen)
    if len(rest):
        pairs = join_rows(pairs, _pair_nearest(sends, receives, sides, rest))
    send_start, send_end = (sends[name].to_numpy()[pairs.send] for name in _SPAN)
    receive_start, receive_end = (receives[name].to_numpy()[pairs.receive] for name in _SPAN)
    reach = np.where(is_comparable, sides["reach"].to_numpy(), 0.0)
    certain, wild = score_pairs(
        pairs.candidate,
        Times(send_start=send_start, send_end=send_end, receive_start=receive_start, receive_end=receive_end),
        waits=sides["has_waits"].to_numpy(),
        reaches_ns=(reach, np.where(sides["is_same_clock"].to_numpy(), reach, np.inf)),
        transfer_ns=sides["transfer_ns"].to_numpy(),
        share=share,
    )
    return certain, wild


def _describe_candidates(
    sends: pl.DataFrame, receives: pl.DataFrame, candidates: pl.DataFrame, job_times: pl.DataFrame
) -> pl.DataFrame:
    """Add to candidates, in order: is_comparable, is_same_clock, reach (of ends), transfer_ns (the longest), both routes."""
    sides = candidates
    for messages, key, suffix in ((sends, "send_route", ""), (receives, "receive_route", "_of_receive")):
        sides = sides.join(
            _describe_routes(messages),
            left_on=key,
            right_on="route",
            suffix=suffix,
            how="left",
            maintain_order="left",
        )
    shortest = pl.min_horizontal("interval_ns", "job_ns").fill_null(0.0)
    sides = sides.join(job_times, on="direction", how="left", nulls_equal=True, maintain_order="left")
    return sides.with_columns(
        is_comparable=is_comparable("_of_receive"),
        is_same_clock=is_same_clock("_of_receive").fill_null(False),
        reach=SKEW_NS + relative_bound("_of_receive").fill_null(0),
        transfer_ns=SOON * shortest,
    )


def measure_jobs(jobs: pl.DataFrame) -> pl.DataFrame:
    """Measure short jobs whose result is sent in each direction: direction, job_ns; null for messages without one.

    Args:
        jobs: `RUN_JOBS`.
    """
    directions = pl.Series("direction", JOB_KINDS).cast(DIRECTION, strict=False)  # null for other kinds
    measured = jobs.select(
        gather(directions, whole_numbers(jobs["kind"])),
        job_ns=pl.col("compute_end_ns") - pl.col("compute_start_ns"),
    ).drop_nulls()
    times = measured.group_by("direction", maintain_order=True).agg(pl.col("job_ns").quantile(_SHORT))
    return pl.concat(
        [times, times.select(pl.lit(None, DIRECTION).alias("direction"), pl.col("job_ns").min()).head(1)]
    )


def _describe_routes(messages: pl.DataFrame) -> pl.DataFrame:
    """Describe routes.

    Returns:
        route, direction, `CLOCK`, has_waits (messages wait for their peers), interval_ns (short interval
        between messages: the time of a job), first_ns, last_ns.
    """
    length = pl.col("end_ns") - pl.col("start_ns")
    interval = pl.col("start_ns").sort().diff().drop_nulls().quantile(_SHORT)
    return messages.group_by("route", maintain_order=True).agg(
        pl.col("direction", *CLOCK).first(),
        has_waits=length.quantile(0.9) > 2 * length.min() + SKEW_NS,
        interval_ns=interval,
        first_ns=pl.col("end_ns").min(),
        last_ns=pl.col("end_ns").max(),
    )


def _sample(sends: pl.DataFrame, size: int) -> pl.DataFrame:
    """Sample up to `size` sends of each route, evenly in order of their ends."""
    if sends.is_empty():
        return sends
    _, route = find_distinct(whole_numbers(sends["route"]))
    order = order_rows(route, sends["end_ns"].to_numpy())
    count = np.bincount(route)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(count) - count, count)
    turn = rank * size // count[route]
    first, _ = find_distinct(route * size + turn)
    return keep_rows(sends, np.bincount(first, minlength=len(sends)) > 0)


def _pair_nearest(
    sends: pl.DataFrame, receives: pl.DataFrame, sides: pl.DataFrame, rows: Int64s
) -> PositionPairs:
    """Pair each send with the receive of a candidate route that ends nearest.

    A send that does not wait is paired with the first receive that ends after it. Only sends that end while the other
    lane has messages.

    Args:
        sends: Sampled.
        receives: All.
        sides: Candidates.
        rows: The candidates to be paired.
    """
    columns = [
        "send_route",
        "receive_route",
        "has_waits",
        "reach",
        "first_ns_of_receive",
        "last_ns_of_receive",
    ]
    candidates = sides[columns][rows].hstack([pl.Series("candidate", rows)])
    own, others = (
        side.select("end_ns", **{f"{name}_route": "route"}).with_columns(
            pl.Series(name, np.arange(len(side)))
        )
        for side, name in ((sends, "send"), (receives, "receive"))
    )
    wanted = candidates.join(own, on="send_route").filter(
        pl.col("end_ns").is_between("first_ns_of_receive", "last_ns_of_receive")
    )
    others = others.sort("end_ns")
    parts = []
    for has_waits in (True, False):
        chosen = wanted.filter(has_waits=has_waits)
        at = pl.col("end_ns") if has_waits else pl.col("end_ns") - pl.col("reach")
        joined = (
            chosen.with_columns(end_ns=at)
            .sort("end_ns")
            .join_asof(
                others,
                on="end_ns",
                by="receive_route",
                strategy="nearest" if has_waits else "forward",
                check_sortedness=False,
            )
        )
        parts.append(joined.select("candidate", "send", "receive").drop_nulls("receive"))
    pairs = pl.concat(parts)
    return PositionPairs(**{name: pairs[name].to_numpy() for name in PositionPairs.__struct_fields__})

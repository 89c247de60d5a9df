"""Spans of launches that may be phases of iterations, and their comparison across iterations."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.records import join_rows, select_rows
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.training.report.repetition import Launches

FORWARD, BACKWARD, OPTIMIZER, SEGMENT = range(4)  # indices of `PHASE_KINDS`
_LEAST_SHARE = 0.75  # of iterations with the same phases
_NEARLY = 0.15  # difference of the launches of a phase, as a share of them, that is none
_FEW = 4  # the same, in launches
_MOST_PHASES = 200  # in an iteration
_LEAST_FILLS = 5  # launches of one name in sequence, as those that zero gradients
_LEAST_NEAR, _PAUSE = 16, 0.25  # launches between kernels of an optimizer; the same, as a share of a forward
_LEAST_FAR, _BEFORE = 64, 0.5  # launches before them, such as the norm of gradients; the same
_NEAR = 6  # launches from the end of a phase, in which copies and fills are not of it
_MOST_FILLS = 3  # sequences of these


class Spans(Struct, frozen=True, kw_only=True):
    """Spans of launches, by iteration and first launch."""

    iteration: Int64s
    first: Int64s  # position of its first launch
    last: Int64s  # position after its last launch
    kind: Int64s  # index of `PHASE_KINDS`

    def select(self, rows: Int64s | Bools) -> Spans:
        """Return some of the spans."""
        return select_rows(self, rows)


class IterationPhases(Struct, frozen=True, kw_only=True):
    """Phases of the iterations of a device."""

    spans: Spans
    confidence: float  # 0 to 1
    reason: str


def number_iterations(begin: Int64s, end: Int64s, count: int) -> Int64s:
    """Number the launches by their iteration; -1 outside of all.

    Args:
        begin: Position of the first launch of each iteration, ascending.
        end: Position after its last launch.
        count: Number of launches.
    """
    at = np.searchsorted(begin, np.arange(count), side="right") - 1
    is_inside = (at >= 0) & (np.arange(count) < np.append(end, -1)[at])
    return np.where(is_inside, at, -1)


def mark_computing(launches: Launches) -> Bools:
    """Return the mask of launches that are neither copies nor communication."""
    mask: Bools = ~(launches.is_copy | launches.is_communication)[launches.name]
    return mask


def join_spans(*parts: Spans) -> Spans:
    """Join spans, without empty ones, by iteration and first launch."""
    joined = join_rows(*parts)
    joined = joined.select(joined.first < joined.last)
    return joined.select(np.lexsort((joined.first, joined.iteration)))


def strip_fills(launches: Launches, spans: Spans) -> Spans:
    """Shorten spans by copies, sets and sequences of one name near both ends: inputs, and zeroed gradients."""
    name = launches.name
    first = np.flatnonzero(np.append(True, name[1:] != name[:-1]))
    last = np.append(first[1:], len(name))
    is_odd = (last - first >= _LEAST_FILLS) | launches.is_copy[name[first]]
    first, last = first[is_odd], last[is_odd]
    if not len(first):
        return spans
    for _ in range(_MOST_FILLS):
        before = np.maximum(np.searchsorted(first, spans.first + _NEAR, side="right") - 1, 0)
        after = np.minimum(np.searchsorted(last, spans.last - _NEAR), len(last) - 1)
        begins_late = (first[before] <= spans.first + _NEAR) & (last[before] <= spans.last)
        ends_early = (last[after] >= spans.last - _NEAR) & (first[after] >= spans.first)
        spans = replace(
            spans,
            first=np.where(begins_late, np.maximum(spans.first, last[before]), spans.first),
            last=np.where(ends_early, np.minimum(spans.last, first[after]), spans.last),
        )
    return spans.select(spans.first < spans.last)


def chain_updates(
    update: Int64s, first: Int64s, last: Int64s, *, forward: float, is_input: Int64s
) -> tuple[Int64s, Int64s]:
    """Find the optimizer at the begin of spans: kernels of optimizers, not far from the begin and from each other.

    Args:
        update: Positions of kernels of optimizers, ascending.
        first: Begins of spans.
        last: Ends of spans.
        forward: Launches of a forward: fewer launches are between kernels of an optimizer.
        is_input: Positions of copies to the device, ascending: the next iteration begins there at the latest.

    Returns:
        Position of the first kernel of the optimizer, and after its last one; both the begin of the span without any.
    """
    if not len(update):
        return first, first
    near, far = max(_LEAST_NEAR, _PAUSE * forward), max(_LEAST_FAR, _BEFORE * forward)
    ends = np.append(np.diff(update) > near, True)  # kernels at the ends of chains
    end_of = update[np.flatnonzero(ends)[np.searchsorted(np.flatnonzero(ends), np.arange(len(update)))]] + 1
    at = np.minimum(np.searchsorted(update, first), len(update) - 1)
    is_found = (update[at] >= first) & (update[at] < last) & (update[at] - first <= far)
    stop = np.minimum(end_of[at], last)
    copies = np.append(is_input, np.iinfo(np.int64).max)
    copied = copies[np.searchsorted(copies, update[at])]
    before = update[np.maximum(np.searchsorted(update, np.minimum(stop, copied)) - 1, 0)] + 1
    return np.where(is_found, update[at], first), np.where(is_found, before, first)


def keep_regular(spans: Spans, iteration_count: int) -> tuple[Spans, float]:
    """Keep the spans of the iterations with the usual kinds in the usual order, and nearly the usual lengths.

    Returns:
        Spans; share of the iterations that have them, 0 to 1. None, if it is too small.
    """
    nothing = spans.select(np.zeros(len(spans.first), dtype=np.bool_)), 0.0
    if not len(spans.first):
        return nothing
    length = spans.last - spans.first
    size = np.bincount(spans.iteration, minlength=iteration_count)
    number = np.arange(len(length)) - np.repeat(np.cumsum(size) - size, size)
    kinds = (
        pl.DataFrame({"iteration": spans.iteration, "kind": spans.kind.astype(np.uint8)})
        .group_by("iteration", maintain_order=True)
        .agg(kinds=pl.col("kind").cast(pl.String).str.join())
    )
    usual = kinds["kinds"].value_counts(sort=True)["kinds"][0]
    if len(usual) > _MOST_PHASES:
        return nothing
    is_usual = np.zeros(iteration_count, dtype=np.bool_)
    is_usual[kinds.filter(kinds=usual)["iteration"].to_numpy()] = True
    rows = np.flatnonzero(is_usual[spans.iteration])
    table = length[rows].reshape(-1, len(usual))
    median = np.median(table, axis=0)
    is_like = (np.abs(table - median) <= np.maximum(_NEARLY * median, _FEW)).all(axis=1)
    is_usual[np.flatnonzero(is_usual)[~is_like]] = False
    share = float(is_usual.mean())
    if share < _LEAST_SHARE:
        return nothing
    return spans.select(is_usual[spans.iteration] & (number < len(usual))), share

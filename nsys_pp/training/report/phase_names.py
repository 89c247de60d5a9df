"""Phases of iterations by the names of kernels of backwards and optimizers.

launches   [ embed layer layer loss loss' layer' layer' embed' norm adam adam ]
names                                     bwd    bwd                adam adam
           [ forward     )                [ backward  )            [optimizer )

Around the first and the last kernel with the name of a backward, launches are in no phase: most names show nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.training.report.phase_spans import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    IterationPhases,
    Spans,
    chain_updates,
    join_spans,
    keep_regular,
    mark_computing,
    strip_fills,
)
from nsys_pp.training.report.repetition import Launches

_LEAST_FORWARD = 5  # launches
_LARGE = 0.75  # launches between kernels of backwards, as a share of the first forward, that are a forward
_SMALL = 0.5  # the same, that are none
_CLEAR = 0.95  # share of iterations whose gaps are large or small
_LIKE = 0.8  # share of launches that forwards have in common
_AROUND = 1.25  # launches before a backward that may be of it, in those of its longest gap, or of a layer
_FEW = 4  # further ones
_MOST_COMPARED = 512  # forwards
_LEAST_LAYERS = 3  # times that a layer follows another in a backward, from which layers before it are known
_REGULAR = 0.8  # share of equal distances between layers
_EARLY = 0.15  # share of a forward
_LEAST_BACKWARD = 0.25  # launches of a backward, as a share of those of the first forward
_LEAST_CERTAIN = 0.3  # share of a forward before these


class _Hits(Struct, frozen=True, kw_only=True):
    """Kernels with the name of a backward, in order."""

    at: Int64s  # position
    iteration: Int64s
    begin: Int64s  # position of the first launch of the iteration
    since: Int64s  # position after the hit before, or `begin`
    is_first: Bools  # of its iteration
    is_large: Bools  # follows a forward: the first one of a backward
    usual: float  # launches before the first one of an iteration

    @property
    def gap(self) -> Int64s:
        """Launches between a hit and the one before."""
        return self.at - self.since


def find_phases_by_name(launches: Launches, iteration: Int64s, count: int) -> IterationPhases | str:
    """Find forwards, backwards and optimizers by the names of kernels; as `find_phases_by_thread`."""
    is_inside = (iteration >= 0) & mark_computing(launches)
    update = np.flatnonzero(is_inside & launches.is_update[launches.name])
    hits = _find_hits(launches, iteration, is_inside, update)
    if not len(update):  # solvers sweep forward and backward, too
        return "no kernel is named as optimizer"
    if len(np.unique(hits.iteration)) < max(_LARGE * count, 2):
        return "no kernel is named as backward"
    if doubt := _doubt_hits(launches, hits):
        return doubt
    begin = hits.begin[hits.is_first]
    early, latest = (
        _find_last_updates(begin, until, update)
        for until in (begin + _EARLY * hits.usual, hits.at[hits.is_first].astype(np.float64))
    )
    if np.mean(early == latest) < _CLEAR:
        return "iterations begin with an optimizer"
    start = early[np.cumsum(hits.is_first) - 1]
    spans = join_spans(
        _find_forwards(launches, hits, start),
        _find_backwards(hits),
        _find_optimizers(launches, hits, update, iteration),
    )
    spans, share = keep_regular(spans, count)
    if not len(spans.first):
        return "phases differ between iterations"
    has_update = bool((spans.kind == OPTIMIZER).any())
    evidence = "kernels named as backward" + (" and as optimizer" if has_update else "")
    return IterationPhases(
        spans=spans,
        confidence=(0.9 if has_update else 0.85) * share,
        reason=f"{evidence}; launches between them and forwards are in no phase",
    )


def _find_hits(launches: Launches, iteration: Int64s, is_inside: Bools, update: Int64s) -> _Hits:
    """Find the kernels with the name of a backward; backwards begin after as many other launches as a forward has."""
    hit = np.flatnonzero(is_inside & (launches.is_gradient & ~launches.is_update)[launches.name])
    begins = np.flatnonzero(np.append(True, iteration[1:] != iteration[:-1]) & (iteration >= 0))
    begin = begins[np.searchsorted(begins, hit, side="right") - 1]
    before = np.append(-1, hit)[: len(hit)]
    is_first = before < begin
    since = np.where(is_first, begin, before + 1)
    usual = float(np.median((hit - since)[is_first])) if len(hit) else 0.0
    has_update = np.searchsorted(update, hit) > np.searchsorted(update, since)
    return _Hits(
        at=hit,
        iteration=iteration[hit],
        begin=begin,
        since=since,
        is_first=is_first,
        is_large=is_first | has_update | (hit - since >= _LARGE * usual),
        usual=usual,
    )


def _doubt_hits(launches: Launches, hits: _Hits) -> str:
    """Return the reason for which backwards are uncertain; "" without one."""
    if hits.usual < _LEAST_FORWARD:
        return "iterations do not begin with a forward"
    if launches.is_message[launches.name[hits.at[0] : hits.at[-1]]].any():
        return "a rank of a pipeline begins with several forwards"
    is_clear = hits.is_large | (hits.gap <= _SMALL * hits.usual)
    if np.sum(~is_clear) > (1 - _CLEAR) * hits.is_first.sum():
        return "recomputed layers and forwards have similar lengths"
    first = np.flatnonzero(hits.is_large)
    size = np.diff(np.append(first, len(hits.at)))  # hits of each backward
    length = hits.at[first + size - 1] - hits.at[first]
    if np.median(size) < _LEAST_LAYERS or np.median(length) < _LEAST_BACKWARD * hits.usual:
        return "too few kernels are named as backward"
    compared = first[:_MOST_COMPARED]
    if not _are_alike(launches, hits.since[compared], hits.at[compared], hits.is_first[compared]):
        return "forwards differ"
    return ""


def _are_alike(launches: Launches, first: Int64s, last: Int64s, is_reference: Bools) -> bool:
    """Return whether most of the other spans launch the names of the first spans of iterations."""
    if is_reference.all():
        return True
    names = len(launches.is_update)
    row = np.repeat(np.arange(len(first)), last - first)
    at = expand_windows(first, last)
    counts = np.bincount(row * names + launches.name[at], minlength=len(first) * names).reshape(-1, names)
    usual = np.median(counts[is_reference], axis=0)
    common = np.minimum(counts[~is_reference], usual).sum(axis=1) / max(usual.sum(), 1)
    return bool(np.mean(common >= _LIKE) >= _CLEAR)


def _find_forwards(launches: Launches, hits: _Hits, start: Int64s) -> Spans:
    """Find the certain parts of forwards: as many launches before a backward as before the first one.

    Args:
        launches: Launches of a device.
        hits: Kernels of backwards.
        start: Position of the first launch of a forward, of each iteration with hits, for each hit.
    """
    cycle = _measure_cycle(launches.name[hits.at], hits.at, np.cumsum(hits.is_large))
    around = int(_AROUND * max(hits.gap[~hits.is_large].max(initial=0), cycle)) + _FEW
    rows = np.flatnonzero(hits.is_large)
    own = hits.at[rows]
    first = np.where(hits.is_first[rows], start[rows], own - int(hits.usual))
    is_same = hits.is_first[rows] | (launches.name[first] == launches.name[start[rows]])
    kept = is_same & (own - around - first >= _LEAST_CERTAIN * hits.usual) & (cycle > 0)
    spans = Spans(
        iteration=hits.iteration[rows][kept],
        first=first[kept],
        last=(own - around)[kept],
        kind=np.full(kept.sum(), FORWARD),
    )
    return strip_fills(launches, spans)


def _measure_cycle(name: Int64s, hit: Int64s, block: Int64s) -> int:
    """Measure the launches from one layer of a backward to the next; 0 where its kernels do not repeat regularly."""
    order = np.lexsort((hit, block, name))
    is_next = (np.diff(name[order]) == 0) & (np.diff(block[order]) == 0)
    own, gap = name[order][1:][is_next], np.diff(hit[order])[is_next]
    blocks = int(block[-1])
    cycles = []
    for number in np.flatnonzero(np.bincount(own) >= _LEAST_LAYERS * blocks):
        gaps = gap[own == number]
        usual = int(np.median(gaps))
        if np.mean(gaps == usual) >= _REGULAR:
            cycles.append(usual)
    return max(cycles, default=0)


def _find_last_updates(begin: Int64s, until: npt.NDArray[np.floating[Any]], update: Int64s) -> Int64s:
    """Find the position after the last kernel of an optimizer before some positions; `begin` without any since then."""
    last = np.append(update, -1)[np.searchsorted(update, until) - 1]
    return np.where(last >= begin, last + 1, begin)


def _find_backwards(hits: _Hits) -> Spans:
    """Find the certain parts of backwards: from the first to the last kernel with the name of one."""
    first = np.flatnonzero(hits.is_large)
    last = np.append(first[1:], len(hits.at)) - 1
    return Spans(
        iteration=hits.iteration[first],
        first=hits.at[first],
        last=hits.at[last] + 1,
        kind=np.full(len(first), BACKWARD),
    )


def _find_optimizers(launches: Launches, hits: _Hits, update: Int64s, iteration: Int64s) -> Spans:
    """Find the optimizers after the last backward of iterations: from their first to their last kernel."""
    is_last = np.append(hits.is_first[1:], True)
    own, at = hits.iteration[is_last], hits.at[is_last]
    after = np.append(update, len(iteration))[
        np.searchsorted(update, at)
    ]  # the end of the backward is unknown
    is_found = np.append(iteration, -1)[after] == own
    first, last = chain_updates(
        update,
        after[is_found],
        np.full(is_found.sum(), len(iteration)),
        forward=hits.usual,
        is_input=np.flatnonzero(launches.is_input[launches.name]),
    )
    return Spans(iteration=own[is_found], first=first, last=last, kind=np.full(is_found.sum(), OPTIMIZER))

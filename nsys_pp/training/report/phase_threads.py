"""Phases of iterations by the threads that launch them: backwards of PyTorch's autograd have a thread of their own."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.training.report.phase_spans import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    SEGMENT,
    IterationPhases,
    Spans,
    chain_updates,
    join_spans,
    keep_regular,
    mark_computing,
    strip_fills,
)
from nsys_pp.training.report.repetition import Launches

_CLEAR = 0.95  # share of launches on a thread, from which it launches all of them
_LEAST_FORWARD = 0.2  # launches of a forward, as a share of those of its backward
_LEAST_FORWARD_OF_OTHERS = 0.35  # the same, if a backward does not begin with kernels of its own
_LATEST_GRADIENT = 0.4  # share of a backward before its first kernel with the name of one, at most
_LEAST_RUN = 0.2  # launches of a run, as a share of those of the longest one in the iteration
_SHORT, _FEW = 0.05, 4  # launches between backwards, as a share of the first forwards, that are no forward
_UNEVEN = 0.2  # difference of the lengths of forwards, in forwards, that is none
_EARLY_UPDATE = 0.1  # share of a forward in which an optimizer zeroes gradients
_LEAST_THREAD = 0.05  # share of launches of a thread, below which it separates nothing
_LEAST_UPDATES = (
    3  # kernels in an iteration: inference copies inputs with the kernels of PyTorch's optimizers
)
_OFTEN = 0.5  # share of iterations
_MOST_SEGMENTS = 8


def find_phases_by_thread(launches: Launches, iteration: Int64s, count: int) -> IterationPhases | str:
    """Find forwards, backwards and optimizers by the thread that launches the backwards.

    Args:
        launches: Launches of a device.
        iteration: Iteration of each launch; -1 outside of all.
        count: Number of iterations.

    Returns:
        Phases; the reason where there are none that are certain.
    """
    is_inside = (iteration >= 0) & mark_computing(launches)
    gradient = is_inside & launches.is_gradient[launches.name]
    update = is_inside & launches.is_update[launches.name]
    threads = _choose_threads(launches.thread, is_inside, gradient, update)
    if threads is None:
        return "no thread launches backwards alone"
    main, own = threads
    runs = _find_runs(np.isin(launches.thread, (main, own)), launches.thread == own, iteration)
    spans = _assign_kinds(launches, runs, gradient, update)
    if isinstance(spans, str):
        return spans
    spans, share = keep_regular(spans, count)
    if not len(spans.first):
        return "phases differ between iterations"
    evidence = "backwards are launched by a thread of their own"
    if gradient.any():
        evidence += ", which launches all kernels named as backward"
    if (spans.kind == OPTIMIZER).any():
        evidence += "; kernels named as optimizer follow"
    confidence = (0.95 if gradient.any() else 0.9) * share
    return IterationPhases(spans=spans, confidence=confidence, reason=evidence)


def find_thread_segments(launches: Launches, iteration: Int64s, count: int) -> IterationPhases | None:
    """Find the segments of iterations between changes of the launching thread; None where these are not the same."""
    is_inside = (iteration >= 0) & mark_computing(launches) & (launches.thread >= 0)
    size = np.bincount(launches.thread[is_inside])
    large = np.flatnonzero(size >= max(_LEAST_THREAD * is_inside.sum(), 1))
    if not 2 <= len(large) <= _MOST_SEGMENTS:
        return None
    kept = is_inside & np.isin(launches.thread, large)
    runs = _find_runs(kept, launches.thread, iteration)
    spans, share = keep_regular(replace(runs, kind=np.full(len(runs.kind), SEGMENT)), count)
    if not len(spans.first) or np.bincount(spans.iteration).max() > _MOST_SEGMENTS:
        return None
    return IterationPhases(spans=spans, confidence=share, reason="the launching thread changes")


def _choose_threads(
    thread: Int64s, is_inside: Bools, gradient: Bools, update: Bools
) -> tuple[int, int] | None:
    """Choose the thread of forwards and optimizers, and the thread of backwards; None where uncertain."""
    known = is_inside & (thread >= 0)
    if known.sum() < _CLEAR * is_inside.sum() or not (gradient.any() or update.any()):
        return None
    if gradient.any():
        size = np.bincount(thread[known & gradient], minlength=2)
        own = int(size.argmax())
        others = np.bincount(thread[known & (thread != own)], minlength=2)
        main = int(others.argmax())
        is_clear = size[own] >= _CLEAR * gradient.sum() and others[main] >= _CLEAR * others.sum() > 0
    else:
        size = np.bincount(thread[known & update], minlength=2)
        main = int(size.argmax())
        others = np.bincount(thread[known & (thread != main)], minlength=2)
        own = int(others.argmax())
        is_clear = size[main] >= _CLEAR * update.sum() and others[own] >= _CLEAR * others.sum() > 0
    return (main, own) if is_clear else None


def _find_runs(kept: Bools, key: Int64s | Bools, iteration: Int64s) -> Spans:
    """Find the runs of equal keys among some launches of each iteration; `kind` is the key."""
    rows = np.flatnonzero(kept & (iteration >= 0))
    own, group = key[rows].astype(np.int64), iteration[rows]
    is_first = np.append(True, (own[1:] != own[:-1]) | (group[1:] != group[:-1]))[: len(rows)]
    first = np.flatnonzero(is_first)
    last = np.append(first[1:], len(rows))[: len(first)] - 1
    return Spans(iteration=group[first], first=rows[first], last=rows[last] + 1, kind=own[first])


def _assign_kinds(launches: Launches, runs: Spans, gradient: Bools, update: Bools) -> Spans | str:
    """Assign kinds to runs of launches; the thread of backwards has kind 1, others 0."""
    if doubt := _doubt_runs(launches, runs, gradient, update):
        return doubt
    is_own = runs.kind == 1
    follows = np.append(runs.iteration[1:] == runs.iteration[:-1], False)[: len(is_own)]
    precedes = np.append(False, follows[:-1])[: len(is_own)]
    is_forward = ~is_own & follows & _mark_long(runs, follows, precedes)  # kinds alternate
    is_first = is_forward & ~precedes
    length = runs.last - runs.first
    begun, updated = chain_updates(
        np.flatnonzero(update),
        runs.first,
        runs.last,
        forward=float(np.median(length[is_forward])),
        is_input=np.flatnonzero(launches.is_input[launches.name]),
    )
    before = launches.thread[np.maximum(runs.first - 1, 0)] == launches.thread[runs.first[is_own][0]]
    is_rotated = np.mean(before[is_first]) > _OFTEN  # iterations begin after a backward
    is_early = updated <= runs.first + _EARLY_UPDATE * length  # zeroes gradients
    if not is_rotated and np.mean(is_early[is_first]) < _CLEAR:
        return "iterations begin with an optimizer"
    is_update = ~is_own & (precedes | (is_first & is_rotated)) & (updated > begun)
    if is_rotated and np.mean(is_update[is_first]) < _CLEAR:
        return "iterations may begin with an optimizer"
    is_rest = ~is_own & precedes & ~follows & ~is_update
    forward = _cut(runs, is_forward, FORWARD, first=np.maximum(runs.first, updated))
    cut, following = forward.last - forward.first, np.append(length[1:], 0)[is_forward]
    if np.median(cut / following) < _LEAST_FORWARD:
        return "forwards are too short"
    is_compared = ~is_update[is_forward]  # another model may follow an optimizer
    if not _are_multiples(cut[is_compared], is_first[is_forward][is_compared]):
        return "forwards have too different lengths"
    optimizer = _cut(runs, is_update, OPTIMIZER, last=updated)
    return join_spans(
        strip_fills(launches, forward),
        _cut(runs, is_own, BACKWARD),
        _strip_copies(launches, optimizer),
        _cut(runs, is_rest, SEGMENT),
    )


def _mark_long(runs: Spans, follows: Bools, precedes: Bools) -> Bools:
    """Return the mask of runs that are no few launches between backwards, such as sends and receives."""
    length = runs.last - runs.first
    between = (runs.kind == 0) & follows & precedes
    longest = np.median(length[(runs.kind == 0) & follows & ~precedes]) if between.any() else 0
    is_long: Bools = ~between | (length > np.maximum(_SHORT * longest, _FEW))
    return is_long


def _doubt_runs(launches: Launches, runs: Spans, gradient: Bools, update: Bools) -> str:
    """Return the reason for which runs of the thread of backwards may be something else; "" without one."""
    is_own = runs.kind == 1
    precedes = np.append(False, runs.iteration[1:] == runs.iteration[:-1])[: len(is_own)]
    length = runs.last - runs.first
    if not len(length):
        return "no thread launches backwards alone"
    if np.mean(is_own[~precedes]) > 1 - _CLEAR:
        return "iterations do not begin with a forward"
    backward = np.flatnonzero(is_own & precedes)
    if not len(backward):
        return "no thread launches backwards alone"
    least = _LEAST_FORWARD if gradient.any() else _LEAST_FORWARD_OF_OTHERS
    if not gradient.any() and update.sum() < _LEAST_UPDATES * (~precedes).sum():
        return "few kernels are named as optimizer, and none as backward"
    if gradient.any():
        hits = np.append(np.flatnonzero(gradient), len(gradient))
        until = (hits[np.searchsorted(hits, runs.first[backward])] - runs.first[backward]) / length[backward]
        if np.median(until) > _LATEST_GRADIENT:
            least = _LEAST_FORWARD_OF_OTHERS
            if not update.any():
                return "backwards begin with kernels of other names"
    follows = np.append(precedes[1:], False)
    begins = np.flatnonzero(~precedes & ~is_own & follows)
    if not len(begins) or np.median(length[begins] / np.append(length, 1)[begins + 1]) < least:
        return "forwards are too short"
    longest = np.zeros(runs.iteration.max() + 1)
    np.maximum.at(longest, runs.iteration[backward], length[backward])
    is_short = length[backward] < _LEAST_RUN * longest[runs.iteration[backward]]
    if np.mean(is_short) > 1 - _CLEAR:
        return "backwards have too different lengths"
    return ""


def _are_multiples(length: Int64s, is_first: Bools) -> bool:
    """Return whether forwards have the lengths of one or more micro-batches, as ranks of a pipeline begin with several."""
    if is_first.all():
        return True
    unit = float(np.median(length[~is_first]))
    times = np.maximum(np.round(length / unit), 1)
    is_near = np.abs(length - times * unit) <= np.maximum(_UNEVEN * unit * np.where(is_first, times, 1), _FEW)
    return bool(np.sum(~is_near) <= (1 - _CLEAR) * is_first.sum())


def _cut(
    runs: Spans, mask: Bools, kind: int, *, first: Int64s | None = None, last: Int64s | None = None
) -> Spans:
    """Build spans of some runs, with another begin or end."""
    return Spans(
        iteration=runs.iteration[mask],
        first=(runs.first if first is None else first)[mask],
        last=(runs.last if last is None else last)[mask],
        kind=np.full(mask.sum(), kind),
    )


def _strip_copies(launches: Launches, spans: Spans) -> Spans:
    """Begin spans with their first launch that is no copy."""
    rows = np.append(np.flatnonzero(mark_computing(launches)), len(launches.name))
    first = rows[np.searchsorted(rows, spans.first)]
    return Spans(iteration=spans.iteration, first=first, last=spans.last, kind=spans.kind)

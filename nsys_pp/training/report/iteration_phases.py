"""Phases of the iterations of a device, where nothing names them: forward, backward, optimizer, or segments.

thread 1   [ copy embed layer layer loss )                       [ norm adam adam )[ copy embed ...
thread 2                                 [ layer' layer' embed' )
                [   forward              )[     backward        )[   optimizer    )

PyTorch's autograd launches backwards from a thread of its own. Without it, names of kernels are the evidence. A phase
without either has no meaning: a wrong one would be worse than none.
"""

from __future__ import annotations

import numpy as np

from nsys_pp.arrays.types import Int64s
from nsys_pp.training.report.phase_names import find_phases_by_name
from nsys_pp.training.report.phase_spans import (
    SEGMENT,
    IterationPhases,
    Spans,
    keep_regular,
    number_iterations,
)
from nsys_pp.training.report.phase_threads import find_phases_by_thread, find_thread_segments
from nsys_pp.training.report.repetition import Launches

_MOST_SEGMENTS = 8
_MOST_COMPARED = 64  # iterations, for pauses
_LONG = 10  # pause of the host, in median pauses, that separates segments
_LEAST_PAUSE_NS = 20_000
_LEAST_PAUSE = 0.02  # of an iteration
_ALWAYS = 0.2  # quantile of the pauses at a position that is long
_LEAST_SEGMENT = 0.02  # launches, as a share of the iteration


def find_iteration_phases(launches: Launches, begin: Int64s, end: Int64s) -> IterationPhases | str:
    """Find the phases of iterations: by thread, else by name; else segments between threads, or pauses of the host.

    Args:
        launches: Launches of a device.
        begin: Position of the first launch of each iteration, ascending.
        end: Position after its last launch.

    Returns:
        Phases of the iterations that have the usual ones; the reason where there are none.
    """
    if not len(begin):
        return "there are no iterations"
    iteration = number_iterations(begin, end, len(launches.name))
    by_thread = find_phases_by_thread(launches, iteration, len(begin))
    if isinstance(by_thread, IterationPhases):
        return by_thread
    by_name = find_phases_by_name(launches, iteration, len(begin))
    if isinstance(by_name, IterationPhases):
        return by_name
    segments = find_thread_segments(launches, iteration, len(begin)) or _find_pauses(launches, begin, end)
    return f"{by_thread}; {by_name}" if segments is None else segments


def _find_pauses(launches: Launches, begin: Int64s, end: Int64s) -> IterationPhases | None:
    """Find the segments between the pauses of the host that all iterations have at the same position."""
    length = end - begin
    usual = int(np.median(length))
    compared = np.flatnonzero(length == usual)[:_MOST_COMPARED]
    if len(compared) < 2 or usual < 2 * _LEAST_SEGMENT * usual + 2:
        return None
    at = begin[compared][:, np.newaxis] + np.arange(usual)
    names = launches.name[at]
    alike = (names == names[len(compared) // 2]).mean(axis=1) >= 1 - _LEAST_SEGMENT
    at = at[alike]
    pause = launches.launch[at[:, 1:]] - launches.launched[at[:, :-1]]
    whole = np.median(launches.launched[at[:, -1]] - launches.launch[at[:, 0]])
    least = max(_LONG * float(np.median(pause)), _LEAST_PAUSE * whole, _LEAST_PAUSE_NS)
    cuts = np.flatnonzero(np.quantile(pause, _ALWAYS, axis=0) >= least) + 1
    bounds = np.concatenate([[0], cuts, [usual]])
    if not 1 <= len(cuts) < _MOST_SEGMENTS or np.diff(bounds).min() < max(_LEAST_SEGMENT * usual, 1):
        return None
    rows = np.flatnonzero(length == usual)
    count = len(bounds) - 1
    first = (begin[rows][:, np.newaxis] + bounds[:-1]).reshape(-1)
    spans = Spans(
        iteration=np.repeat(rows, count),
        first=first,
        last=(begin[rows][:, np.newaxis] + bounds[1:]).reshape(-1),
        kind=np.full(len(first), SEGMENT),
    )
    spans, share = keep_regular(spans, len(begin))
    if not len(spans.first):
        return None
    return IterationPhases(spans=spans, confidence=share, reason="the host pauses at the same launches")

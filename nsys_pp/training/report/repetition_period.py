"""Choice of the launch that cuts the iterations of a device, among launches that repeat.

Layers and micro-batches repeat, too. Their cuts leave the names outside of them unexplained: the loss, the embedding, the
optimizer. A cut at what is logged or evaluated every few iterations explains all, but joins several iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from nsys_pp.arrays.types import Int64s
from nsys_pp.training.report.repetition import Cut, Launches, count_names, cut_at, list_candidates

_SAMPLE = 100_000  # launches that candidates are compared on
_LEAST_LAUNCHES = 6
_LEAST_SIZE = 3  # launches of an iteration
_LEAST_USUAL = 0.6  # share of usual segments
_MOST_AFTER = 0.35  # share of launches after the last iteration
_LEAST_SCORE = 0.45
_LEAST_COVERED = 0.7
_LEAST_UPDATES = 0.6  # share of the launches of optimizers that a cut explains
_TIE = 0.05  # of scores
_RIVAL = 0.6  # score of a shorter cut, as a share of the best one, from which it is considered
_LEAST_NESTED = 0.3  # share of an iteration that consists of layers
_LEAST_LAYER = 4  # launches of a layer
_LEAST_UNIT = 3  # different names in a layer
_MOST_LAGS, _MOST_RUNS = 8, 64
_LONGEST = 20_000  # launches that are searched for layers
_FEW = 3  # launches that are logged, not computed
_FORWARD = 0.25  # share of the names of an iteration that an evaluation runs
_LEAST_SHARED = 0.2  # share of the names of a usual segment that all kinds of segments have


_Uncertainty = Literal["none", "rival", "lengths", "layers"]


class Period(Struct, frozen=True, kw_only=True):
    """Iterations of a device."""

    cut: Cut
    launch_count: int  # launches that were compared
    has_update: bool  # an optimizer runs in each
    has_layers: bool
    has_copy: bool  # each copies to the host
    has_input: bool  # each copies to the device
    has_graph: bool
    has_backward: bool
    has_kinds: bool  # some have other launches than the usual ones
    is_doubtful: bool  # a shorter or a longer cut is nearly as good


def find_period(launches: Launches) -> Period | str:
    """Find the iterations of a device; the reason where there are none that are certain."""
    count = len(launches.name)
    if count < _LEAST_LAUNCHES:
        return "there are too few launches"
    found = _find_period(launches.head(_SAMPLE), None)
    if isinstance(found, str) and count > _SAMPLE:  # three iterations may be longer than the sample
        return _find_period(launches, 4 * count // _SAMPLE)
    return found


def _find_period(launches: Launches, most: int | None) -> Period | str:
    """Find at most `most` iterations of a device."""
    begins = list(list_candidates(launches.name, most=most))
    cuts = [cut for cut in (cut_at(launches, begin) for begin in begins) if cut.after <= _MOST_AFTER]
    updates = np.bincount(launches.name, minlength=len(launches.is_update)) * launches.is_update
    explained = [cut for cut in cuts if _explains(cut, updates)]
    good = [cut for cut in explained if _is_good(cut)]
    has_kinds = not good
    if has_kinds:
        cuts = [cut_at(launches, begin, with_kinds=True) for begin in begins]
        good = [cut for cut in cuts if _explains(cut, updates) and _is_mixture(launches, cut)]
    if not good:
        return "no launch divides the capture into parts that run the same kernels"
    has_update = bool(updates.any())
    chosen, uncertainty = _choose(launches, good, has_update=has_update)
    if uncertainty == "layers":
        return "launches repeat, but nothing distinguishes iterations from layers"
    if uncertainty == "lengths":
        return "launches repeat at several lengths, and none of these is certain"
    return Period(
        cut=chosen,
        launch_count=len(launches.name),
        has_update=has_update,
        has_layers=measure_nesting(launches.name, chosen) >= _LEAST_NESTED,
        has_copy=bool((launches.to_host & chosen.is_constant).any()),
        has_input=bool((launches.is_input & chosen.is_constant).any()),
        has_backward=bool((launches.is_backward & chosen.is_constant).any()),
        has_graph=bool((launches.is_graph & chosen.is_constant).any()),
        has_kinds=has_kinds,
        is_doubtful=uncertainty != "none",
    )


def _choose(launches: Launches, cuts: Sequence[Cut], *, has_update: bool) -> tuple[Cut, _Uncertainty]:
    """Choose the cut with the best score; a shorter one, if the best one joins several iterations."""
    most = max(cut.score for cut in cuts)
    near = [cut for cut in cuts if cut.score >= most - _TIE]
    best = max(near, key=lambda cut: (cut.size, cut.score))
    has_loop = has_update or _has_loop(launches, best)
    uncertainty: _Uncertainty = "none" if has_loop else "layers"
    shorter = [cut for cut in cuts if cut.size * 1.5 < best.size and cut.score >= _RIVAL * best.score]
    for cut in sorted(shorter, key=lambda cut: -cut.score):
        if has_update:
            return _best_like(cuts, cut), "none"
        is_minor, is_loop = _is_rest_minor(launches, best, cut), _has_loop(launches, cut)
        if is_loop or (has_loop and cut.score >= best.score - _TIE):
            if is_minor:
                return _best_like(cuts, cut), "rival"
            uncertainty = "rival" if uncertainty == "none" else uncertainty
        elif is_minor and (launches.to_host & best.is_constant & ~cut.is_constant).any():
            uncertainty = "lengths"  # the rest is what a host logs every few iterations, or the rest of one around its layers
    return _best_like(cuts, best), uncertainty


def _has_loop(launches: Launches, cut: Cut) -> bool:
    """Return whether segments have copies to the host, graphs, or layers: layers seldom have these."""
    is_loop = launches.to_host | launches.is_graph
    return bool((cut.is_constant & is_loop).any()) or measure_nesting(launches.name, cut) >= _LEAST_NESTED


def _is_rest_minor(launches: Launches, whole: Cut, part: Cut) -> bool:
    """Return whether a cut differs from that into its parts by a few launches, or by a forward, as evaluations do."""
    both = (whole.median > 0) & (part.median > 0)
    if not both.any():
        return False
    times = np.median(np.round(whole.median[both] / part.median[both]))
    rest = np.maximum(whole.median - times * part.median, 0)
    is_new = (rest > 0) & (part.median == 0)
    if rest.sum() <= _FEW and is_new.sum() <= 2:
        return True
    touched = (rest[part.median > 0] > 0).mean()
    return bool(rest[is_new].sum() <= 0.3 * rest.sum() and touched >= _FORWARD and is_new.sum() <= 4)


def _best_like(cuts: Sequence[Cut], cut: Cut) -> Cut:
    """Return the cut with the most steady segments, of those into segments as long."""
    like = [
        other
        for other in cuts
        if 0.9 <= other.size / cut.size <= 1.1
        and other.score >= cut.score - 0.1
        and other.after <= cut.after + 0.02
    ]
    return max(like, key=lambda other: (other.steady, other.score))


def _is_mixture(launches: Launches, cut: Cut) -> bool:
    """Return whether segments are of several kinds, which share some names, as prefills and decodes share the sampling."""
    share = cut.is_usual.mean()
    if not (_LEAST_USUAL <= share < 1 and cut.score >= _LEAST_SCORE):
        return False
    counts = count_names(launches, cut.begin)
    usual = cut.median >= 1
    shared = usual & (((counts >= cut.median) & (counts > 0)).mean(axis=0) >= 0.95) & ~launches.is_graph
    has_loop = bool((cut.is_constant & (launches.to_host | launches.is_graph)).any())
    return bool(shared.sum() >= 2 and shared.sum() >= _LEAST_SHARED * usual.sum() and has_loop)


def _is_good(cut: Cut) -> bool:
    """Return whether a cut explains most names and most launches."""
    return (
        cut.size >= _LEAST_SIZE
        and cut.score >= _LEAST_SCORE
        and cut.covered >= _LEAST_COVERED
        and cut.steady >= 2
    )


def _explains(cut: Cut, updates: Int64s) -> bool:
    """Return whether most launches of optimizers are of names that occur in each segment."""
    if not updates.any():
        return True
    return bool((updates * cut.is_constant).sum() >= _LEAST_UPDATES * updates.sum())


def measure_nesting(name: Int64s, cut: Cut) -> float:
    """Measure the share of a usual segment in which a sequence of names is repeated at least three times."""
    length = np.diff(cut.begin)
    at = int(np.argmin(np.abs(length - cut.size) + np.where(cut.is_usual, 0, length.max())))
    own = name[cut.begin[at] : cut.begin[at + 1]][:_LONGEST]
    if len(own) < 3 * _LEAST_LAYER:
        return 0.0
    best = 0
    code = own[:-1] * (int(own.max(initial=0)) + 1) + own[1:]
    order = np.argsort(code, kind="stable")
    gaps = np.diff(order)[code[order][1:] == code[order][:-1]]
    for lag in np.argsort(-np.bincount(gaps), kind="stable")[:_MOST_LAGS].tolist():
        if lag < _LEAST_LAYER or 3 * lag > len(own):
            continue
        differs = np.flatnonzero(np.concatenate([[True], own[lag:] != own[:-lag], [True]]))
        runs = np.diff(differs) - 1
        rows = np.flatnonzero(runs >= 2 * lag)[:_MOST_RUNS]
        units = [len(np.unique(own[differs[row] : differs[row] + lag])) for row in rows]
        best = max(best, int((runs[rows] + lag)[np.array(units, dtype=np.int64) >= _LEAST_UNIT].sum()))
    return best / len(own)

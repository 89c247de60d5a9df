"""Rules for ranges that people name by hand: by words of the names, and by order and nesting of the ranges.

A word alone is not enough: a layer has a forward as well. The names of a job are those whose ranges lie in no layer, and of
uncertain names those that are as frequent as certain ones. A step is the finest range with a forward or a backward in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from msgspec import Struct

from nsys_pp.arrays.ancestors import count_below, has_marked_line
from nsys_pp.arrays.columns import find_distinct, has_value, index_rows, list_distinct, numbers
from nsys_pp.arrays.names import split_texts
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.training.report.hand_words import HOLE, Meaning, build_pattern, fold_name, parse_hand_name
from nsys_pp.training.report.inner_jobs import find_parents
from nsys_pp.training.report.presets import Rule
from nsys_pp.training.report.range_names import RangeNames

_HINTS = (
    "(?i)fwd|forward|fprop|bwd|backward|bprop|back.?prop|optim|opt[^a-z]|opt$|sgd|adam|update|step|iter|batch|epoch"
    "|data|copy|load|h2d|d2h|transfer|fetch|prepare|grad|layer|block|attn|attention|mlp|linear|eval|valid|test|infer|generat"
)
_NO_HAND = "::|[a-z0-9]Backward[0-9]+(?:,|$)|^[{<]"  # operations of libraries
_LIBRARIES = (
    "(?i)nccl|cccl|tsl|tensorrt.*|cublas.*|cudnn.*|dali|horovod.*|nvshmem|myelin.*|libcudf|cudf.*|ucx|mpi"
)
_TRAINING = ("forward", "backward", "forward_backward", "optimizer")
_CERTAIN_SOURCE, _OTHER_SOURCE = "plain: words", "plain: words, one unknown"
_MOST_UNCERTAIN = 3  # different uncertain names of a kind; layers have more
_BATCHES, _EPOCH = (3, 4), 5  # levels of steps
_MOST_IN_EPOCH = 2  # forwards and backwards in an epoch that is one step
_CACHE_SIZE, _FEW, _MOST_NAMES = 8_192, 64, 5_000  # names; sets of names, and their largest
_INSIDE = 0.5  # share of ranges in a part of the model that makes a name the name of a part


class HandName(Struct, frozen=True, kw_only=True):
    """Name, with `#` for its numbers, and the rule that reads it.

    Attributes:
        folded: The name.
        kind: Kind of the job; "step".
        rule: Expression of the names that fold to it.
    """

    folded: str
    kind: str
    rule: Rule


class _Candidates(Struct, frozen=True, kw_only=True):
    """Ranges whose names may be written by hand; arrays have one element per range."""

    folded: list[str]  # distinct names
    meanings: list[Meaning]  # of the distinct names
    name: Int64s  # index of the distinct name
    parent: Int64s  # row of the innermost candidate around it on its thread; -1 without one
    start: Int64s
    text: Int64s  # index of its name
    texts: Sequence[str | None]  # all distinct names of the report


class HandNames(Struct, frozen=True, kw_only=True):
    """Names of jobs and steps by hand.

    Attributes:
        names: Names with their rules, by kind.
        parts: Names that mean a job, but are of parts of the model.
    """

    names: tuple[HandName, ...] = ()
    parts: frozenset[str] = frozenset()


def find_hand_names(names: RangeNames, *, is_requested: bool = False) -> HandNames:
    """Find the names of jobs and steps that are written by hand.

    Args:
        names: Names of the ranges.
        is_requested: The user asked for these names: one kind of job is enough, in any order.

    Returns:
        Names with their rules; none unless there are forwards, backwards and optimizers of two kinds at least (or both
        in one range), and the first forward comes before the first backward.
    """
    candidates = _find_candidates(names)
    if candidates is None:
        return HandNames()
    is_part = _mark_parts(candidates)
    is_inside = has_marked_line(candidates.parent, is_part) & ~is_part
    inside = _sum_by_name(candidates, is_inside) / np.maximum(_sum_by_name(candidates), 1)
    accepted = {
        at: meaning
        for at, meaning in enumerate(candidates.meanings)
        if meaning.kind not in ("part", "evaluation", "step") and inside[at] <= _INSIDE
    }
    accepted = _keep_frequent(accepted, _sum_by_name(candidates).astype(np.int64))
    held = _count_held(candidates, {at for at, meaning in accepted.items() if meaning.kind in _TRAINING[:3]})
    accepted |= _choose_steps(candidates, held, inside, accepted)
    kinds = {meaning.kind for meaning in accepted.values()}
    is_training = len(kinds & set(_TRAINING)) > 1 or "forward_backward" in kinds
    is_certain = is_training and _is_ordered(candidates, accepted)
    if not (kinds & set(_TRAINING) if is_requested else is_certain):
        return HandNames()
    repeated = _find_repeated_numbers(candidates, accepted)
    hand_names = (
        _build_name(candidates.folded[at], meaning, is_repeated=at in repeated)
        for at, meaning in accepted.items()
    )
    rejected = [
        at
        for at, meaning in enumerate(candidates.meanings)
        if meaning.kind in _TRAINING and at not in accepted
    ]
    parts = list_distinct(candidates.text[np.isin(candidates.name, rejected)]).tolist() if rejected else []
    return HandNames(
        names=tuple(sorted(hand_names, key=lambda name: (name.kind, name.folded))),
        parts=frozenset(text for at in parts if (text := candidates.texts[at]) is not None),
    )


def _mark_parts(candidates: _Candidates) -> Bools:
    """Return the mask of parts of the model and evaluations; a range around forwards and backwards is neither."""
    is_part = np.array([meaning.kind in ("part", "evaluation") for meaning in candidates.meanings])
    is_around = np.ones(len(candidates.name), dtype=np.bool_)
    for kind in ("forward", "backward"):
        names = {at for at, meaning in enumerate(candidates.meanings) if meaning.kind == kind}
        is_around &= _count_held(candidates, names) > 0
    return np.asarray(is_part[candidates.name] & ~is_around)


def _find_candidates(names: RangeNames) -> _Candidates | None:
    read = _read_hand_names if len(names.name.texts) <= _MOST_NAMES else _read_hand_names.__wrapped__
    folded_of, meaning_of = read(names.name.texts)
    folded_of = folded_of[names.name.row]
    rows = np.flatnonzero(folded_of >= 0)
    if not len(rows):
        return None
    rows = rows[~names.domain.match(f"^(?:{_LIBRARIES})$")[rows]]
    if not len(rows):
        return None
    chosen = index_rows(names.ranges[["thread_key", "start_ns", "end_ns", "end_thread_key"]], rows)
    used, name = find_distinct(folded_of[rows])
    all_names = list(meaning_of)
    folded = [all_names[at] for at in folded_of[rows[used]].tolist()]
    return _Candidates(
        folded=folded,
        meanings=[meaning_of[each] for each in folded],
        name=name,
        parent=find_parents(chosen, ~has_value(chosen["end_thread_key"])),
        start=numbers(chosen["start_ns"]),
        text=names.name.row[rows],
        texts=names.name.texts,
    )


@lru_cache(_FEW)  # the reports of a run have the same names
def _read_hand_names(texts: Sequence[str | None]) -> tuple[Int64s, dict[str, Meaning]]:
    """Read names: by name, the index of its folded name, -1 without a meaning; and the meanings of folded names."""
    meaning_of: dict[str, Meaning] = {}
    index_of: dict[str, int] = {}
    folded_of = np.full(len(texts), -1)
    first = 0
    for column in split_texts(texts):
        likely = np.flatnonzero(column.str.contains(_HINTS).fill_null(value=False).to_numpy())
        likely = likely[
            ~column[likely].str.contains(_NO_HAND).to_numpy()
        ]  # some, so the second search is short
        for at, text in zip((first + likely).tolist(), column[likely].to_list(), strict=True):
            folded, meaning = _read_hand_name(text)
            if meaning is not None:
                meaning_of.setdefault(folded, meaning)
                folded_of[at] = index_of.setdefault(folded, len(index_of))
        first += len(column)
    return folded_of, meaning_of


@lru_cache(_CACHE_SIZE)
def _read_hand_name(text: str) -> tuple[str, Meaning | None]:
    """Fold and read a name; the reports of a run have the same names."""
    folded = fold_name(text)
    return folded, parse_hand_name(folded)


def _sum_by_name(candidates: _Candidates, values: np.ndarray | None = None) -> np.ndarray:
    """Sum values of ranges by name; the number of ranges without values."""
    return np.bincount(candidates.name, values, minlength=len(candidates.folded))


def _keep_frequent(accepted: dict[int, Meaning], count: Int64s) -> dict[int, Meaning]:
    """Keep certain names, and uncertain ones if their kind has no certain one and the opposite kind is as frequent."""
    kept = {at: meaning for at, meaning in accepted.items() if meaning.is_certain}
    kinds = {meaning.kind for meaning in kept.values()}
    for kind in set(_TRAINING) - kinds:
        uncertain = [
            at for at, meaning in accepted.items() if meaning.kind == kind and not meaning.is_certain
        ]
        others = [
            at for at, meaning in accepted.items() if meaning.kind in _TRAINING and meaning.kind != kind
        ]
        most = max((count[at] for at in others), default=0)
        frequent = [at for at in uncertain if count[at] <= most]
        if len(uncertain) <= _MOST_UNCERTAIN and len(frequent) == len(uncertain):
            kept |= {at: accepted[at] for at in frequent}
    return kept


def _count_held(candidates: _Candidates, jobs: set[int]) -> Int64s:
    """Count the outermost ranges with these names inside each range."""
    is_job_name = np.zeros(len(candidates.folded), dtype=np.bool_)
    is_job_name[list(jobs)] = True
    is_job = is_job_name[candidates.name]
    above = candidates.parent
    is_outermost = is_job & ~has_marked_line(above, is_job)[above] | (is_job & (above < 0))
    return count_below(above, is_outermost)


def _choose_steps(
    candidates: _Candidates, held: Int64s, inside: np.ndarray, accepted: dict[int, Meaning]
) -> dict[int, Meaning]:
    """Choose the finest ranges with jobs in them as steps; without jobs, batches are data and a step is an optimizer's.

    Args:
        candidates: All candidates.
        held: Number of forwards and backwards in each range.
        inside: Share of the ranges of each name that lie in a part of the model.
        accepted: Names of jobs.
    """
    count = _sum_by_name(candidates)
    mean = _sum_by_name(candidates, held) / np.maximum(count, 1)
    holding = _sum_by_name(candidates, held > 0) / np.maximum(count, 1)
    steps = {
        at: meaning
        for at, meaning in enumerate(candidates.meanings)
        if meaning.kind == "step" and inside[at] <= _INSIDE
    }
    outer = {
        at: meaning
        for at, meaning in steps.items()
        if 2 * holding[at] > 1 and (mean[at] <= _MOST_IN_EPOCH or _is_repeated_step(meaning, int(count[at])))
    }
    finest = min((meaning.level for meaning in outer.values()), default=0)
    chosen = {at: meaning for at, meaning in outer.items() if meaning.level == finest}
    kinds = {meaning.kind for meaning in accepted.values()}
    for at, meaning in steps.items():
        if holding[at] or not meaning.is_certain:
            continue
        if meaning.level == 0 and "optimizer" not in kinds and not meaning.numbers:
            chosen[at] = Meaning(kind="optimizer", is_certain=False)
        elif meaning.level in _BATCHES and chosen and "data" not in kinds:
            chosen[at] = Meaning(kind="data", is_certain=False)
    return chosen


def _is_repeated_step(meaning: Meaning, count: int) -> bool:
    """Return whether a name names steps, also with many jobs inside: no epoch, and no range around the whole training."""
    return meaning.level < _EPOCH and (count > 1 or "step" in meaning.numbers)


def _is_ordered(candidates: _Candidates, accepted: dict[int, Meaning]) -> bool:
    """Return whether the first forward comes before the first backward."""
    first = {
        kind: min(
            (
                int(candidates.start[candidates.name == at].min())
                for at, each in accepted.items()
                if each.kind == kind
            ),
            default=None,
        )
        for kind in ("forward", "backward")
    }
    forward, backward = first["forward"], first["backward"]
    return forward is None or backward is None or forward < backward


def _find_repeated_numbers(candidates: _Candidates, accepted: dict[int, Meaning]) -> set[int]:
    """Find the names whose numbers repeat: numbers of micro-batches do in every step, numbers of steps do not."""
    first, _ = find_distinct(candidates.text)
    distinct = np.bincount(candidates.name[first], minlength=len(candidates.folded))
    count = _sum_by_name(candidates)
    return {at for at in accepted if distinct[at] < count[at]}


def _build_name(folded: str, meaning: Meaning, *, is_repeated: bool) -> HandName:
    numbers_of = meaning.numbers
    if meaning.kind != "step" and not is_repeated:
        numbers_of = ()
    pattern = build_pattern(folded, numbers_of)
    groups = tuple(group for group in numbers_of if group)
    kind = None if meaning.kind == "step" else meaning.kind
    return HandName(
        folded=folded.replace(HOLE, "#"),
        kind=meaning.kind,
        rule=Rule(
            pattern=pattern,
            groups=groups,
            kind=kind,
            source=_CERTAIN_SOURCE if meaning.is_certain else _OTHER_SOURCE,
        ),
    )

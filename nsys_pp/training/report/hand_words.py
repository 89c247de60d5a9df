"""Words of ranges that people name by hand, and the meaning of a name by its words."""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from nsys_pp.training.report.presets import load_words

_GRADIENTS = frozenset({"grad", "grads", "gradient", "gradients"})
_REDUCTION = frozenset({"sync", "synchronize", "allreduce", "reduce", "scatter"})
_PREPARATION = frozenset({"prep", "prepare", "preparation", "preprocess", "preprocessing"})
HOLE = "\0"  # stands for a number
EMITTED_SUFFIX = r", (?:seq|op_id|sizes|input_op_ids) = .*$"
"""Expression of what PyTorch's emit_nvtx appends to names."""
_STEPS = ("step", "iteration", "iter", "batch", "minibatch", "epoch")  # finest first
_WORD = re.compile(r"(?i:h2d|d2h)|[A-Z]+(?![a-z])|[A-Z]?[a-z]+[0-9]{2}(?![0-9])|[A-Z]?[a-z]+|\0")
_NUMBER = re.compile(r"[0-9]+(?<![hHdD]2)|(?<=[hHdD])2(?![hHdD])")  # but not that of H2D
_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$])")
_MOST_UNKNOWN = 3  # words in addition to a step with its number, which must have jobs inside
_MICRO_BATCH = frozenset({"mb", "micro", "microbatch", "pass"})  # words before its number
_LONGEST = 80  # characters of a name that may be written by hand


class Meaning(Struct, frozen=True, kw_only=True):
    """Meaning of a name.

    Attributes:
        kind: Kind of a job; "step"; "part" for parts of a model; "evaluation".
        is_certain: Whether all its words are known; one unknown word makes a name uncertain.
        level: Of a step: index in order of "step", "iteration", ..., "epoch".
        numbers: For each number in the name, "step", "micro_batch", "chunk" or "".
    """

    kind: str
    is_certain: bool = True
    level: int = 0
    numbers: tuple[str, ...] = ()


def fold_name(name: str) -> str:
    r"""Replace the numbers of a name by `HOLE`, and drop the suffix of emit_nvtx.

    >>> fold_name("Epoch 3 - step 12, op_id = 7")
    'Epoch \x00 - step \x00'
    """
    return _NUMBER.sub(HOLE, re.sub(EMITTED_SUFFIX, "", name))


def build_pattern(folded: str, numbers: tuple[str, ...]) -> str:
    r"""Build the expression for the names that fold to a name, with a group for each number that has a meaning.

    >>> build_pattern(fold_name("fwd (3)"), ("micro_batch",))
    'fwd \\((?P<micro_batch>[0-9]+)\\)(?:, .*)?'
    """
    parts = [_SPECIAL.sub(r"\\\1", part) for part in folded.split(HOLE)]
    pattern = parts[0]
    for at, part in enumerate(parts[1:]):
        group = numbers[at] if at < len(numbers) else ""
        pattern += (f"(?P<{group}>[0-9]+)" if group else "[0-9]+") + part
    return pattern + "(?:, .*)?"


@lru_cache(4096)
def parse_hand_name(folded: str) -> Meaning | None:
    """Find the meaning of a name, folded by `fold_name`; None without one.

    >>> parse_hand_name("Forward pass").kind, parse_hand_name("opt.step").kind
    ('forward', 'optimizer')
    >>> parse_hand_name("Linear forward").kind, parse_hand_name("aten::mm")
    ('part', None)
    """
    if len(folded) > _LONGEST or "::" in folded:
        return None
    words = [word.lower() for word in _WORD.findall(folded)]
    plain = [word for word in words if word != HOLE]
    present = frozenset(plain)
    if not present or present & load_words()["message"]:
        return None
    if present & load_words()["evaluation"]:
        return Meaning(kind="evaluation")
    if present & load_words()["part"]:
        return Meaning(kind="part")
    kind, known = _find_kind(present)
    if not kind:
        return None
    unknown = [
        word
        for word in plain
        if word not in known and word not in load_words()["silent"] and word not in _STEPS
    ]
    level = min((at for at, step in enumerate(_STEPS) if step in present), default=0) if kind == "step" else 0
    numbers = _find_numbers(words, kind, level)
    if len(unknown) > (_MOST_UNKNOWN if "step" in numbers else 1):
        return None
    return Meaning(kind=kind, is_certain=not unknown, level=level, numbers=numbers)


def _find_kind(present: frozenset[str]) -> tuple[str, frozenset[str]]:
    """Find the kind of a name by its words, and the words that mean it; "" without one."""
    words = load_words()
    forward, optimizer, data, fetch = (words[key] for key in ("forward", "optimizer", "data", "fetch"))
    backward = words["backward"] | ({"back"} if {"back", "prop"} <= present else set())
    is_update = "update" in present and present <= words["update"] | words["silent"] | {"step"}
    is_fetch = present & fetch and present & {"batch", "device", "gpu", "cuda"}
    found: list[tuple[object, str, frozenset[str]]] = [
        (present & forward and present & backward, "forward_backward", forward | backward),
        (present & forward, "forward", forward),
        (present & backward, "backward", backward | optimizer),
        ("zero" in present and present & (_GRADIENTS | optimizer), "other", optimizer | {"zero"}),
        (present & optimizer or is_update, "optimizer", optimizer | words["update"]),
        (present & data or is_fetch, "data", fetch | data | _PREPARATION | {"batch"}),
        (present & _REDUCTION and present & _GRADIENTS, "other", _REDUCTION),
        (present & frozenset(_STEPS), "step", frozenset(_STEPS)),
    ]
    return next(((kind, known) for holds, kind, known in found if holds), ("", frozenset()))


def _find_numbers(words: list[str], kind: str, level: int) -> tuple[str, ...]:
    """Find the meaning of each number in a name by the word before it."""
    meanings = []
    previous = ""
    has_step = False
    numbered = load_words()["forward"] | load_words()["backward"] | _MICRO_BATCH
    for at, word in enumerate(words):
        if word != HOLE:
            previous = word
            continue
        meaning = ""
        if kind == "step" and previous == _STEPS[level] and not has_step and "ga" not in words[:at]:
            meaning, has_step = "step", True
        elif kind != "step" and previous in numbered:
            meaning = "micro_batch"
        elif kind != "step" and previous == "chunk":
            meaning = "chunk"
        meanings.append("" if meaning in meanings else meaning)
        previous = "" if meaning else previous
    return tuple(meanings)

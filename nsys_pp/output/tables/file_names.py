"""Labels of reports in tables, without a long beginning that all share."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from nsys_pp.output.tables.columns import TextColumn

_LEAST = 12  # characters; a shorter beginning is no burden
_ENDS = "/_-. "  # of words; numbers and words are not cut


def cut_shared_starts(columns: Sequence[TextColumn]) -> tuple[list[TextColumn], list[str]]:
    """Cut the beginning that all labels of a column of reports share, and note it."""
    cut, notes = [], []
    for column in columns:
        start = find_shared_start(column.texts) if column.column.is_file else ""
        if start:
            shown = tuple(f"…{text.removeprefix(start)}" for text in column.texts)
            notes.append(f"…: `{start}`, with which the name of each report begins")
            column = replace(column, texts=shown)
        cut.append(column)
    return cut, notes


def find_shared_start(texts: Sequence[str]) -> str:
    """Find the beginning of several texts that is long enough to be cut, up to the end of a word; "" otherwise.

    >>> find_shared_start(["profile_of_training_rank10", "profile_of_training_rank11"])
    'profile_of_training_'
    >>> find_shared_start(["rank10", "rank11"]), find_shared_start(["profile_of_training_0"])
    ('', '')
    """
    if len(set(texts)) < 2:
        return ""
    first, last = min(texts), max(texts)  # in order, all others are between these
    length = next(
        (at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first)
    )
    shared = first[:length]
    end = max(shared.rfind(letter) for letter in _ENDS) + 1
    return shared[:end] if end >= _LEAST else ""

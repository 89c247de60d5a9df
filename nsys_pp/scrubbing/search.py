"""Search of the bytes of a copy for texts that it must not hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import polars as pl

LEAST_BYTES = 8
"""Of a text that is searched for: shorter ones occur by chance among numbers."""

_MOST_BYTES = 64  # of a pattern: a longer text is searched for in pieces, as SQLite cuts it into pages

_PIECE_BYTES = 1 << 26


def find_texts(path: Path, texts: Collection[bytes]) -> set[bytes]:
    """Find pieces of texts (`cut_texts`) that occur in a file, at any position of any format.

    Args:
        path: The file.
        texts: The texts; pieces with fewer than `LEAST_BYTES` bytes are ignored.
    """
    patterns = sorted(cut_texts(texts))
    if not patterns:
        return set()
    overlap = max(map(len, patterns))
    found: set[bytes] = set()
    with path.open("rb") as file:
        tail = b""
        while piece := file.read(_PIECE_BYTES):
            found.update(find_in(tail + piece, patterns))
            tail = (tail + piece)[-overlap:]
    return found


def cut_texts(texts: Iterable[bytes]) -> set[bytes]:
    """Cut texts into the pieces that are searched for."""
    return {
        piece
        for text in texts
        for at in range(0, max(len(text), 1), _MOST_BYTES)
        if len(piece := text[at : at + _MOST_BYTES]) >= LEAST_BYTES
    }


def find_in(data: bytes, patterns: Iterable[bytes]) -> set[bytes]:
    """Find the patterns that occur in data: all at once, by the automaton of polars."""
    listed = [pattern.decode("latin-1") for pattern in patterns]  # a character for each byte
    matches = (
        pl.Series([data.decode("latin-1")])
        .to_frame("data")
        .select(pl.col("data").str.extract_many(listed, overlapping=True).list.unique())
    )
    return {text.encode("latin-1") for text in matches["data"][0].to_list()}

"""Many packed frames of one schema (`nsys_pp.arrays.packed_frames`), decoded as one: compiled (`core.c`).

The columns of all frames lie in one array, so none is copied to be joined. `decode_frame` and `join_frames` are the definition,
and decode what is not of the usual form: frames with lists, and damaged ones, for which they raise the error.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.arrays.byte_planes import Values
from nsys_pp.arrays.core import Core, load_core
from nsys_pp.arrays.core_arguments import find_address
from nsys_pp.arrays.frame_codes import LAYOUTS, FrameCode, Layout, read_code
from nsys_pp.arrays.packed_columns import as_type, build_texts
from nsys_pp.arrays.packed_frames import is_empty, list_categories
from nsys_pp.arrays.series import build_column
from nsys_pp.frames.columns import build_frame

_METHODS = {"plain": 0, "signed": 1, "delta": 2, "minus": 3, "map": 4}
_NO_VALUES = (-1, 0, 0, -1)  # method, width, length and other of a column of nulls


def join_packed(frames: Sequence[bytes], schema: pl.Schema) -> tuple[pl.DataFrame, list[int]] | None:
    """Decode and concatenate packed frames of one schema.

    Args:
        frames: Packed, not compressed.
        schema: Their schema.

    Returns:
        The frame, and the number of rows of each; None where they are not of the usual form.
    """
    layout, core = LAYOUTS.find(schema), load_core()
    if core is None:
        return None
    try:
        codes = [read_code(frame, layout) for frame in frames]
    except (ValueError, struct.error, msgspec.MsgspecError):
        return None
    sizes = [code.rows for code, _ in codes]
    if not any(sizes):
        are_empty = all(is_empty(frame, *code, layout) for frame, code in zip(frames, codes, strict=True))
        return (schema.to_frame(), sizes) if are_empty else None
    restored = None if any(layout.lists) else _restore(core, frames, codes, layout)
    if restored is None:
        return None
    columns = []
    for position, name in enumerate(layout.names):
        dtype, is_valid = layout.types[position], None
        if position in restored.nullable:
            is_valid = restored.valid[position]
            is_valid = None if is_valid.all() else is_valid
        words = restored.words[position]
        if layout.texts[position]:
            stored = layout.order.index(position)
            texts = [code.columns[stored].texts or [] for code, _ in codes]
            if not _are_complete(texts, restored.most[:, position], dtype):
                return None
            columns.append(build_texts(words, texts, sizes, is_valid, name, dtype))
            continue
        series = build_column(name, as_type(words, dtype), dtype)
        columns.append(series if is_valid is None else series.set(build_column("", ~is_valid), None))
    return build_frame(columns), sizes


class _Restored(Struct, frozen=True):
    """Columns of several frames, one frame after the other.

    Attributes:
        words: By column and row, 0 for null.
        valid: The same, masks of the rows with a value.
        most: The greatest word, by frame and column; -1 without one.
        nullable: Columns that are null in some row of a frame, or may be.
    """

    words: Values
    valid: NDArray[np.bool_]
    most: NDArray[np.int64]
    nullable: set[int]


def _restore(
    core: Core, frames: Sequence[bytes], codes: Sequence[tuple[FrameCode, int]], layout: Layout
) -> _Restored | None:
    """Restore the columns of frames; None where one is not of the usual form.

    Args:
        core: The compiled functions.
        frames: The packed frames.
        codes: The description of each, and the position of its columns.
        layout: Of their schema.
    """
    described: list[int] = []
    nullable: set[int] = set()
    for code, _ in codes:
        for place, column in zip(layout.order, code.columns, strict=True):
            planes = column.code
            if column.inner is not None:
                return None
            if column.has_nulls or planes is None:
                nullable.add(place)
            described += (place, column.has_nulls)
            described += (
                _NO_VALUES
                if planes is None
                else (_METHODS[planes.method], planes.width, planes.length, planes.other)
            )
    count, rows = len(layout.order), sum(code.rows for code, _ in codes)
    words = np.empty((count, rows), dtype=np.uint64)
    valid = np.empty((count, rows), dtype=np.bool_)
    most = np.empty((len(frames), count), dtype=np.int64)
    numbers = np.array(described, dtype=np.int64).reshape(len(frames), -1)
    numbers_at, words_at, valid_at, most_at = (find_address(array) for array in (numbers, words, valid, most))
    for frame, (code, start) in zip(frames, codes, strict=True):
        data = np.frombuffer(frame, dtype=np.uint8)
        size = len(data) - start
        addresses = numbers_at, rows, words_at, valid_at, most_at
        read = core.restore(size, find_address(data) + start, code.rows, count, *addresses)
        if read < 0 or read + code.padding != size:
            return None
        numbers_at += numbers.strides[0]
        words_at += code.rows * words.itemsize
        valid_at += code.rows
        most_at += most.strides[0]
    return _Restored(words, valid, most, nullable)


def _are_complete(texts: Sequence[list[str]], most: NDArray[np.int64], dtype: Any) -> bool:
    """Return whether all texts of a column are there, in each frame, and are categories of an `Enum`."""
    if any(greatest >= len(own) for greatest, own in zip(most.tolist(), texts, strict=True)):
        return False
    if not isinstance(dtype, pl.Enum):
        return True
    categories = list_categories(dtype)
    return all(own == texts[0] or categories.issuperset(own) for own in texts) and categories.issuperset(
        texts[0]
    )

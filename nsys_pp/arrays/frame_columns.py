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
from numpy.typing import NDArray

from nsys_pp.arrays.byte_planes import Values
from nsys_pp.arrays.core import Core, load_core
from nsys_pp.arrays.frame_codes import LAYOUTS, FrameCode, Layout, read_code
from nsys_pp.arrays.packed_columns import as_type, build_texts
from nsys_pp.arrays.packed_frames import list_categories

_METHODS = {"plain": 0, "signed": 1, "delta": 2, "minus": 3, "map": 4}
_NO_VALUES = (-1, 0, 0, -1)  # method, width, length and other of a column of nulls
Masks = NDArray[np.bool_]


def join_packed(frames: Sequence[bytes], schema: pl.Schema) -> tuple[pl.DataFrame, list[int]] | None:
    """Decode and concatenate packed frames of one schema.

    Args:
        frames: Packed, not compressed.
        schema: Their schema.

    Returns:
        The frame, and the number of rows of each; None where they are not of the usual form.
    """
    layout, core = LAYOUTS.find(schema), load_core()
    if core is None or any(layout.lists):
        return None
    try:
        codes = [read_code(frame, layout) for frame in frames]
    except (ValueError, struct.error, msgspec.MsgspecError):
        return None
    sizes = [code.rows for code, _ in codes]
    if not any(sizes):
        return None
    words = np.empty((len(layout.types), sum(sizes)), dtype=np.uint64)
    valid = np.empty(words.shape, dtype=np.bool_)
    most = np.empty((len(frames), len(layout.types)), dtype=np.int64)
    at = 0
    for frame, (code, start), greatest in zip(frames, codes, most, strict=True):
        if not _restore(core, frame, code, start, layout, (words[:, at:], valid[:, at:], greatest)):
            return None
        at += code.rows
    columns = []
    for position, name in enumerate(layout.names):
        dtype, is_valid = layout.types[position], None
        stored = layout.order.index(position)
        if any(code.columns[stored].has_nulls or code.columns[stored].code is None for code, _ in codes):
            is_valid = valid[position]
            is_valid = None if is_valid.all() else is_valid
        if layout.texts[position]:
            texts = [code.columns[stored].texts or [] for code, _ in codes]
            if not _are_complete(texts, most[:, position], dtype):
                return None
            columns.append(build_texts(words[position], texts, sizes, is_valid, name, dtype))
            continue
        series = pl.Series(name, as_type(words[position], dtype), dtype=dtype)
        columns.append(series if is_valid is None else series.set(pl.Series(~is_valid), None))
    return pl.DataFrame(columns), sizes


def _restore(
    core: Core,
    frame: bytes,
    code: FrameCode,
    start: int,
    layout: Layout,
    result: tuple[Values, Masks, NDArray[np.int64]],
) -> bool:
    """Restore the columns of a frame; return whether it has the usual form.

    Args:
        core: The compiled functions.
        frame: The packed frame.
        code: Its description.
        start: Position of its columns.
        layout: Of its schema.
        result: Words and masks of the columns from its first row on, and the greatest word of each column.
    """
    words, valid, most = result
    described: list[int] = []
    for place, column in zip(layout.order, code.columns, strict=True):
        planes = column.code
        if column.inner is not None:
            return False
        described += (place, column.has_nulls)
        described += (
            _NO_VALUES
            if planes is None
            else (_METHODS[planes.method], planes.width, planes.length, planes.other)
        )
    numbers = np.array(described, dtype=np.int64)
    data = np.frombuffer(frame, dtype=np.uint8)[start:]
    read = core.restore(
        len(data),
        data.ctypes.data,
        code.rows,
        len(layout.order),
        numbers.ctypes.data,
        words.strides[0] // words.itemsize,
        words.ctypes.data,
        valid.ctypes.data,
        most.ctypes.data,
    )
    return read >= 0 and read + code.padding == len(data)


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

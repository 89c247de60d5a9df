"""Decoded columns of packed frames (`nsys_pp.arrays.packed_frames`), and series of them.

Many small frames are joined as arrays: a query of polars for each column of each would cost more than the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.arrays.byte_planes import Values
from nsys_pp.arrays.columns import find_distinct, numbers

TEXTS = (pl.String, pl.Categorical, pl.Enum)
_FEW_ROWS = 64  # up to this number, a list is faster than a gather
Mask = NDArray[np.bool_]


class DecodedColumn(Struct, frozen=True, kw_only=True):
    """A column of one frame.

    Attributes:
        words: One per row, 0 for null: numbers by their bits, or positions in `texts`; of lists, all values.
        valid: Mask of the rows that are not null; None: all.
        texts: Of strings and categories.
        lengths: Of lists that are not null.
    """

    words: Values
    valid: Mask | None
    texts: list[str] | None = None
    lengths: Values | None = None


def list_empty(types: Sequence[Any]) -> list[DecodedColumn]:
    """List columns without rows, one for each type."""
    nothing = np.empty(0, dtype=np.uint64)
    return [
        DecodedColumn(
            words=nothing,
            valid=None,
            texts=[] if isinstance(dtype, TEXTS) else None,
            lengths=nothing if isinstance(dtype, pl.List) else None,
        )
        for dtype in types
    ]


def join_columns(pieces: Sequence[DecodedColumn], name: str, dtype: Any) -> pl.Series:
    """Concatenate the columns of frames of one schema as a series.

    Args:
        pieces: At least one.
        name: Of the series.
        dtype: As in `pack_frame`.
    """
    words = np.concatenate([piece.words for piece in pieces])
    if isinstance(dtype, pl.List):
        lengths = np.concatenate([_lengths_of(piece) for piece in pieces]).astype(np.int64)
        masks = [
            np.ones(len(_lengths_of(piece)), dtype=np.bool_) if piece.valid is None else piece.valid
            for piece in pieces
        ]
        return _build_lists(name, dtype, np.concatenate(masks), lengths, as_type(words, dtype.inner))
    valid = None
    if any(piece.valid is not None for piece in pieces):
        valid = np.concatenate(
            [
                np.ones(len(piece.words), dtype=np.bool_) if piece.valid is None else piece.valid
                for piece in pieces
            ]
        )
    if isinstance(dtype, TEXTS):
        texts, sizes = [piece.texts or [] for piece in pieces], [len(piece.words) for piece in pieces]
        return build_texts(words, texts, sizes, valid, name, dtype)
    values = pl.Series(name, as_type(words, dtype), dtype=dtype)
    return values if valid is None else values.set(pl.Series(~valid), None)


def _lengths_of(piece: DecodedColumn) -> Values:
    assert piece.lengths is not None
    return piece.lengths


def build_texts(
    words: Values, texts: Sequence[list[str]], sizes: Sequence[int], valid: Mask | None, name: str, dtype: Any
) -> pl.Series:
    """Build a column of texts.

    Args:
        words: Positions in the texts.
        texts: Of each piece of the column.
        sizes: Rows of each piece.
        valid: As in `DecodedColumn`.
        name: Of the series.
        dtype: Its type.
    """
    choices: dict[str, int] = {}
    positions = np.empty(len(words), dtype=np.uint32)
    used = [own for own, size in zip(texts, sizes, strict=True) if size and own]
    if all(own == used[0] for own in used[1:]):  # as in most runs
        choices = {text: position for position, text in enumerate(used[0])} if used else {}
        positions[:] = words
    else:
        at, before = 0, None
        for own_texts, size in zip(texts, sizes, strict=True):
            if own_texts != before:  # neighbours mostly have the same
                own = np.array(
                    [choices.setdefault(text, len(choices)) for text in own_texts], dtype=np.uint32
                )
                before = own_texts
            if own_texts:
                positions[at : at + size] = own[words[at : at + size].astype(np.int64)]
            at += size
    if valid is not None:
        positions[~valid] = len(choices)
    if len(words) <= _FEW_ROWS:
        listed: list[str | None] = [*choices, None]
        return pl.Series(name, [listed[position] for position in positions.tolist()], dtype=pl.String).cast(
            dtype
        )
    # indices of this type are used as they are; `gather` is a query
    return pl.Series(name, [*choices, None], dtype=pl.String).cast(dtype)[pl.Series(positions)]


def _build_lists(
    name: str, dtype: pl.List, valid: Mask, lengths: NDArray[np.int64], values: NDArray[Any]
) -> pl.Series:
    row = np.repeat(np.flatnonzero(valid), lengths)
    filled = pl.DataFrame({"row": row, name: pl.Series(values, dtype=dtype.inner)})
    lists = filled.group_by(pl.col("row").set_sorted(), maintain_order=True).all()
    if len(lists) == len(valid):
        return lists[name]
    # two more choices: no values, and null
    choices = pl.concat([lists[name], pl.Series(name, [[], None], dtype=dtype)])
    positions = np.where(valid, len(lists), len(lists) + 1)
    positions[lists["row"].to_numpy()] = np.arange(len(lists))
    return choices.gather(positions)


def split_values(column: pl.Series) -> tuple[NDArray[Any], Mask | None]:
    """Return the values of a column of numbers or booleans that are not null, and the mask of their rows; None: all."""
    if not column.null_count():
        return column.to_numpy(), None
    if column.dtype in (pl.Float64, pl.UInt64):
        return column.drop_nulls().to_numpy(), column.is_not_null().to_numpy()
    valid = ~np.isnan(column.cast(pl.Int64).to_numpy())  # of numbers with nulls, floats
    return numbers(column)[valid], valid


def number_texts(
    column: pl.Series, codes: pl.Series | None
) -> tuple[list[str], NDArray[np.int64], Mask | None]:
    """Return the distinct texts of a column, sorted, the position of each text that is not null, and the mask of their rows.

    Texts are sorted by their bytes in UTF-8, as Python sorts them by code points.

    Args:
        column: The column.
        codes: Physical values of categories; None: of strings.
    """
    if codes is None:
        listed = column.to_list()
        texts = sorted({text for text in listed if text is not None})
        position_of: dict[str | None, int] = {text: position for position, text in enumerate(texts)}
        positions = np.array([position_of.get(text, -1) for text in listed], dtype=np.int64)
    else:
        code = numbers(codes, null=-1)
        first, index = find_distinct(code)
        if isinstance(column.dtype, pl.Enum):
            words = [None if at < 0 else list_words(column.dtype)[at] for at in code[first].tolist()]
        else:
            words = column[pl.Series(first.astype(np.uint32))].to_list()
        texts = sorted(text for text in words if text is not None)
        position_of = {text: position for position, text in enumerate(texts)}
        positions = np.array([position_of.get(text, -1) for text in words], dtype=np.int64)[index]
    if not column.null_count():
        return texts, positions, None
    return texts, positions[positions >= 0], positions >= 0


@cache
def list_words(dtype: pl.Enum) -> list[str]:
    """List the categories of a type in order, once."""
    return dtype.categories.to_list()


def as_type(words: Values, dtype: Any) -> NDArray[Any]:
    """Return the numbers of words: the inverse of `as_words`."""
    if dtype == pl.Float64:
        return words.view(np.float64)
    if dtype == pl.Boolean:
        flags: NDArray[Any] = words != 0
        return flags
    target = _array_type(dtype)
    numbers: NDArray[Any] = words.view(np.int64) if target.kind == "i" else words
    return numbers.astype(target, copy=False)


@cache
def _array_type(dtype: Any) -> np.dtype[Any]:
    target: np.dtype[Any] = pl.Series(dtype=dtype).to_numpy().dtype
    return target

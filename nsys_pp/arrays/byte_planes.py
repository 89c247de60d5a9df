"""Integers as planes of bytes that compress well, and back.

A column of integers is stored as its lowest bytes, then its second lowest bytes, and so on, up to the highest byte that is
not 0 everywhere: bytes of equal meaning are together. Before that, the values may be replaced by smaller ones (`METHODS`).
All arithmetic is modulo 2^64, so every method is exact for all values of 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Values = NDArray[np.uint64]
Method = Literal["plain", "signed", "delta", "minus", "map"]
"""Stored values: plain: the values. signed: by magnitude, so that -1 is small. delta: differences to the value before.
minus: differences to another column. map: the value for each value of another column, which determines it."""

_MOST_KEYS = 1 << 12  # values of a column that may determine another one are below it
_SAMPLE_ROWS = 1 << 12  # rows by which methods are compared
_FIRST_ROWS = 64  # that refute keys
_ZERO, _SHIFT = np.uint64(0), np.uint64(1)


class PlaneCode(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Encoding of a column.

    Attributes:
        method: Replacement of the values.
        width: Number of planes.
        length: Stored values, thus bytes of a plane.
        other: Position of the column that "minus" and "map" refer to; -1 without one.
    """

    method: Method
    width: int
    length: int
    other: int = -1


def choose_planes(
    values: Values,
    *,
    measure: Callable[[bytes], int],
    bases: Sequence[tuple[int, Values]] = (),
    keys: Iterable[tuple[int, Values]] = (),
) -> tuple[PlaneCode, bytes]:
    """Encode a column by the method whose planes are smallest.

    Args:
        values: The column.
        measure: Returns the size of planes after compression; compares methods on some rows.
        bases: Columns of the same length, with their positions, that the column may be close to.
        keys: Columns of the same length, with their positions, that may determine the column.

    Returns:
        The encoding and the planes, which are empty if all values are 0.
    """
    for position, key in keys:
        table = _find_map(values, key)
        if table is not None:
            width, planes = _to_planes(table)
            return PlaneCode("map", width, len(table), position), planes
    first = max(0, (len(values) - _SAMPLE_ROWS) // 2)
    sample = slice(first, first + _SAMPLE_ROWS)
    by_position = dict(bases)
    methods = list(_methods(values, bases))
    best, packed, least = methods[0], (0, b""), -1
    for method, other in methods if len(methods) > 1 else ():
        base = by_position[other][sample] if other >= 0 else None
        candidate = _to_planes(_replace(values[sample], method, base))
        size = measure(candidate[1])
        if least < 0 or size < least:
            best, packed, least = (method, other), candidate, size
    method, other = best
    if least < 0 or len(values) > _SAMPLE_ROWS:  # else the sample is all of the column
        packed = _to_planes(_replace(values, method, by_position.get(other)))
    width, planes = packed
    return PlaneCode(method, width, len(values), other), planes


def restore_planes(code: PlaneCode, planes: memoryview, other: Values | None = None) -> Values:
    """Decode a column.

    Args:
        code: Its encoding.
        planes: At least its planes.
        other: The column that `code.other` names.

    Raises:
        ValueError: The planes are too short, or the encoding contradicts the columns.
    """
    stored = _from_planes(planes, code.width, code.length)
    if code.method == "plain":
        return stored
    if code.method == "signed":
        return _from_magnitudes(stored)
    if code.method == "delta":
        return np.cumsum(_from_magnitudes(stored), dtype=np.uint64)
    if other is None:
        raise ValueError("an encoding lacks its other column")
    if code.method == "minus":
        if len(other) != len(stored):
            raise ValueError("two columns differ in length")
        return _from_magnitudes(stored) + other
    if len(other) and int(other.max()) >= len(stored):
        raise ValueError("a value is not in the table")
    return stored.take(other.view(np.int64))


def as_words(values: NDArray[Any]) -> Values:
    """View integers or booleans of any size as 64-bit words; floats by their bits."""
    if values.dtype.kind == "f":
        return np.ascontiguousarray(values, dtype=np.float64).view(np.uint64)
    if values.dtype.kind == "i":
        return values.astype(np.int64).view(np.uint64)
    return values.astype(np.uint64)


def size_of(code: PlaneCode) -> int:
    """Return the bytes of the planes of an encoding.

    Raises:
        ValueError: No column has such an encoding.
    """
    if not 0 <= code.width <= 8 or code.length < 0:
        raise ValueError("an encoding is invalid")
    return code.width * code.length


def _methods(values: Values, bases: Sequence[tuple[int, Values]]) -> Iterator[tuple[Method, int]]:
    """Yield the methods that may be best, with the position of their other column."""
    if not len(values) or not values.any():
        yield "plain", -1
        return
    yield "signed" if int(values.view(np.int64).min()) < 0 else "plain", -1
    yield "delta", -1
    for position, _ in bases:
        yield "minus", position


def _replace(values: Values, method: str, base: Values | None) -> Values:
    if method == "plain":
        return values
    if method == "signed":
        return _to_magnitudes(values)
    if method == "delta":
        differences = values.copy()
        np.subtract(values[1:], values[:-1], out=differences[1:])
        return _to_magnitudes(differences)
    assert base is not None
    return _to_magnitudes(values - base)


def _find_map(values: Values, key: Values) -> Values | None:
    """Return the value for each value of a key from 0 on; None if the key does not determine the values."""
    if not len(values) or int(key.max()) >= min(_MOST_KEYS, len(values)):
        return None
    table, positions = np.zeros(int(key.max()) + 1, dtype=np.uint64), key.view(np.int64)
    for rows in (slice(_FIRST_ROWS), slice(None)):  # few rows refute most keys
        table[positions[rows]] = values[rows]
        if not (table[positions[rows]] == values[rows]).all():
            return None
    return table


def _to_magnitudes(values: Values) -> Values:
    """Map 0, -1, 1, -2, ... to 0, 1, 2, 3, ..."""
    signs = (values.view(np.int64) >> np.int64(63)).view(np.uint64)
    return (values << _SHIFT) ^ signs


def _from_magnitudes(values: Values) -> Values:
    return (values >> _SHIFT) ^ (_ZERO - (values & _SHIFT))


def _to_planes(values: Values) -> tuple[int, bytes]:
    top = int(values.max(initial=0))
    width = -(-top.bit_length() // 8)
    words = values.astype("<u8", copy=False)
    return width, np.ascontiguousarray(words.view(np.uint8).reshape(-1, 8)[:, :width].T).tobytes()


def _from_planes(planes: memoryview, width: int, length: int) -> Values:
    if len(planes) < width * length:
        raise ValueError("planes are too short")
    if not width:
        return np.zeros(length, dtype=np.uint64)
    stored = np.frombuffer(planes, dtype=np.uint8, count=width * length)
    if width == 1:
        return stored.astype(np.uint64)
    stored = stored.reshape(width, length)
    words = np.zeros((length, 8), dtype=np.uint8)
    words[:, :width] = stored.T
    return words.view("<u8").reshape(-1).astype(np.uint64, copy=False)

"""Numbers and texts at positions of bytes, compiled (`core.c`): each position is checked there before it is used.

A function returns None where its arrays do not have the form that it is for; callers then use numpy, which is the
definition, and finds what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.arrays.core import Core, load_core
from nsys_pp.arrays.core_arguments import find_address
from nsys_pp.arrays.types import Int64s

Bytes = NDArray[np.uint8]
_INTEGER_BITS = (32, 64)
NULL, INTEGER, REAL, BYTES, TEXT = 1, 2, 4, 8, 16
"""Kinds of fields, of which a sum is a set."""
_MOST_SLICES = 1 << 31  # numbered by 32 bits
_FIRST_BYTES = 12  # the first code of bytes; 10 and 11 are none
_KINDS = np.array([NULL, *[INTEGER] * 6, REAL, INTEGER, INTEGER, 0, 0], np.uint8)
_LENGTHS = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0], np.int64)


class ByteRows(Struct, frozen=True):
    """Rows of bytes in one buffer, each behind the codes of its fields.

    Codes are numbers as in `read_numbers`, of the form of each field: 0 null; 1 to 6 signed big-endian integers of 1, 2, 3, 4, 6
    and 8 bytes; 7 eight bytes of another kind; 8 and 9 the integers 0 and 1; from 12 on texts of half as many bytes above 12.

    Attributes:
        buffer: The bytes.
        headers: Position of the codes of each row.
        starts: Position of its fields, which lie one after the other; the codes end there.
        kept: Number of the bytes of the fields that are in the buffer.
        sizes: Number of all their bytes.
    """

    buffer: Bytes
    headers: Int64s
    starts: Int64s
    kept: Int64s
    sizes: Int64s


class FieldKind(Struct, frozen=True):
    """A field to read from rows.

    Attributes:
        position: Of the field in the rows.
        bits: 32 or 64 for integers; 0 for texts.
    """

    position: int
    bits: int


class FieldValues(Struct, frozen=True):
    """Values of a field, one per row.

    Attributes:
        values: Integers, 0 for null; of texts the position of the first byte.
        others: 1 for null; of texts the length, 0 for null.
        null_count: Number of nulls.
    """

    values: NDArray[Any]
    others: NDArray[Any]
    null_count: int


def read_numbers(core: Core, buffer: Bytes, at: Int64s, count: int = 1) -> tuple[Int64s, Int64s] | None:
    """Read successive numbers of seven bits a byte, the most significant first; the ninth byte has eight.

    Args:
        core: The library.
        buffer: Bytes.
        at: Positions in them.
        count: Of the numbers from each position on.

    Returns:
        The numbers, and the positions after them, as matrices (`count`, positions); None where one is not in the buffer.
    """
    buffer, at = _contiguous(buffer), np.ascontiguousarray(at, dtype=np.int64)
    values, ends = np.empty((count, len(at)), np.int64), np.empty((count, len(at)), np.int64)
    addresses = find_address(values), find_address(ends)
    if core.read_numbers(len(buffer), find_address(buffer), len(at), find_address(at), count, *addresses):
        return None
    return values, ends


def read_runs(
    core: Core, buffer: Bytes, starts: Int64s, counts: Int64s, base: Int64s, least: Int64s, most: int
) -> Int64s | None:
    """Read runs of big-endian numbers of 16 bits, and add a number to each of a run.

    Args:
        core: The library.
        buffer: Bytes.
        starts: Position of each run.
        counts: Count of its numbers.
        base: Number that is added to them.
        least: Number that they must reach.
        most: Number that none may exceed.

    Returns:
        The sums, run after run; None where a run is not in the buffer, or a number not within its limits.
    """
    columns = [np.ascontiguousarray(column, dtype=np.int64) for column in (starts, counts, base, least)]
    if any(len(column) != len(starts) for column in columns) or counts.min(initial=0) < 0:
        raise ValueError("runs of negative length, or other limits than runs")
    buffer = _contiguous(buffer)
    if counts.max(initial=0) > len(buffer):
        return None
    values = np.empty(int(counts.sum()), dtype=np.int64)
    addresses = (find_address(column) for column in columns)
    limits = most, len(values), find_address(values)
    if core.read_runs(len(buffer), find_address(buffer), len(starts), *addresses, *limits):
        return None
    return values


def read_number_rows(
    core: Core, buffer: Bytes, starts: Int64s, stops: Int64s, width: int
) -> NDArray[np.int32] | None:
    """Read successive numbers as in `read_numbers`, several for each row.

    Args:
        core: The library.
        buffer: Bytes.
        starts: Position of the first number of each row.
        stops: Position after the last one.
        width: Count of numbers in a row, at least 1.

    Returns:
        A (rows, width) matrix; None where the numbers do not fill their row, or one has more than 31 bits.
    """
    if len(starts) != len(stops) or width < 1:
        raise ValueError("rows with other stops than starts, or without numbers")
    buffer = _contiguous(buffer)
    starts, stops = (np.ascontiguousarray(column, dtype=np.int64) for column in (starts, stops))
    values = np.empty((len(starts), width), dtype=np.int32)
    addresses = find_address(starts), find_address(stops)
    if core.read_number_rows(
        len(buffer), find_address(buffer), len(starts), *addresses, width, find_address(values)
    ):
        return None
    return values


def read_fields(
    core: Core, rows: ByteRows, width: int, kinds: Sequence[FieldKind]
) -> list[FieldValues] | None:
    """Read the values of fields of rows.

    Args:
        core: The library.
        rows: The rows.
        width: Count of all fields of a row.
        kinds: Fields to read; positions ascend.

    Returns:
        Their values; None where a row has another number of codes, the fields do not fill it, or a value is not of its kind.

    Raises:
        ValueError: Arrays have different lengths, or a kind is not one of a field.
    """
    positions = [kind.position for kind in kinds]
    if positions != sorted(positions) or any(not 0 <= at < width for at in positions):
        raise ValueError("fields that are not there, or not in order")
    if any(kind.bits not in (0, *_INTEGER_BITS) for kind in kinds):
        raise ValueError("a field of other bits than 0, 32 and 64")
    buffer, count = _contiguous(rows.buffer), len(rows.headers)
    columns = [
        np.ascontiguousarray(column, dtype=np.int64)
        for column in (rows.headers, rows.starts, rows.kept, rows.sizes)
    ]
    if any(len(column) != count for column in columns):
        raise ValueError("rows of another number than their headers")
    values: list[NDArray[Any]] = [
        np.empty(count, np.int32 if kind.bits == 32 else np.int64) for kind in kinds
    ]
    others: list[NDArray[Any]] = [np.zeros(count, np.uint8 if kind.bits else np.int64) for kind in kinds]
    table = np.array(
        [
            (kind.position, kind.bits, find_address(first), find_address(second), 0, 0, 0)
            for kind, first, second in zip(kinds, values, others, strict=True)
        ],
        dtype=np.int64,
    ).reshape(-1, 7)
    codes = np.empty(width, dtype=np.int32)
    addresses = (find_address(column) for column in columns)
    fields = width, find_address(codes), len(kinds), find_address(table)
    if core.read_fields(len(buffer), find_address(buffer), count, *addresses, *fields):
        return None
    return [
        FieldValues(first, second, nulls)
        for first, second, nulls in zip(values, others, table[:, 4].tolist(), strict=True)
    ]


def check_fields(codes: NDArray[np.int32], allowed: NDArray[np.uint8], sizes: Int64s) -> bool:
    """Return whether each field of rows is of an allowed kind, and the fields fill their row.

    Args:
        codes: A (rows, fields) matrix, as in `ByteRows`.
        allowed: The sum of the kinds that each field may have: `NULL`, `INTEGER`, `REAL`, `BYTES`, `TEXT`.
        sizes: Bytes of the fields of each row.

    Raises:
        ValueError: Arrays have other lengths than the codes.
    """
    count, width = codes.shape
    if len(allowed) != width or len(sizes) != count:
        raise ValueError("kinds or sizes of another number than the codes")
    core = load_core()
    if core is None:
        return _check_in_numpy(codes, allowed, sizes)
    codes = np.ascontiguousarray(codes, dtype=np.int32)
    allowed = np.ascontiguousarray(allowed, dtype=np.uint8)
    sizes = np.ascontiguousarray(sizes, dtype=np.int64)
    addresses = (find_address(array) for array in (codes, allowed, sizes))
    return core.check_fields(count, width, *addresses) == 0


def _check_in_numpy(codes: NDArray[np.int32], allowed: NDArray[np.uint8], sizes: Int64s) -> bool:
    beyond = np.where(codes % 2 == 1, TEXT, BYTES)
    kinds = np.where(codes < _FIRST_BYTES, _KINDS[np.clip(codes, 0, _FIRST_BYTES - 1)], beyond)
    lengths = (codes.astype(np.int64) - _FIRST_BYTES) >> 1
    lengths = np.where(codes < _FIRST_BYTES, _LENGTHS[np.clip(codes, 0, _FIRST_BYTES - 1)], lengths)
    return bool((kinds & allowed).all() and (codes >= 0).all() and (lengths.sum(axis=1) == sizes).all())


def join_slices(core: Core, buffer: Bytes, starts: Int64s, lengths: Int64s) -> Bytes:
    """Join slices of bytes, one after the other.

    Raises:
        ValueError: One is not in the buffer.
    """
    if len(starts) != len(lengths):
        raise ValueError("slices with other lengths than starts")
    buffer = _contiguous(buffer)
    starts, lengths = (np.ascontiguousarray(column, dtype=np.int64) for column in (starts, lengths))
    if lengths.min(initial=0) < 0 or lengths.max(initial=0) > len(buffer):
        raise ValueError("a slice that is not in the buffer")
    joined = np.empty(int(lengths.sum()), dtype=np.uint8)
    addresses = find_address(starts), find_address(lengths)
    if core.join_slices(
        len(buffer), find_address(buffer), len(starts), *addresses, len(joined), find_address(joined)
    ):
        raise ValueError("a slice that is not in the buffer")
    return joined


def number_slices(
    core: Core, buffer: Bytes, starts: Int64s, lengths: Int64s
) -> tuple[Int64s, NDArray[np.uint32]]:
    """Number slices of bytes 1, 2, ... in order of appearance, equal ones alike; one without bytes has number 0.

    Returns:
        First row of each number from 1 on, number of each row.

    Raises:
        ValueError: One is not in the buffer.
    """
    if len(starts) != len(lengths) or len(starts) >= _MOST_SLICES:
        raise ValueError("slices with other lengths than starts, or too many")
    buffer, count = _contiguous(buffer), len(starts)
    starts, lengths = (np.ascontiguousarray(column, dtype=np.int64) for column in (starts, lengths))
    numbers, first, found = np.empty(count, np.uint32), np.empty(count, np.int64), np.zeros(1, np.int64)
    addresses = (find_address(array) for array in (starts, lengths, numbers, first, found))
    result = core.number_slices(len(buffer), find_address(buffer), count, *addresses)
    if result < 0:
        raise MemoryError
    if result:
        raise ValueError("a slice that is not in the buffer")
    return first[: found[0]], numbers


def _contiguous(buffer: Bytes) -> Bytes:
    return np.ascontiguousarray(buffer, dtype=np.uint8)

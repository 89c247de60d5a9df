"""Records of several shapes written as bytes, compiled (`core.c`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.arrays.core import Core
from nsys_pp.arrays.core_arguments import find_address
from nsys_pp.arrays.types import Int64s

_MOST_GROUPS = 65_535
_WORD_BYTES = (1, 2, 4, 8)


class RecordColumn(Struct, frozen=True):
    """Values within records: unsigned integers of any size, written as varints, or a matrix of raw bytes.

    Attributes:
        values: One per record.
        offset: Of the column in its records.
        width: Bytes in a record.
    """

    values: NDArray[Any]
    offset: int
    width: int


class RecordGroup(Struct, frozen=True):
    """Records of one shape.

    Attributes:
        positions: Of the records among those of all groups.
        template: A record, with any bytes for the columns.
        columns: What differs from record to record.
    """

    positions: Int64s
    template: bytes
    columns: Sequence[RecordColumn]


def write_records(core: Core, groups: Sequence[RecordGroup]) -> NDArray[np.uint8]:
    """Write the records of groups in order of their positions.

    Args:
        core: The library.
        groups: Together, their positions are 0, 1, ... without a gap.

    Returns:
        The bytes of all records; empty without records.

    Raises:
        ValueError: Positions repeat or are out of bounds, columns have other lengths than their group or reach beyond
            its records, or values are not of a kind that can be written.
    """
    if len(groups) >= _MOST_GROUPS:
        raise ValueError("too many groups of records")
    count = sum(len(group.positions) for group in groups)
    kept: list[NDArray[Any]] = []  # alive until the library returns
    rows: list[tuple[int, ...]] = []
    columns: list[tuple[int, ...]] = []
    for group in groups:
        positions = np.ascontiguousarray(group.positions, dtype=np.int64)
        if len(positions) and (positions.min() < 0 or positions.max() >= count):
            raise ValueError("a position out of bounds")
        template = np.frombuffer(group.template, dtype=np.uint8)
        kept += [positions, template]
        first = len(columns)
        for column in group.columns:
            values = _check_column(column, len(positions), len(template))
            kept.append(values)
            is_raw = values.ndim == 2
            size = column.width if is_raw else values.itemsize
            columns.append((find_address(values), size, column.offset, column.width, int(is_raw)))
        addresses = find_address(positions), find_address(template)
        rows.append((len(positions), *addresses, len(template), first, len(columns)))
    size = sum(len(group.positions) * len(group.template) for group in groups)
    data, starts = np.empty(size, dtype=np.uint8), np.empty(count + 1, dtype=np.int64)
    group_of = np.empty(count, dtype=np.uint16)
    tables = [np.array(table, dtype=np.int64).reshape(-1) for table in (rows, columns)]
    addresses = find_address(tables[0]), find_address(tables[1])
    results = find_address(group_of), find_address(starts), find_address(data)
    if core.write_packets(len(rows), *addresses, count, *results):
        raise ValueError("two records have the same position")
    return data


def _check_column(column: RecordColumn, count: int, width: int) -> NDArray[Any]:
    """Return the values of a column as the library reads them.

    Raises:
        ValueError: They are not of a kind that can be written, or not in the records.
    """
    values = np.ascontiguousarray(column.values)
    if len(values) != count or column.width < 1 or not 0 <= column.offset <= width - column.width:
        raise ValueError("a column of another length than its records, or beyond them")
    if values.ndim == 2 and values.dtype == np.uint8 and values.shape[1] == column.width:
        return values
    if values.ndim != 1 or values.dtype.kind != "u" or values.itemsize not in _WORD_BYTES:
        raise ValueError("a column of records has unsigned integers or raw bytes")
    return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))


def join_tails(core: Core, records: NDArray[np.uint8], lengths: Int64s, tails: bytes) -> bytes:
    """Write records of one width, each with its tail of bytes behind it.

    Args:
        core: The library.
        records: One per row.
        lengths: Of the tail of each record.
        tails: One after the other.

    Raises:
        ValueError: The lengths are not those of the tails.
    """
    count, width = records.shape
    lengths = np.ascontiguousarray(lengths, dtype=np.int64)
    if len(lengths) != count or lengths.min(initial=0) < 0 or int(lengths.sum()) != len(tails):
        raise ValueError("tails of other lengths than they have")
    records, data = (
        np.ascontiguousarray(records, dtype=np.uint8),
        np.empty(records.size + len(tails), np.uint8),
    )
    texts = np.frombuffer(tails, dtype=np.uint8)
    addresses = (find_address(array) for array in (records, lengths, texts, data))
    core.join_tails(count, width, *addresses)
    return data.tobytes()

"""Packets whose columns are planes of bytes (`nsys_pp.arrays.byte_planes`), written without arrays between; compiled (`core.c`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from nsys_pp.arrays.byte_planes import PlaneCode
from nsys_pp.arrays.core import Core
from nsys_pp.arrays.core_arguments import find_address
from nsys_pp.arrays.types import Bytes

_METHODS = {"plain": 0, "signed": 1, "delta": 2, "minus": 3, "map": 4}
_RAW_BYTES = 8


class PlaneColumn(Struct, frozen=True):
    """A column of packets.

    Attributes:
        code: Encoding of its values; other columns are counted from 0 in its group.
        at: Offset of its planes.
        offset: In a packet.
        width: There.
        is_raw: It has the 8 bytes of a value, not a varint.
    """

    code: PlaneCode
    at: int
    offset: int
    width: int
    is_raw: bool


class PlaneGroup(Struct, frozen=True):
    """Packets of one shape.

    Attributes:
        count: Number of packets.
        packet: A packet, with any bytes for the columns.
        columns: In order.
    """

    count: int
    packet: bytes
    columns: Sequence[PlaneColumn]


def write_planes(
    core: Core,
    data: memoryview,
    groups: Sequence[PlaneGroup],
    group_of: Bytes | None,
    *,
    head: bytes,
    stop: int,
) -> Bytes:
    """Write packets in order.

    Args:
        core: The library.
        data: Bytes with the planes of all columns, up to `stop`.
        groups: Shapes of packets, at least one and at most 256.
        group_of: Group of each packet; None: there is one group.
        head: Bytes before the packets.
        stop: Offset behind the planes, which are the last bytes.

    Returns:
        The head and the packets.

    Raises:
        ValueError: Planes are not in the data, columns not in their packets, an encoding contradicts the columns, or groups
            have other numbers of packets.
    """
    counts = [group.count for group in groups]
    if group_of is None:
        group_of = np.zeros(counts[0], dtype=np.uint8)
    if np.bincount(group_of, minlength=len(groups)).tolist() != counts:
        raise ValueError("the groups of a block are damaged")
    planes = np.frombuffer(data, dtype=np.uint8)
    start = find_address(planes)
    packets = [np.frombuffer(group.packet, dtype=np.uint8) for group in groups]
    rows: list[tuple[int, ...]] = []
    columns: list[tuple[int, ...]] = []
    value_count = longest = size = 0
    for group, packet in zip(groups, packets, strict=True):
        first = len(columns)
        for number, column in enumerate(group.columns):
            code = column.code
            _check(column, number, group, len(data))
            longest = max(longest, code.length)
            columns.append(
                (
                    *(_METHODS[code.method], code.width, code.length, code.other),
                    *(start + column.at, column.offset, column.width, int(column.is_raw)),
                )
            )
        rows.append((group.count, find_address(packet), len(packet), first, len(columns)))
        value_count += group.count * len(group.columns)
        size += group.count * len(packet)
    if stop != len(data):
        raise ValueError("a block has another length than its columns")
    written = np.empty(len(head) + size, dtype=np.uint8)
    written[: len(head)] = np.frombuffer(head, dtype=np.uint8)
    tables = [np.array(table, dtype=np.int64).reshape(-1) for table in (rows, columns)]
    words, table = np.empty(value_count, np.uint64), np.empty(longest, np.uint64)
    following = np.empty(len(groups) + len(columns), dtype=np.int64)
    addresses = [find_address(array) for array in (group_of, words, table, following, written)]
    shapes = (len(groups), *(find_address(array) for array in tables), len(group_of))
    if core.write_planes(*shapes, *addresses[:4], addresses[4] + len(head)):
        raise ValueError("a value is not in the table")
    return written


def _check(column: PlaneColumn, number: int, group: PlaneGroup, size: int) -> None:
    """Check a column of a group, whose planes are in `size` bytes; raises as `write_planes`."""
    code = column.code
    if not 0 <= code.width <= _RAW_BYTES or code.length < 0:
        raise ValueError("an encoding is invalid")
    if code.other >= number:
        raise ValueError("a column refers to a later one")
    if code.other < 0 and code.method in ("minus", "map"):
        raise ValueError("an encoding lacks its other column")
    if column.at < 0 or column.at + code.width * code.length > size:
        raise ValueError("planes are too short")
    if code.method != "map" and code.length != group.count:
        raise ValueError("a column has another length than its group")
    if column.offset < 0 or column.offset + column.width > len(group.packet) or column.width < 1:
        raise ValueError("a column beyond its packet")
    if column.is_raw and column.width != _RAW_BYTES:
        raise ValueError("a column has an impossible width")

"""Blocks as parts store them: the values of the packets, at about half the size of their compressed packets.

Merging a part builds the packets again and compresses them: the bytes are those of a trace that is made of the report. A
packed block is its length (4 bytes, little-endian), the CRC-32 of what follows (4 bytes), its form (1 byte), and:

* form 0: the compressed packet, for blocks of unusual shapes;
* form 1, deflated: the length of the description (4 bytes), the description in MessagePack (`_Description`), the bytes before
  the groups, the number of the group of each packet, and the columns as planes of bytes (`nsys_pp.arrays.byte_planes`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from io import BytesIO
from typing import IO

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from nsys_pp.arrays.byte_planes import PlaneCode, Values, as_words, choose_planes, restore_planes, size_of
from nsys_pp.arrays.core import load_core
from nsys_pp.arrays.plane_packets import PlaneColumn, PlaneGroup, write_planes
from nsys_pp.arrays.types import Bytes
from nsys_pp.output.deflate import deflate, measure_deflated
from nsys_pp.output.perfetto.clocks import compress
from nsys_pp.output.perfetto.packets import PacketBlock, PacketGroup, compress_block, join_block
from nsys_pp.output.perfetto.texts import decompress_packet, read_packets
from nsys_pp.output.perfetto.wire import Column, Part, varint_column

_AS_PACKET, _AS_COLUMNS = 0, 1
_LENGTH = struct.Struct("<I")
_HEAD = struct.Struct("<II")  # length and checksum of the block
HEAD_BYTES = _HEAD.size
_DOUBLE_BYTES = 8
MAX_GROUPS = 256
MAX_UNPACKED_BYTES = 1 << 26  # of the packets of a block, and of its columns; ordinary blocks have 1-10 MB


class _ColumnCode(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    width: int  # of the column in a packet
    is_raw: bool  # raw bytes: doubles
    code: PlaneCode


class _GroupCode(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    rows: int
    parts: list[bytes | _ColumnCode]


class _Description(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    head_bytes: int
    groups: list[_GroupCode]


def pack_block(block: PacketBlock) -> bytes:
    """Pack a block, with its length and checksum in front."""
    form, data = _AS_PACKET, b""
    if _is_packable(block):
        form, data = _AS_COLUMNS, _pack_columns(block)
    else:
        data = compress_block(block)
    packed = bytes([form]) + data
    return _HEAD.pack(len(packed), zlib_ng.crc32(packed)) + packed


def read_head(data: bytes) -> tuple[int, int]:
    """Return the length and the checksum of the packed block that follows its first `HEAD_BYTES` bytes.

    Raises:
        ValueError: No block has this length.
    """
    length, checksum = _HEAD.unpack(data)
    if not 0 < length <= MAX_UNPACKED_BYTES:
        raise ValueError("a packed block has an impossible length")
    return length, checksum


def check_block(data: bytes, checksum: int) -> bytes:
    """Return a packed block without its head, if it has the checksum of its head.

    Raises:
        ValueError: It is damaged.
    """
    if zlib_ng.crc32(data) != checksum:
        raise ValueError("a packed block differs from its checksum")
    return data


def unpack_block(data: bytes) -> bytes:
    """Encode a packed block, without its head, as one compressed packet.

    Raises:
        ValueError: It is damaged, or larger than any block.
    """
    _check_form(data)
    return data[1:] if data[0] == _AS_PACKET else compress(_unpack_columns(data[1:]))


def check_contents(data: bytes) -> None:
    """Check that a packed block, without its head, can be unpacked, at a fraction of the cost.

    Raises:
        ValueError: It is damaged, or larger than any block.
    """
    _check_form(data)
    if data[0] == _AS_COLUMNS:
        _unpack_columns(data[1:])


def _check_form(data: bytes) -> None:
    if not data:
        raise ValueError("a block is empty")
    if data[0] not in (_AS_PACKET, _AS_COLUMNS):
        raise ValueError("a block has an unknown form")
    if data[0] == _AS_PACKET and len(list(read_packets(BytesIO(data[1:])))) != 1:
        raise ValueError("a block is not one packet")


def iterate_plain(blocks: IO[bytes]) -> Iterator[bytes]:
    """Yield the bytes of each packed block of a stream, decompressed: all names of its events are among them.

    Raises:
        ValueError: A block is damaged.
    """
    while head := blocks.read(HEAD_BYTES):
        if len(head) < HEAD_BYTES:
            raise ValueError("the blocks end early")
        length, checksum = read_head(head)
        data = check_block(blocks.read(length), checksum)
        yield decompress_packet(data[1:]) if data[0] == _AS_PACKET else _inflate(data[1:])


def _is_packable(block: PacketBlock) -> bool:
    columns = [part for group in block.groups for part in group.parts if isinstance(part, Column)]
    size = sum(_packet_bytes(group.parts) * len(group.positions) for group in block.groups)
    words = sum(8 * len(column.values) for column in columns)
    return (
        len(block.groups) <= MAX_GROUPS
        and max(size, words + 2 * len(block.head)) <= MAX_UNPACKED_BYTES // 2
        and all(not column.is_raw or column.width == _DOUBLE_BYTES for column in columns)
    )


def _packet_bytes(parts: tuple[Part, ...]) -> int:
    return sum(part.width if isinstance(part, Column) else len(part) for part in parts)


def _pack_columns(block: PacketBlock) -> bytes:
    groups, data = [], [bytes(block.head), _pack_positions(block.groups)]
    for group in block.groups:
        earlier: list[tuple[int, Values]] = []
        parts: list[bytes | _ColumnCode] = []
        for part in group.parts:
            if isinstance(part, bytes):
                parts.append(part)
                continue
            words = part.values.view("<u8").reshape(-1) if part.is_raw else as_words(part.values)
            code, planes = choose_planes(words, measure=measure_deflated, keys=earlier)
            earlier.append((len(earlier), words))
            parts.append(_ColumnCode(part.width, part.is_raw, code))
            data.append(planes)
        groups.append(_GroupCode(len(group.positions), parts))
    description = msgspec.msgpack.encode(_Description(len(block.head), groups))
    return deflate(b"".join([_LENGTH.pack(len(description)), description, *data]))


def _pack_positions(groups: list[PacketGroup]) -> bytes:
    """Return the number of the group of each packet; nothing for one group."""
    if len(groups) == 1:
        return b""
    numbers = np.empty(sum(len(group.positions) for group in groups), dtype=np.uint8)
    for number, group in enumerate(groups):
        numbers[group.positions] = number
    return numbers.tobytes()


def _unpack_columns(packed: bytes) -> bytes | Bytes:
    """Return the packets of a block of form 1."""
    data = memoryview(_inflate(packed))
    size = int.from_bytes(data[: _LENGTH.size], "little")
    try:
        description = msgspec.msgpack.decode(data[_LENGTH.size : _LENGTH.size + size], type=_Description)
    except msgspec.MsgspecError as error:
        raise ValueError("the description of a block is damaged") from error
    _check(description)
    at = _LENGTH.size + size
    head = bytes(data[at : at + description.head_bytes])
    at += description.head_bytes
    core = load_core()
    if core is None:
        return join_block(PacketBlock(head=head, groups=_unpack_groups(description, data, at)))
    group_of = None
    if len(description.groups) > 1:
        rows = sum(group.rows for group in description.groups)
        group_of = np.frombuffer(data, dtype=np.uint8, count=rows, offset=at)
        at += rows
    groups = []
    for group in description.groups:
        own, at = _lay_out(group, at)
        groups.append(own)
    return write_planes(core, data, groups, group_of, head=head, stop=at)


def _lay_out(group: _GroupCode, at: int) -> tuple[PlaneGroup, int]:
    """Lay out the packets of a group whose planes begin at an offset; return the offset behind them, too."""
    columns, packet, offset = [], [], 0
    for part in group.parts:
        if isinstance(part, bytes):
            packet.append(part)
            offset += len(part)
            continue
        columns.append(PlaneColumn(part.code, at, offset, part.width, part.is_raw))
        packet.append(bytes(part.width))
        offset += part.width
        at += part.code.width * part.code.length
    return PlaneGroup(group.rows, b"".join(packet), columns), at


def _unpack_groups(description: _Description, data: memoryview, at: int) -> list[PacketGroup]:
    """Decode the groups of a block by numpy."""
    positions, at = _unpack_positions(description, data, at)
    groups = []
    for group, own in zip(description.groups, positions, strict=True):
        parts, at = _unpack_group(group, data, at)
        groups.append(PacketGroup(positions=own, parts=parts))
    if at != len(data):
        raise ValueError("a block has another length than its columns")
    return groups


def _inflate(packed: bytes) -> bytes:
    inflater = zlib_ng.decompressobj()
    try:
        data: bytes = inflater.decompress(packed, MAX_UNPACKED_BYTES)
    except zlib_ng.error as error:  # type: ignore[misc]
        raise ValueError("a block cannot be decompressed") from error
    if not inflater.eof or inflater.unused_data:
        raise ValueError("a block is cut, or larger than any block")
    return data


def _check(description: _Description) -> None:
    """Check sizes before anything of that size is made."""
    size = description.head_bytes
    if size < 0 or not description.groups:
        raise ValueError("a block has no packets")
    for group in description.groups:
        if group.rows < 0:
            raise ValueError("a group has fewer packets than none")
        size += 8 * group.rows
        for part in group.parts:
            if isinstance(part, bytes):
                size += len(part) * group.rows
            elif not 0 < part.width <= 10 or (part.is_raw and part.width != _DOUBLE_BYTES):
                raise ValueError("a column has an impossible width")
            else:
                size_of(part.code)  # refuses negative lengths
                size += 8 * group.rows + 8 * part.code.length
    if size > 2 * MAX_UNPACKED_BYTES:
        raise ValueError("a block is larger than any block")


def _unpack_positions(
    description: _Description, data: memoryview, at: int
) -> tuple[list[NDArray[np.int64]], int]:
    rows = [group.rows for group in description.groups]
    if len(rows) == 1:
        return [np.arange(rows[0])], at
    numbers = np.frombuffer(data, dtype=np.uint8, count=sum(rows), offset=at)
    positions = [np.flatnonzero(numbers == number) for number in range(len(rows))]
    if [len(own) for own in positions] != rows:
        raise ValueError("the groups of a block are damaged")
    return positions, at + sum(rows)


def _unpack_group(group: _GroupCode, data: memoryview, at: int) -> tuple[tuple[Part, ...], int]:
    earlier: list[Values] = []
    parts: list[Part] = []
    for part in group.parts:
        if isinstance(part, bytes):
            parts.append(part)
            continue
        if part.code.other >= len(earlier):
            raise ValueError("a column refers to a later one")
        other = earlier[part.code.other] if part.code.other >= 0 else None
        size = size_of(part.code)
        words = restore_planes(part.code, data[at : at + size], other)
        if len(words) != group.rows:
            raise ValueError("a column has another length than its group")
        earlier.append(words)
        at += size
        if part.is_raw:
            raw = words.astype("<u8", copy=False).view(np.uint8).reshape(-1, _DOUBLE_BYTES)
            parts.append(Column(raw, part.width))
        else:
            parts.append(varint_column(words, part.width))
    return tuple(parts), at

"""Packets of a block: groups of packets of one shape, and their bytes.

A group has one packet per row, as in `nsys_pp.output.perfetto.wire`. A block interleaves its groups in order of events.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.arrays.core import Core, load_core
from nsys_pp.arrays.packet_writer import RecordColumn, RecordGroup, write_records
from nsys_pp.arrays.types import Bytes
from nsys_pp.output.perfetto.clocks import compress
from nsys_pp.output.perfetto.wire import Parts, encode_rows, join_records, join_template


class PacketGroup(Struct, frozen=True, kw_only=True):
    """Packets of one shape.

    Attributes:
        positions: Of the packets among those of the block, ascending.
        parts: Bytes that all packets share, and columns with one value per packet.
    """

    positions: NDArray[np.int64]
    parts: Parts


class PacketBlock(Struct, frozen=True, kw_only=True):
    """Packets of a block: `head`, then the groups; their positions together are 0, 1, ... without a gap."""

    head: bytes | Bytes
    groups: list[PacketGroup]


def compress_block(block: PacketBlock) -> bytes:
    """Encode a block as one compressed packet: bytes of a trace. They depend on the values of the block only."""
    return compress(join_block(block))


def join_block(block: PacketBlock) -> Bytes:
    """Return the packets of a block, in order, behind its head."""
    core = load_core()
    packets = _join_in_numpy(block) if core is None else _join(core, block)
    return join_head(block.head, packets) if len(block.head) else packets


def join_head(head: bytes | Bytes, packets: Bytes) -> Bytes:
    """Join the first packet, which is long where its strings are many, and the packets after it."""
    return np.concatenate((np.frombuffer(head, np.uint8), packets.reshape(-1)))


def _join(core: Core, block: PacketBlock) -> NDArray[np.uint8]:
    return write_records(core, [lay_out_group(group) for group in block.groups])


def lay_out_group(group: PacketGroup) -> RecordGroup:
    """Find the bytes that the packets of a group share, and the offsets of its columns."""
    template, offsets, widths = lay_out_parts(group.parts)
    values = [part.values for part in group.parts if not isinstance(part, bytes)]
    columns = [RecordColumn(*column) for column in zip(values, offsets, widths, strict=True)]
    return RecordGroup(group.positions, template, columns)


def lay_out_parts(parts: Parts) -> tuple[bytes, list[int], list[int]]:
    """Return the bytes that packets share, with zeros for their columns, and the offsets and widths of these."""
    offsets, widths, at = [], [], 0
    for part in parts:
        if not isinstance(part, bytes):
            offsets.append(at)
            widths.append(part.width)
        at += len(part)
    return join_template(parts), offsets, widths


def _join_in_numpy(block: PacketBlock) -> NDArray[np.uint8]:
    records = [(group.positions, encode_rows(group.parts, len(group.positions))) for group in block.groups]
    return join_records(records)

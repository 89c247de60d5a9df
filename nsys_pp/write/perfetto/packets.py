"""Packets of a block: groups of packets of one shape, and their bytes.

A group has one packet per row, as in `nsys_pp.write.perfetto.wire`. A block interleaves its groups in order of events.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.write.perfetto.clocks import compress
from nsys_pp.write.perfetto.wire import Parts, encode_rows, join_records


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

    head: bytes
    groups: list[PacketGroup]


def compress_block(block: PacketBlock) -> bytes:
    """Encode a block as one compressed packet: bytes of a trace. They depend on the values of the block only."""
    records = [(group.positions, encode_rows(group.parts, len(group.positions))) for group in block.groups]
    return compress(block.head + join_records(records).tobytes())

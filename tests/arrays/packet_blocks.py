"""Random blocks of packets."""

from __future__ import annotations

import numpy as np

from nsys_pp.output.perfetto.packets import PacketBlock, PacketGroup
from nsys_pp.output.perfetto.wire import Column, Part, varint_column


def draw_block(seed: int) -> PacketBlock:
    """Draw groups of packets with columns of all widths, interleaved in any order; some groups are empty."""
    random = np.random.Generator(np.random.PCG64(seed))
    count, group_count = int(random.integers(0, 30)), int(random.integers(1, 5))
    group_of = random.integers(0, group_count, count)
    groups = []
    for number in range(group_count):
        positions = np.flatnonzero(group_of == number)
        parts: list[Part] = []
        for _ in range(int(random.integers(0, 6))):
            parts.append(random.bytes(int(random.integers(0, 12))))
            parts.append(draw_column(random, len(positions)))
        groups.append(PacketGroup(positions=positions, parts=(*parts, b"\x01")))
    return PacketBlock(head=random.bytes(int(random.integers(0, 5))), groups=groups)


def draw_column(random: np.random.Generator, count: int) -> Column:
    width = int(random.integers(1, 11))
    if random.random() < 0.3:
        return Column(random.integers(0, 256, (count, width)).astype(np.uint8)[:, ::-1], width)
    values = random.integers(0, 1 << 64, count, dtype=np.uint64) >> np.uint64(max(0, 64 - 7 * width))
    return varint_column(np.repeat(values, 2)[::2], width)

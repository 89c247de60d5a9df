"""Blocks of a batch as bytes of a trace, written from its columns by the compiled functions.

The bytes are those of `nsys_pp.output.perfetto.subtracks.build_block`, which numpy joins where there is no compiled library.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from msgspec import Struct

from nsys_pp.arrays.core import load_core
from nsys_pp.arrays.row_packets import MAX_NULLABLE, Layout, RowPackets
from nsys_pp.output.perfetto.clocks import compress
from nsys_pp.output.perfetto.packets import compress_block, join_head, lay_out_parts
from nsys_pp.output.perfetto.subtracks import (
    FieldKind,
    PacketBatch,
    begin_packets,
    build_block,
    encode_first_packet,
    end_packets,
    opening_packets,
)
from nsys_pp.output.perfetto.wire import Column, Parts, varint

_CACHE_SIZE = 4_096  # reports of a run mostly have the same layouts
_VARINTS, _RAWS = np.empty(0, np.uint8), np.empty((0, 8), np.uint8)


class _Template(Struct, frozen=True):
    """A packet of any sequence."""

    layout: Layout  # without the sequence
    sequence_at: int

    def fill(self, sequence: bytes) -> Layout:
        """Return the packet of a sequence."""
        packet, at = self.layout.packet, self.sequence_at
        return Layout(
            packet[:at] + sequence + packet[at + len(sequence) :], self.layout.offsets, self.layout.widths
        )


def prepare_rows(batch: PacketBatch) -> RowPackets | None:
    """Prepare a batch for the compiled functions; None where numpy builds its blocks."""
    core = load_core()
    columns = [field.column for field in batch.fields]
    nullable = sum(column.present is not None or column.is_number for column in columns)
    if core is None or nullable > MAX_NULLABLE:
        return None
    return RowPackets(core, batch.events.begin_index, batch.deltas_ns.view(np.uint64), columns)


def encode_block(batch: PacketBatch, rows: RowPackets | None, first: int, stop: int) -> bytes:
    """Encode the rows [first, stop) of a batch as one compressed packet."""
    block = None if rows is None else rows.find_shapes(first, stop)
    if rows is None or block is None:
        return compress_block(build_block(batch, first, stop))
    sequence = varint(batch.sequence)
    kinds = [field.kind for field in batch.fields]
    layouts = [
        _lay_out_begin(
            len(sequence), batch.event_type, tuple([kinds[at] for at in shape.columns]), shape.widths
        ).fill(sequence)
        for shape in block.shapes
    ]
    end = _lay_out_end(len(sequence), block.end_width).fill(sequence)
    opening, opened = None, None
    after, before = np.searchsorted(batch.first_rows[1:], (first, stop)).tolist()
    if before > after:
        uuids = batch.track_uuids[1 + after : 1 + before]
        width = -(-int(uuids.max()).bit_length() // 7)
        opening = _lay_out_opening(len(sequence), max(1, width)).fill(sequence)
        opened = batch.first_rows[1 + after : 1 + before], uuids
    packets = rows.write(block, layouts, end, opening, opened)
    return compress(packets if first else join_head(encode_first_packet(batch), packets))


@lru_cache(_CACHE_SIZE)
def _lay_out_begin(
    sequence_bytes: int, event_type: int, kinds: Sequence[FieldKind], widths: Sequence[int]
) -> _Template:
    time, *values = [Column(_VARINTS, width) for width in widths]
    columns = [Column(_RAWS, 8) if kind.is_raw else value for kind, value in zip(kinds, values, strict=True)]
    return _build_template(
        begin_packets(Column(_VARINTS, sequence_bytes), event_type, time, kinds, columns), 1
    )


@lru_cache(_CACHE_SIZE)
def _lay_out_end(sequence_bytes: int, width: int) -> _Template:
    return _build_template(end_packets(Column(_VARINTS, sequence_bytes), Column(_VARINTS, width)), 1)


@lru_cache(_CACHE_SIZE)
def _lay_out_opening(sequence_bytes: int, width: int) -> _Template:
    return _build_template(opening_packets(Column(_VARINTS, sequence_bytes), Column(_VARINTS, width)), 0)


def _build_template(parts: Parts, sequence: int) -> _Template:
    """Build a template of packets whose column number `sequence` is their sequence."""
    packet, offsets, widths = lay_out_parts(parts)
    at = offsets.pop(sequence)
    del widths[sequence]
    return _Template(Layout(packet, tuple(offsets), tuple(widths)), at)

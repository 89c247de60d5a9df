"""Encoding of a drawing: its blocks, in order of its tracks, while others are encoded in other threads.

Tracks that were encoded before, as another drawing, can be among them: `Early`.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from typing import Protocol

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.memory import return_freed
from nsys_pp.arrays.scratch import drop_pages
from nsys_pp.arrays.threads import count_processors, open_executor
from nsys_pp.frames.part import Encoded, EncodedSubtrack, SubtrackKind, Track
from nsys_pp.output.perfetto.packed_blocks import pack_block
from nsys_pp.output.perfetto.row_blocks import encode_block, prepare_rows
from nsys_pp.output.perfetto.subtracks import BLOCK_ROWS, PacketBatch, build_block, list_blocks, prepare_batch
from nsys_pp.output.trace.drawing import (
    ArrangedSlices,
    CounterSubtrack,
    Drawing,
    MarkSubtrack,
    SliceSubtrack,
    Subtrack,
    sequence_id,
)
from nsys_pp.output.trace.subtrack_columns import Source, prepare_columns
from nsys_pp.output.trace.tree import Path, arrange, count_rows, index_tracks, start_ns, subtracks_by_track
from nsys_pp.progress import report_stage

MAX_THREADS = 4  # more do not help: part of the encoding of a block holds the interpreter lock
_LARGE_ROWS = (
    1_000_000  # of a batch after which memory is returned; of fewer, the next batch would request it again
)
_HUGE_ROWS = 1_000_000  # of a batch before which all blocks are finished
Batch = list[tuple[int, Subtrack]]
"""Subtracks of a track that are encoded together, each with its number there."""
_Columns = list[tuple[str, pl.DataType]]


class Sink(Protocol):
    """Receiver of blocks."""

    def write(self, data: bytes, /) -> object:
        """Write all bytes."""


class BlockList:
    """Sink that keeps the blocks in memory, without a copy."""

    def __init__(self) -> None:
        self.blocks: list[bytes] = []

    def write(self, data: bytes, /) -> None:
        """Add a block."""
        self.blocks.append(data)


class Early(Struct, frozen=True, kw_only=True):
    """Tracks of a drawing that were encoded before the others.

    Attributes:
        encoded: They, as from `encode_drawing`.
        blocks: Their blocks, in order, as they were written.
    """

    encoded: Encoded
    blocks: Sequence[bytes]


class _Ready(Struct, frozen=True):
    """An encoded track: its subtracks, each with its blocks."""

    subtracks: list[tuple[EncodedSubtrack, list[bytes]]]


def encode_drawing(
    drawing: Drawing,
    sink: Sink,
    *,
    is_packed: bool = False,
    threads: int | None = None,
    early: Early | None = None,
    sources: dict[int, Source] | None = None,
) -> Encoded:
    """Encode a drawing as blocks.

    Args:
        drawing: Drawing of a report.
        sink: Receives the blocks, in order.
        is_packed: Pack the blocks as in parts, at about half the size; a merge makes the blocks of a trace of them.
        threads: Number of threads; each encodes and compresses one block at a time. Default: the number of
            processors, at most `MAX_THREADS`; 1 if the drawing has few rows. The bytes do not depend on it.
        early: Other tracks of the same report, encoded alike, whose first event is not after those of this drawing. The
            bytes are those of one drawing with all tracks.
        sources: Frames that other drawings share with this one, as for `prepare_columns`. Default: none.

    Returns:
        The drawn tracks, and per subtrack the size of its blocks; subtracks without rows are skipped.

    Raises:
        ValueError: The drawing is invalid (see `nsys_pp.output.trace.drawing`), or has earlier events than `early`.
    """
    tracks, drawn, batches = _list_batches(drawing, early)
    fresh = [batch for batch in batches if not isinstance(batch, _Ready)]
    base_ns = _find_base_ns(fresh, early)
    prepared = deque(prepare_columns([[subtrack for _, subtrack in batch] for batch in fresh], sources))
    del fresh
    row_count = sum(columns.height for columns in prepared)
    count = threads or thread_count()
    writer = _BlockWriter(sink, row_count)
    with ThreadPoolExecutor(count) if threads else open_executor(row_count, threads=count) as pool:
        while batches:
            batch = batches.popleft()
            if isinstance(batch, _Ready):
                writer.add_ready(batch)
                continue
            if prepared[0].height > _HUGE_ROWS:  # not the arrays of two batches at once
                writer.write_until(0)
                return_freed()
            packets = prepare_batch(
                [subtrack for _, subtrack in batch],
                prepared.popleft(),
                sequence=sequence_id(drawing.report_id),
                track_uuids=[
                    leaf_uuid(drawing.report_id, subtrack.track, ordinal) for ordinal, subtrack in batch
                ],
                base_ns=base_ns,
            )
            number = writer.add(
                _describe(batch, packets)
            )  # the first subtrack of a batch has the bytes of all
            rows = None if is_packed else prepare_rows(packets)
            for block in list_blocks(packets):
                if is_packed:
                    writer.put(number, pool.submit(_pack, packets, *block))
                else:
                    writer.put(number, pool.submit(encode_block, packets, rows, *block))
                writer.write_until(2 * count)
            if len(packets.events.begin_index) > _LARGE_ROWS:
                del batch, packets, rows  # its last blocks have what they need
                return_freed()
                drop_pages()
        writer.write_until(0)
    return Encoded(
        report_id=drawing.report_id,
        base_ns=base_ns,
        tracks=[tracks[path] for path in drawn if path in tracks],
        subtracks=writer.list_subtracks(),
        is_packed=is_packed,
    )


class _BlockWriter:
    """Writer of blocks, in order, while others are encoded.

    Args:
        sink: Receives the blocks.
        row_count: Rows of all blocks.
    """

    def __init__(self, sink: Sink, row_count: int) -> None:
        self._sink = sink
        self._row_count = row_count
        self._written = 0
        self._subtracks: list[EncodedSubtrack] = []
        self._waiting: deque[tuple[int, Future[bytes]]] = deque()

    def add(self, subtracks: Iterable[EncodedSubtrack]) -> int:
        """Add the subtracks of the next blocks; return the number of the first."""
        number = len(self._subtracks)
        self._subtracks += subtracks
        return number

    def add_ready(self, track: _Ready) -> None:
        """Add the subtracks of an encoded track, and write its blocks."""
        self.write_until(0)
        for subtrack, blocks in track.subtracks:
            for block in blocks:
                self._sink.write(block)
            self._subtracks.append(subtrack)

    def put(self, number: int, block: Future[bytes]) -> None:
        """Add a block of a subtrack."""
        self._waiting.append((number, block))

    def write_until(self, most: int) -> None:
        """Write the first blocks until no more than `most` are left."""
        while len(self._waiting) > most:
            number, waiting = self._waiting.popleft()
            block, subtrack = waiting.result(), self._subtracks[number]
            self._sink.write(block)
            self._subtracks[number] = replace(subtrack, size_bytes=subtrack.size_bytes + len(block))
            # the last block of a track has fewer
            self._written = min(self._written + BLOCK_ROWS, self._row_count)
            report_stage(
                f"encoded {self._written:,} of {self._row_count:,} rows", self._written / self._row_count
            )

    def list_subtracks(self) -> list[EncodedSubtrack]:
        """Return all subtracks, with the sizes of their written blocks."""
        return self._subtracks


def leaf_uuid(report_id: int, path: Path, ordinal: int) -> int:
    """Hash a subtrack of a report to a uuid of 64 bits; the same subtrack has the same uuid in all traces."""
    text = "\0".join([f"{report_id:016x}", *path]) + f"\0\0{ordinal}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _list_batches(
    drawing: Drawing, early: Early | None
) -> tuple[dict[Path, Track], list[Path], deque[Batch | _Ready]]:
    """Return the tracks of a drawing, the paths of drawn tracks in order, and their batches."""
    tracks, subtracks = index_tracks(drawing), subtracks_by_track(drawing)
    ready: dict[Path, _Ready] = {}
    if early:
        tracks = {track.path: track for track in early.encoded.tracks} | tracks
        written = iter(early.blocks)
        for subtrack in early.encoded.subtracks:
            blocks, size = [], 0
            while size < subtrack.size_bytes:
                blocks.append(next(written))
                size += len(blocks[-1])
            ready.setdefault(subtrack.track, _Ready([])).subtracks.append((subtrack, blocks))
    drawn = [node.track.path for node in arrange(tracks, [*subtracks, *ready])]
    batches: deque[Batch | _Ready] = deque()
    columns: dict[int, _Columns] = {}
    for path in drawn:
        batches += [ready[path]] if path in ready else _batches(subtracks.pop(path, []), columns)
    return tracks, drawn, batches


def _find_base_ns(batches: Sequence[Batch], early: Early | None) -> int:
    """Return the time of the first event.

    Raises:
        ValueError: It is before those that were encoded early, whose times count from the first of them.
    """
    first_ns = min((start_ns(subtrack) for batch in batches for _, subtrack in batch), default=None)
    if early is None or not early.encoded.subtracks:
        return first_ns or 0
    if first_ns is not None and first_ns < early.encoded.base_ns:
        raise ValueError("the drawing has events before those that were encoded early")
    return early.encoded.base_ns


def _batches(subtracks: list[Subtrack], columns: dict[int, _Columns]) -> Iterator[Batch]:
    """Yield the batches of a track's subtracks: slices with the same columns together, each of the others alone.

    Args:
        subtracks: Of the track.
        columns: Columns by the id of their frame, which lives as long as the drawing; receives further ones. Where many slices
            overlap, a track has thousands of subtracks of one frame.
    """
    for key, batch in groupby(enumerate(subtracks), lambda numbered: _batch_key(numbered[1], columns)):
        if key is None:
            yield from ([numbered] for numbered in batch)
        else:
            yield list(batch)


def _batch_key(subtrack: Subtrack, columns: dict[int, _Columns]) -> _Columns | None:
    """Return the columns of slices, the same list for all of one frame; None for other subtracks."""
    if not isinstance(subtrack, SliceSubtrack):
        return None
    content = subtrack.content
    frame = content.source if isinstance(content, ArrangedSlices) else content
    if id(frame) not in columns:
        columns[id(frame)] = list(subtrack.schema.items())
    return columns[id(frame)]


def _describe(batch: Batch, packets: PacketBatch) -> Iterator[EncodedSubtrack]:
    kinds: dict[type[Subtrack], SubtrackKind] = {
        SliceSubtrack: "slices",
        MarkSubtrack: "marks",
        CounterSubtrack: "counter",
    }
    times_ns, firsts = packets.events.times_ns, packets.events.begin_index[packets.first_rows]
    lasts = np.append(firsts[1:], len(times_ns)) - 1
    for (ordinal, subtrack), first_ns, last_ns in zip(
        batch, times_ns[firsts].tolist(), times_ns[lasts].tolist(), strict=True
    ):
        yield EncodedSubtrack(
            track=subtrack.track,
            ordinal=ordinal,
            kind=kinds[type(subtrack)],
            rows=count_rows(subtrack),
            first_ns=first_ns,
            last_ns=last_ns,
            size_bytes=0,
        )


def thread_count() -> int:
    """Return the number of threads that encode blocks."""
    return min(MAX_THREADS, count_processors())


def _pack(batch: PacketBatch, first: int, stop: int) -> bytes:
    return pack_block(build_block(batch, first, stop))

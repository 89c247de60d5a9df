"""Encoding of reports, and merging of encoded reports into one Perfetto trace.

A trace is a concatenation of packets. The header comes first: clocks, attributes and the tree of tracks. Then, for each
report, a preamble maps its clock onto the trace's, and compressed blocks hold its events. Blocks depend on their report
only. So reports are encoded separately, in any order and process, and a merge copies their bytes. Parts hold them packed
(`nsys_pp.write.perfetto.packed_blocks`); a merge makes the same bytes of them.

Format: https://github.com/google/perfetto/blob/v52.0/docs/reference/synthetic-track-event.md and
`protos/perfetto/trace` there. `tests/write/perfetto/test_trace.py` checks traces with Perfetto's importer.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from itertools import groupby
from typing import Protocol

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.memory import return_freed
from nsys_pp.arrays.scratch import drop_pages
from nsys_pp.arrays.threads import open_executor
from nsys_pp.frames.part import Encoded, EncodedSubtrack, SubtrackKind
from nsys_pp.stages import report_stage
from nsys_pp.write.perfetto.clocks import encode_preamble
from nsys_pp.write.perfetto.header import encode_header
from nsys_pp.write.perfetto.packed_blocks import HEAD_BYTES, check_block, pack_block, read_head, unpack_block
from nsys_pp.write.perfetto.packets import PacketBlock, compress_block
from nsys_pp.write.perfetto.subtracks import BLOCK_ROWS, PacketBatch, block_tasks, prepare_batch
from nsys_pp.write.trace.drawing import (
    CounterSubtrack,
    Drawing,
    MarkSubtrack,
    SliceSubtrack,
    Subtrack,
    sequence_id,
)
from nsys_pp.write.trace.placement import Placement, list_titles, place_path, place_tracks
from nsys_pp.write.trace.subtrack_columns import prepare_columns
from nsys_pp.write.trace.tree import Path, arrange, count_rows, index_tracks, start_ns, subtracks_by_track

MAX_THREADS = 4  # more do not help: part of the encoding of a block holds the interpreter lock
_READ_BYTES = 1 << 20
_LARGE_ROWS = 200_000  # of a batch after which memory is returned
_HUGE_ROWS = 1_000_000  # of a batch before which all blocks are finished
Batch = list[tuple[int, Subtrack]]
"""Subtracks of a track that are encoded together, each with its number there."""


class Sink(Protocol):
    """Receiver of blocks."""

    def write(self, data: bytes, /) -> object:
        """Write all bytes."""


class Source(Protocol):
    """Reader of blocks."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, fewer only at the end."""


class PlacedReport(Struct, frozen=True, kw_only=True):
    """An encoded report, its placement in the trace, and its blocks."""

    encoded: Encoded
    placement: Placement
    open_blocks: Callable[[], AbstractContextManager[Source]]
    omitted: frozenset[Path] = frozenset()  # tracks that are not drawn, by their path in the report

    def is_drawn(self, track: Path) -> bool:
        """Return whether a track of the report is drawn."""
        return track[0] in self.placement.rows and track not in self.omitted

    def drawn_subtracks(self) -> list[EncodedSubtrack]:
        """Return the subtracks of drawn tracks."""
        return [subtrack for subtrack in self.encoded.subtracks if self.is_drawn(subtrack.track)]


def encode_drawing(
    drawing: Drawing, sink: Sink, *, is_packed: bool = False, threads: int | None = None
) -> Encoded:
    """Encode a drawing as blocks.

    Args:
        drawing: Drawing of a report.
        sink: Receives the blocks, in order.
        is_packed: Pack the blocks as in parts, at about half the size; a merge makes the blocks of a trace of them.
        threads: Number of threads; each encodes and compresses one block at a time. Default: the number of
            processors, at most `MAX_THREADS`; 1 if the drawing has few rows. The bytes do not depend on it.

    Returns:
        The drawn tracks, and per subtrack the size of its blocks; subtracks without rows are skipped.

    Raises:
        ValueError: The drawing is invalid (see `nsys_pp.write.trace.drawing`).
    """
    tracks, subtracks = index_tracks(drawing), subtracks_by_track(drawing)
    drawn = [node.track.path for node in arrange(tracks, subtracks)]
    batches = deque(batch for path in drawn for batch in _batches(subtracks.pop(path, [])))
    base_ns = min((start_ns(subtrack) for batch in batches for _, subtrack in batch), default=0)
    prepared = deque(prepare_columns([[subtrack for _, subtrack in batch] for batch in batches]))
    encoded: list[EncodedSubtrack] = []
    sizes: list[int] = []
    row_count = sum(columns.height for columns in prepared)
    written = 0
    count = threads or _thread_count()
    finish = pack_block if is_packed else compress_block

    def write_block(number: int, block: Future[bytes]) -> None:
        nonlocal written
        sink.write(block.result())
        sizes[number] += len(block.result())
        written = min(written + BLOCK_ROWS, row_count)  # the last block of a track has fewer
        report_stage(f"encoded {written:,} of {row_count:,} rows", written / row_count)

    with ThreadPoolExecutor(count) if threads else open_executor(row_count, threads=count) as pool:
        waiting: deque[tuple[int, Future[bytes]]] = deque()
        while batches:
            batch = batches.popleft()
            if prepared[0].height > _HUGE_ROWS:  # not the arrays of two batches at once
                while waiting:
                    write_block(*waiting.popleft())
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
            number = len(encoded)  # the first subtrack of a batch has the bytes of all
            encoded += _describe(batch, packets)
            sizes += [0] * len(batch)
            for task in block_tasks(packets):
                waiting.append((number, pool.submit(_finish, task, finish)))
                if len(waiting) > 2 * count:
                    write_block(*waiting.popleft())
            if len(packets.events.begin_index) > _LARGE_ROWS:
                del batch, packets, task  # its last blocks have what they need
                return_freed()
                drop_pages()
        while waiting:
            write_block(*waiting.popleft())
    return Encoded(
        report_id=drawing.report_id,
        base_ns=base_ns,
        tracks=[tracks[path] for path in drawn if path in tracks],
        subtracks=[replace(subtrack, size_bytes=size) for subtrack, size in zip(encoded, sizes, strict=True)],
        is_packed=is_packed,
    )


def write_perfetto(reports: Sequence[PlacedReport], *, threads: int | None = None) -> Iterator[bytes]:
    """Merge encoded reports into a trace, as a stream of bytes.

    Args:
        reports: Reports of the trace, all with the same `zero_ns`.
            If tracks of several reports have the same path, they are one row, described by the first report.
        threads: Number of threads that unpack packed blocks. Default: as in `encode_drawing`.

    Yields:
        The bytes of the trace, in order.

    Raises:
        ValueError: Two reports have the same packet sequence.
    """
    if len({sequence_id(report.encoded.report_id) for report in reports}) < len(reports):
        raise ValueError("two reports of the trace have the same packet sequence")
    zero_ns = _find_zero_ns(reports)
    yield _encode_header(reports, zero_ns)
    count = threads or _thread_count()
    packed_rows = sum(
        subtrack.rows
        for report in reports
        if report.encoded.is_packed
        for subtrack in report.encoded.subtracks
    )
    with ThreadPoolExecutor(count) if threads else open_executor(packed_rows, threads=count) as pool:
        for report in reports:
            yield from _write_report(report, zero_ns, partial(_unpack_blocks, pool=pool, ahead=2 * count))


def _encode_header(reports: Sequence[PlacedReport], zero_ns: int) -> bytes:
    starts = [start for report in reports if (start := _start_ns(report)) is not None]
    first_ns = min(starts, default=zero_ns)
    placements = [report.placement for report in reports]
    is_utc = all(placement.is_utc for placement in placements)
    attributes = {key: value for placement in placements for key, value in placement.attributes.items()}
    if placements:
        attributes["zero_utc_ns" if is_utc else "zero_ns"] = str(zero_ns)
    return encode_header(
        tracks={
            path: track
            for report in reversed(reports)
            for path, track in place_tracks(report.encoded.tracks, report.placement).items()
        },
        leaves=_leaves(reports),
        outermost=list_titles(placements),
        first_ns=first_ns - zero_ns,
        utc_ns=first_ns if is_utc else None,
        attributes=attributes,
    )


def _find_zero_ns(reports: Sequence[PlacedReport]) -> int:
    """Return the time on the run's clock that is 0 in the trace: its `zero_ns`, or the first event if it is earlier."""
    starts = [start for report in reports if (start := _start_ns(report)) is not None]
    return min([*starts, *(report.placement.zero_ns for report in reports)], default=0)


def _encode_preamble(report: PlacedReport, drawn: Sequence[EncodedSubtrack], zero_ns: int) -> bytes:
    last_ns = max(subtrack.last_ns for subtrack in drawn)
    encoded, clock = report.encoded, report.placement.clock.shifted(-zero_ns)
    return encode_preamble(sequence_id(encoded.report_id), encoded.base_ns, last_ns, clock)


def leaf_uuid(report_id: int, path: Path, ordinal: int) -> int:
    """Hash a subtrack of a report to a uuid of 64 bits; the same subtrack has the same uuid in all traces."""
    text = "\0".join([f"{report_id:016x}", *path]) + f"\0\0{ordinal}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _batches(subtracks: list[Subtrack]) -> Iterator[Batch]:
    """Yield the batches of a track's subtracks: slices with the same columns together, each of the others alone."""
    for key, batch in groupby(enumerate(subtracks), lambda numbered: _batch_key(numbered[1])):
        if key is None:
            yield from ([numbered] for numbered in batch)
        else:
            yield list(batch)


def _batch_key(subtrack: Subtrack) -> list[tuple[str, pl.DataType]] | None:
    return list(subtrack.schema.items()) if isinstance(subtrack, SliceSubtrack) else None


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


def _start_ns(report: PlacedReport) -> int | None:
    """Return the time of the first drawn event on the run's clock; None if no event is drawn."""
    starts = [subtrack.first_ns for subtrack in report.drawn_subtracks()]
    return int(report.placement.clock.to_trace(np.array([min(starts)]))[0]) if starts else None


def _leaves(reports: Sequence[PlacedReport]) -> dict[Path, list[int]]:
    """List the uuids of the tracks with events, by their path in the trace."""
    leaves: dict[Path, list[int]] = {}
    for report in reports:
        for subtrack in report.drawn_subtracks():
            leaf = leaf_uuid(report.encoded.report_id, subtrack.track, subtrack.ordinal)
            leaves.setdefault(place_path(subtrack.track, report.placement), []).append(leaf)
    return leaves


def _thread_count() -> int:
    return min(MAX_THREADS, os.cpu_count() or 1)


def _finish(build: Callable[[], PacketBlock], encode: Callable[[PacketBlock], bytes]) -> bytes:
    return encode(build())


def _write_report(
    report: PlacedReport, zero_ns: int, unpack: Callable[[Iterator[bytes]], Iterator[bytes]]
) -> Iterator[bytes]:
    encoded, drawn = report.encoded, report.drawn_subtracks()
    if not drawn:
        return
    yield _encode_preamble(report, drawn, zero_ns)
    with report.open_blocks() as source:  # it raises an error of the blocks in words for the user
        blocks = _read_drawn(report, source)
        yield from unpack(blocks) if encoded.is_packed else blocks


def _read_drawn(report: PlacedReport, source: Source) -> Iterator[bytes]:
    """Yield the blocks of drawn rows: packed ones one by one, others in pieces; reads the source to its end."""
    for subtrack in report.encoded.subtracks:
        is_drawn = report.is_drawn(subtrack.track)
        if report.encoded.is_packed:
            yield from _read_packed(source, subtrack.size_bytes, is_drawn=is_drawn)
        else:
            for piece in _read_pieces(source, subtrack.size_bytes):
                if is_drawn:
                    yield piece


def _read_packed(source: Source, size: int, *, is_drawn: bool) -> Iterator[bytes]:
    """Read the packed blocks of a subtrack one by one, without their heads; yield them if they are drawn."""
    while size > 0:
        length, checksum = read_head(b"".join(_read_pieces(source, HEAD_BYTES)))
        size -= HEAD_BYTES + length
        if size < 0:
            raise ValueError("a block is longer than its subtrack")
        pieces = _read_pieces(source, length)
        if is_drawn:
            yield check_block(b"".join(pieces), checksum)
        else:
            deque(pieces, maxlen=0)


def _read_pieces(source: Source, size: int) -> Iterator[bytes]:
    while size:
        data = source.read(min(size, _READ_BYTES))
        if not data:
            raise EOFError("the blocks of a report end early")
        size -= len(data)
        yield data


def _unpack_blocks(blocks: Iterator[bytes], pool: Executor, ahead: int) -> Iterator[bytes]:
    """Unpack blocks in order, at most `ahead` of them before they are needed."""
    waiting: deque[Future[bytes]] = deque()
    for block in blocks:
        waiting.append(pool.submit(unpack_block, block))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()

"""Merging of encoded reports into one Perfetto trace.

A trace is a concatenation of packets. The header comes first: clocks, attributes and the tree of tracks. Then, for each
report, a preamble maps its clock onto the trace's, and compressed blocks hold its events. Blocks depend on their report
only. So reports are encoded separately, in any order and process, and a merge copies their bytes. Parts hold them packed
(`nsys_pp.output.perfetto.packed_blocks`); a merge makes the same bytes of them.

Format: https://github.com/google/perfetto/blob/v52.0/docs/reference/synthetic-track-event.md and
`protos/perfetto/trace` there. `tests/output/perfetto/test_trace.py` checks traces with Perfetto's importer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.threads import open_executor
from nsys_pp.frames.part import Encoded, EncodedSubtrack
from nsys_pp.output.perfetto.clocks import encode_preamble
from nsys_pp.output.perfetto.encoding import Early as Early
from nsys_pp.output.perfetto.encoding import Sink as Sink
from nsys_pp.output.perfetto.encoding import encode_drawing as encode_drawing
from nsys_pp.output.perfetto.encoding import leaf_uuid as leaf_uuid
from nsys_pp.output.perfetto.encoding import thread_count
from nsys_pp.output.perfetto.header import encode_header
from nsys_pp.output.perfetto.packed_blocks import (
    HEAD_BYTES,
    check_block,
    check_contents,
    read_head,
    unpack_block,
)
from nsys_pp.output.trace.drawing import (
    sequence_id,
)
from nsys_pp.output.trace.placement import Placement, list_titles, place_path, place_tracks
from nsys_pp.output.trace.tree import Path

_READ_BYTES = 1 << 20


class Source(Protocol):
    """Reader of blocks."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes: at least one and at most `size`; none at the end."""


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
    count = threads or thread_count()
    packed_rows = sum(
        subtrack.rows
        for report in reports
        if report.encoded.is_packed
        for subtrack in report.encoded.subtracks
    )
    with ThreadPoolExecutor(count) if threads else open_executor(packed_rows, threads=count) as pool:
        for report in reports:
            yield from _write_report(report, zero_ns, partial(_unpack_blocks, pool=pool, ahead=2 * count))


def check_packed(encoded: Encoded, source: Source) -> None:
    """Check that packed blocks can be written: their sizes, checksums and contents.

    Raises:
        ValueError: A block is damaged, or longer than its subtrack.
        EOFError: The blocks end early.
    """
    if not encoded.is_packed and encoded.size_bytes:
        raise ValueError("the blocks are not packed")
    for subtrack in encoded.subtracks:
        for block in _read_packed(source, subtrack.size_bytes, is_drawn=True):
            check_contents(block)


def unpack_blocks(encoded: Encoded, source: Source) -> tuple[Encoded, list[bytes]]:
    """Unpack the blocks of a part.

    Args:
        encoded: The part, packed.
        source: Its blocks.

    Returns:
        The same report with blocks of a trace, and these.

    Raises:
        ValueError: A block is damaged, or longer than its subtrack.
        EOFError: The blocks end early.
    """
    subtracks, blocks = [], []
    for subtrack in encoded.subtracks:
        own = [unpack_block(block) for block in _read_packed(source, subtrack.size_bytes, is_drawn=True)]
        subtracks.append(replace(subtrack, size_bytes=sum(map(len, own))))
        blocks += own
    return replace(encoded, subtracks=subtracks, is_packed=False), blocks


def _encode_header(reports: Sequence[PlacedReport], zero_ns: int) -> bytes:
    starts = [start for report in reports if (start := _start_ns(report)) is not None]
    first_ns = min(starts, default=zero_ns)
    placements = [report.placement for report in reports]
    is_utc = all(placement.is_utc for placement in placements)
    attributes: dict[str, str] = {}
    for placement in placements:
        attributes.update(placement.attributes)
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

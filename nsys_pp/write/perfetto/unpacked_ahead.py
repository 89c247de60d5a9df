"""Packed blocks of parts, made blocks of a trace in another thread while a run is analysed, which does not need them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from types import TracebackType

from nsys_pp.frames.part import Encoded
from nsys_pp.write.perfetto.packed_blocks import unpack_block
from nsys_pp.write.perfetto.packed_stream import Source, read_packed

MAX_HELD_BYTES = 1 << 26  # of blocks that wait to be written
Blocks = list[bytes]
"""Blocks of each subtrack of a report."""


class UnpackedAhead:
    """Blocks that are unpacked ahead of their use, in order, up to `MAX_HELD_BYTES`; as a context, it ends the thread."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._of_report: dict[int, Future[Blocks | None]] = {}
        self._held_bytes = 0

    def __enter__(self) -> UnpackedAhead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the thread; blocks that were not used are dropped."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._of_report.clear()

    def begin(
        self, reports: Sequence[tuple[Encoded, Callable[[], AbstractContextManager[Source]]]]
    ) -> None:
        """Begin to unpack the blocks of reports, if there is a processor for it and more than one report."""
        packed = [(encoded, open_blocks) for encoded, open_blocks in reports if encoded.is_packed]
        if (os.cpu_count() or 1) < 2 or len(packed) < 2:
            return
        self._pool = ThreadPoolExecutor(1)
        for encoded, open_blocks in packed:
            self._of_report[encoded.report_id] = self._pool.submit(self._unpack, encoded, open_blocks)

    def take(self, report_id: int) -> Blocks | None:
        """Return the blocks of each subtrack of a report, once; None if they are not unpacked, or cannot be."""
        waiting = self._of_report.pop(report_id, None)
        if waiting is None or waiting.cancel():
            return None
        blocks = waiting.result()
        self._held_bytes -= sum(map(len, blocks or ()))
        return blocks

    def _unpack(
        self, encoded: Encoded, open_blocks: Callable[[], AbstractContextManager[Source]]
    ) -> Blocks | None:
        if self._held_bytes > MAX_HELD_BYTES:
            return None
        try:
            with open_blocks() as source:
                blocks = [
                    b"".join(map(unpack_block, read_packed(source, subtrack.size_bytes, is_drawn=True)))
                    for subtrack in encoded.subtracks
                ]
        except Exception:  # the writer of the trace meets it again, and reports it
            return None
        self._held_bytes += sum(map(len, blocks))
        return blocks

"""Blocks of parts become blocks of the trace while the training is computed, on which they do not depend; many while clocks are, too.

Clocks are computed in two threads already, and a third one takes turns with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event

from msgspec.structs import replace

from nsys_pp.arrays.threads import count_processors
from nsys_pp.frames.part import Encoded
from nsys_pp.run.inputs import Input
from nsys_pp.run.layout import Shown
from nsys_pp.write.perfetto.trace import PlacedReport, unpack_blocks
from nsys_pp.write.spool import open_list

_FEWEST_ROWS = 200_000  # of all parts; fewer take some ms
_MANY_ROWS = 4_000_000  # of all parts; more take longer than a training
_MOST_BYTES = 1 << 26  # of blocks in memory; those of further parts are unpacked when they are written


class EarlyBlocks:
    """Unpacked blocks of parts.

    Args:
        inputs: Inputs of a run, in order of the trace.
        threads: Executor of `unpack`; None: no blocks are unpacked.
    """

    def __init__(self, inputs: Sequence[Input], threads: Executor | None = None) -> None:
        self._threads = threads
        self._inputs = [recorded for recorded in inputs if recorded.part.encoded.is_packed]
        self._finished: dict[Path, tuple[Encoded, list[bytes]]] = {}
        self._stop = Event()

    @property
    def row_count(self) -> int:
        """Number of rows in the blocks of all parts."""
        return sum(subtrack.rows for own in self._inputs for subtrack in own.part.encoded.subtracks)

    def begin(self) -> None:
        """Begin to unpack, if that was not begun."""
        if self._threads is not None:
            self._threads.submit(self.unpack)
        self._threads = None

    def unpack(self) -> None:
        """Unpack parts one by one, until memory is used up or `stop` is called."""
        left = _MOST_BYTES
        for recorded in self._inputs:
            if self._stop.is_set() or left <= 0:
                return
            try:
                with recorded.open_blocks() as source:
                    encoded, blocks = unpack_blocks(recorded.part.encoded, source)
                    source.read(1)  # the end of the stream, where its checksum is compared
            except Exception:  # a damaged part: the same error is raised when it is written
                continue
            left -= encoded.size_bytes
            self._finished[recorded.path] = encoded, blocks

    def stop(self) -> None:
        """Stop after the current part."""
        self._stop.set()

    def use(self, reports: Mapping[Path, Shown]) -> dict[Path, Shown]:
        """Replace the packed blocks of reports where they are unpacked already."""
        self.stop()
        return {path: self._replace(path, report) for path, report in reports.items()}

    def _replace(self, path: Path, report: Shown) -> Shown:
        if path not in self._finished or not isinstance(report, PlacedReport):
            return report
        encoded, blocks = self._finished[path]
        return replace(report, encoded=encoded, open_blocks=partial(open_list, blocks))


@contextmanager
def unpack_early(inputs: Sequence[Input]) -> Iterator[EarlyBlocks]:
    """Unpack the blocks of parts in another thread, where there is a processor for it, until the end of the context.

    Many are begun with at once, others with `EarlyBlocks.begin`.
    """
    early = EarlyBlocks(inputs)
    if count_processors() < 2 or early.row_count < _FEWEST_ROWS:
        yield early
        return
    with ThreadPoolExecutor(1) as pool:
        early = EarlyBlocks(inputs, pool)
        if early.row_count > _MANY_ROWS:
            early.begin()
        try:
            yield early
        finally:
            early.stop()

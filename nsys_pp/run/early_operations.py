"""Operations of a large report, drawn and encoded while its ranges are projected.

Rows of operations need no projections, and projecting leaves a second processor idle.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from nsys_pp.arrays.scratch import share_scratch
from nsys_pp.arrays.threads import count_processors
from nsys_pp.frames.part import PartOptions
from nsys_pp.frames.report import PROJECTIONS, Report
from nsys_pp.run.view import view_report
from nsys_pp.write.perfetto.encoding import BlockList, Early, encode_drawing
from nsys_pp.write.trace.tracks import draw_report

_FEWEST, _MOST = (
    100_000,
    2_000_000,
)  # operations; of more, the memory of both stages at once would be too much


@contextmanager
def encode_early(report: Report, options: PartOptions, *, is_packed: bool) -> Iterator[Future[Early] | None]:
    """Start to draw and encode the operations of a report in another thread.

    With detail "cpu" and data on request, rows of threads begin before the first operation, from which times count; "ranges"
    draws few operations.

    Args:
        report: The report.
        options: Content of its drawing.
        is_packed: As for `encode_drawing`.

    Yields:
        The encoded operations; None where it would not save time.
    """
    is_worth = _FEWEST <= len(report.gpu_ops) <= _MOST and count_processors() > 1
    if options.detail != "kernels" or options.show or not is_worth:
        del report  # this frame lives as long as the context
        yield None
        return
    view = view_report(report, PROJECTIONS.to_frame(), detail=options.detail, flows=False)
    del report

    def work() -> Early:
        blocks = BlockList()
        drawing = draw_report(view, detail="kernels", contents="operations")
        encoded = encode_drawing(drawing, blocks, is_packed=is_packed)
        return Early(encoded=encoded, blocks=blocks.blocks)

    with ThreadPoolExecutor(1, initializer=share_scratch()) as pool:
        yield pool.submit(work)

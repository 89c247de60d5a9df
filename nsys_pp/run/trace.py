"""The trace of a run: reports are encoded one by one, placed, and written with the rows of the training.

Parts are encoded already. A report is drawn later, once the clocks and the training are known, where the
content depends on them (a window, chosen steps) or the format is made of all drawings.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.errors import MissingDataError
from nsys_pp.frames.part import PartOptions
from nsys_pp.output.blocks import OpenBlocks, Shelf, Spool, Store, make_scratch
from nsys_pp.output.files import replace_file
from nsys_pp.output.formats import TraceFormat
from nsys_pp.output.perfetto.trace import PlacedReport, Source, encode_drawing
from nsys_pp.output.trace.drawing import Drawing, FrameColumns
from nsys_pp.progress import Progress, Share, report_progress
from nsys_pp.read import inspect_report, is_part
from nsys_pp.registry import import_on_call
from nsys_pp.run.batch import Batch
from nsys_pp.run.inputs import (
    Input,
    build_identity,
    order_inputs,
    read_parts,
    refuse_parts,
    settle_part_options,
    survey_input,
)
from nsys_pp.run.layout import Drawn, PlacedDrawing, Shown, TraceLayout, count_events, count_shown
from nsys_pp.run.mpi import place_mpi_messages, read_mpi_messages
from nsys_pp.run.parts import OF_HOSTS, OF_RUN, describe_hosts, is_content_open, is_usual
from nsys_pp.run.run import Run
from nsys_pp.run.view import Window
from nsys_pp.training.jobs import list_job_ranges

# all stages of a report, which parts need not
_extract_report, _redraw_report, _nothing_to_draw = (
    import_on_call(f"nsys_pp.run.report:{name}")
    for name in ("extract_report", "redraw_report", "nothing_to_draw_error")
)


class TraceContent(Struct, frozen=True, kw_only=True):
    """Content of a trace, as asked for by the user."""

    format: TraceFormat
    part_options: Mapping[str, Any]  # fields of `PartOptions`; None where open
    devices: frozenset[int] | None
    start_ns: int | None  # from the start of the earliest session
    end_ns: int | None
    only_steps: bool  # draw the chosen steps of the training alone
    by_steps: bool = False  # draw each group of steps apart

    @property
    def is_encoded(self) -> bool:
        """Whether reports are encoded one by one, as in parts."""
        return self.format.merge_encoded is not None

    @property
    def needs(self) -> list[str]:
        """Features that need the events of reports, in words."""
        needs = [] if self.is_encoded else [self.format.description]
        needs += ["`--start` and `--end`"] * (self.start_ns is not None or self.end_ns is not None)
        return needs + ["`--steps`"] * self.only_steps + ["`--split step`"] * self.by_steps

    @property
    def is_cut(self) -> bool:
        """Whether the trace shows a part of the run only."""
        limits = (self.start_ns, self.end_ns, self.devices)
        return self.only_steps or any(limit is not None for limit in limits)

    def find_window(self, run: Run) -> Window:
        """Return the window of the trace on its clock; with chosen steps, the training has no others."""
        training = run.training
        starts = [training.zero_ns + self.start_ns] if self.start_ns is not None else []
        ends = [training.zero_ns + self.end_ns] if self.end_ns is not None else []
        if self.only_steps:
            starts.append(int(training.steps["start_ns"].min()))  # type: ignore[arg-type]
            ends.append(int(training.steps["end_ns"].max()))  # type: ignore[arg-type]
        return Window(start_ns=max(starts, default=None), end_ns=min(ends, default=None))


class TraceBuilder:
    """Builder of the trace of a run; as a context, it holds encoded blocks until they are written.

    Args:
        batch: Batch of the inputs.
        content: Content of the trace.
        output: The trace.
    """

    def __init__(self, batch: Batch, content: TraceContent, output: Path) -> None:
        self._batch = batch
        self._content = content
        self._output = output
        self._stack = ExitStack()
        self._options = PartOptions()

    def __enter__(self) -> TraceBuilder:
        """Open the stores of encoded blocks: of reports, and of the rows of the training."""
        self._row_store = self._stack.enter_context(Spool(self._output))
        self._store: Store = self._row_store
        if not self._batch.is_local:
            self._store = Shelf(self._stack.enter_context(make_scratch(self._output)), output=self._output)
        return self

    def __exit__(self, *raised: Any) -> None:
        """Close the stores."""
        self._stack.close()

    def read_inputs(self, run: Run) -> list[Input]:
        """Read the parts of a run, and encode its reports, or survey them where they are drawn later.

        Raises:
            ReportError: An input cannot be read, or a part has other content than asked for.
        """
        content, batch = self._content, run.batch
        parts = read_parts(batch, writes_blocks=True)
        refuse_parts(parts, content.needs)
        self._options, parts = settle_part_options(batch, parts, content.part_options)
        reports = [path for path in batch.paths if not is_part(path)]
        work: Callable[[Path], Input] = partial(
            _encode_report, options=self._options, nsys=batch.nsys, store=self._store
        )
        if content.needs:
            work = partial(
                survey_input,
                options=self._options,
                nsys=batch.nsys,
                with_training=True,
                with_density=content.by_steps,
            )
        elif len(batch.paths) > 1:  # broken ones fail before work begins
            batch.map("reading", reports, partial(inspect_report, nsys=batch.nsys), locally=True)
        return order_inputs(batch, parts, batch.map("reading" if content.needs else "drawing", reports, work))

    def draw(self, run: Run) -> Drawn:
        """Place all reports, and the rows of the training.

        Raises:
            MissingDataError: There is nothing to draw.
        """
        content = self._content
        layout, window = TraceLayout(run, devices=content.devices), content.find_window(run)
        if content.needs:
            (reports,) = self._redraw(run, layout, [(self._options, window)])
        else:
            reports = {recorded.path: layout.place_encoded(recorded) for recorded in run.inputs}
        drawn = Drawn(reports=reports, training=self._draw_training(run, layout, reports, window))
        if not content.is_cut and self._is_content_open(run):
            drawn = self._draw_hosts(run, layout, drawn)
        self._check_drawn(run, [drawn])
        return drawn

    def draw_windows(self, run: Run, windows: Sequence[Window]) -> tuple[Drawn, list[Drawn]]:
        """Draw an overview, and the events that overlap each window; each report is read once.

        Args:
            run: The run.
            windows: In order of time, on the trace's clock.

        Returns:
            Everything within all windows at detail "jobs", and the contents of each window.

        Raises:
            MissingDataError: There is nothing to draw.
        """
        layout = TraceLayout(run, devices=self._content.devices)
        whole = Window(start_ns=windows[0].start_ns, end_ns=windows[-1].end_ns)
        overview = replace(self._options, detail="jobs", flows=False, show=())
        asked = [(overview, whole), *((self._options, window) for window in windows)]
        drawn = [
            Drawn(reports=reports, training=self._draw_training(run, layout, reports, window))
            for reports, (_, window) in zip(self._redraw(run, layout, asked), asked, strict=True)
        ]
        self._check_drawn(run, drawn)
        return drawn[0], drawn[1:]

    def write(self, shown: Sequence[Shown], *, force: bool) -> None:
        """Write the trace.

        Raises:
            OutputError: It exists, or cannot be written.
        """
        merge, encode = self._content.format.merge_encoded, self._content.format.encode_drawings
        if merge is not None:
            reports = [report for report in shown if isinstance(report, PlacedReport)]
            blocks = merge([*watch_writing(self._batch.progress, f"writing {self._output.name}", reports)])
        else:
            assert encode is not None
            drawings = [report for report in shown if isinstance(report, PlacedDrawing)]
            blocks = encode([(report.drawing, report.placement) for report in drawings], self._output)
        with replace_file(self._output, force=force) as target, target.open("wb") as stream:
            for block in blocks:
                stream.write(block)

    def _redraw(
        self,
        run: Run,
        layout: TraceLayout,
        asked: Sequence[tuple[PartOptions, Window]],
        paths: Iterable[Path] | None = None,
    ) -> list[dict[Path, Shown]]:
        """Draw all reports, or some, once for each content and window; reports that fail now are skipped."""
        by_path = {recorded.path: (at, recorded) for at, recorded in enumerate(run.inputs)}
        own = {
            path: (
                [(options, window.move(run.clocks.clocks[at])) for options, window in asked],
                list_job_ranges(recorded.part.frames["jobs"]),
            )
            for path, (at, recorded) in by_path.items()
        }
        store = self._store if self._content.is_encoded else None
        work = partial(_redraw_windows, nsys=self._batch.nsys, store=store)
        redrawn = self._batch.map("drawing", list(by_path if paths is None else paths), work, own)
        return [
            {path: layout.place(by_path[path][1], drawn[number]) for path, drawn in redrawn.items()}
            for number in range(len(asked))
        ]

    def _draw_training(
        self, run: Run, layout: TraceLayout, reports: Mapping[Path, Shown], window: Window
    ) -> list[Shown]:
        rows = layout.place_training(reports, window=window)
        return self._finish_rows([*rows, *place_mpi_messages(run, reports, window)])

    def _finish_rows(self, rows: Sequence[PlacedDrawing]) -> list[Shown]:
        """Encode rows, unless the format is made of drawings."""
        if not self._content.is_encoded:
            return [*rows]
        finished: list[Shown] = []
        frames: dict[int, FrameColumns] = {}  # machines share frames
        for row in rows:
            with self._row_store.add() as (sink, open_blocks):
                encoded = encode_drawing(row.drawing, sink, frames=frames)
            finished.append(PlacedReport(encoded=encoded, placement=row.placement, open_blocks=open_blocks))
        return finished

    def _is_content_open(self, run: Run) -> bool:
        """Return whether no level of detail and no kind of data is chosen."""
        if any(is_part(recorded.path) for recorded in run.inputs):
            return is_usual(self._options)
        return is_content_open(self._content.part_options)

    def _draw_hosts(self, run: Run, layout: TraceLayout, drawn: Drawn) -> Drawn:
        """Draw the rows of CPUs of reports without GPU operations, which are read once more.

        Where no report has any, these are all kinds of rows, and the messages of MPI.
        """
        without = [path for path, shown in drawn.reports.items() if not count_shown([shown])[1]]
        if count_shown(drawn.shown)[1] or any(map(is_part, without)):
            without = [path for path in without if not is_part(path)]
            if not without:
                return drawn
            options = replace(self._options, detail="cpu", show=OF_HOSTS)
            (shown,) = self._redraw(run, layout, [(options, Window())], without)
            has_rows = count_shown([*shown.values()])[1] > 0
            warnings.warn(describe_hosts(without, has_rows=has_rows), stacklevel=2)
            return replace(drawn, reports={**drawn.reports, **shown})
        self._options = replace(self._options, detail="cpu", show=OF_RUN)
        (shown,) = self._redraw(run, layout, [(self._options, Window())])
        if count_events([*shown.values()]):
            warnings.warn(
                "no report has GPU operations: CPU ranges, calls and samples are drawn"
                f" (`--detail cpu --show {','.join(OF_RUN)}`)",
                stacklevel=2,
            )
        paths = [recorded.path for recorded in run.inputs]
        messages = self._batch.map(
            "reading messages", paths, partial(read_mpi_messages, nsys=self._batch.nsys)
        )
        rows = place_mpi_messages(run, shown, Window(), messages)
        return Drawn(reports=shown, training=self._finish_rows(rows))

    def _check_drawn(self, run: Run, drawn: Sequence[Drawn]) -> None:
        """Check that there is an event; marks and counters alone are enough.

        Raises:
            MissingDataError: There is none.
        """
        if count_events([report for one in drawn for report in one.shown]):
            return
        paths = [recorded.path for recorded in run.inputs]
        subject = f"`{paths[0]}` has nothing to draw"
        if len(paths) > 1:
            subject = f"none of the {len(paths)} reports has anything to draw"
        if self._content.is_cut:
            raise MissingDataError(
                f"{subject} within what was asked for",
                "check `--device`, `--start` and `--end`: times count from the start of the earliest report,"
                " and `nsys-pp info` lists the GPUs",
            )
        if self._options.detail == "jobs" and any(map(is_part, paths)):
            raise MissingDataError(
                f"{subject}: parts of `--detail jobs` have no ranges and kernels",
                "merge parts of more detail",
            )
        raise _nothing_to_draw(subject)


def _encode_report(path: Path, options: PartOptions, nsys: str | None, store: Store) -> Input:
    with store.add() as (sink, open_blocks):
        part = _extract_report(path, options, sink, nsys=nsys, with_tables=False)
    return Input(path=path, part=part, identity=build_identity(part), open_blocks=open_blocks)


def _redraw_windows(
    path: Path,
    asked: tuple[Sequence[tuple[PartOptions, Window]], pl.DataFrame],
    *,
    nsys: str | None,
    store: Store | None,
) -> list[Any]:
    """Draw a report once for each content and window on its clock.

    Drawings, or encoded ones if there is a store.
    """
    windows, job_ranges = asked
    drawings: Iterator[Drawing] = _redraw_report(path, windows, nsys=nsys, job_ranges=job_ranges)
    if store is None:
        return list(drawings)
    encoded = []
    for drawing in drawings:
        with store.add() as (sink, open_blocks):
            encoded.append((encode_drawing(drawing, sink), open_blocks))
    return encoded


def watch_writing(
    progress: Progress | None, activity: str, reports: Sequence[PlacedReport]
) -> Iterator[PlacedReport]:
    """Yield the contents of traces, which report progress as their blocks are opened to be written, in order.

    Args:
        progress: The callback.
        activity: The current activity.
        reports: Contents of all traces.
    """
    rows = [sum(subtrack.rows for subtrack in report.drawn_subtracks()) for report in reports]
    before = [0, *accumulate(rows)]
    for number, report in enumerate(reports):
        value = before[number] / max(before[-1], 1)
        share = Share.of(number, len(reports), doing="writing", value=value)
        open_blocks = partial(_open_watched, report.open_blocks, progress, activity, share)
        yield replace(report, open_blocks=open_blocks)


def _open_watched(
    open_blocks: OpenBlocks, progress: Progress | None, activity: str, share: Share
) -> AbstractContextManager[Source]:
    report_progress(progress, activity, share)
    return open_blocks()

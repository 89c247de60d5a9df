"""Progress while traces are written: the reports and rows that are written already."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.errors import MissingDataError
from nsys_pp.frames.part import Encoded, PartOptions
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
from nsys_pp.run.layout import PlacedDrawing, Shown, TraceLayout, count_events, count_shown
from nsys_pp.run.mpi import place_mpi_messages, read_mpi_messages
from nsys_pp.run.options import Progress, Share, report_progress
from nsys_pp.run.parts import (
    OF_RUN,
    describe_hosts,
    draw_host,
    draw_run,
    is_content_open,
    is_usual,
)
from nsys_pp.run.pieces import Drawn
from nsys_pp.run.run import Run
from nsys_pp.run.view import Window
from nsys_pp.training.report.job_ranges import list_job_ranges
from nsys_pp.write.files import replace_file
from nsys_pp.write.perfetto.trace import PlacedReport, encode_drawing
from nsys_pp.write.spool import OpenBlocks, Shelf, Spool, Store, make_scratch
from nsys_pp.write.trace.drawing import Drawing
from nsys_pp.write.trace.subtrack_columns import Source
from nsys_pp.write.trace_format_registry import TraceFormat


def watch_writing(
    progress: Progress | None, activity: str, traces: Sequence[Sequence[PlacedReport]]
) -> list[list[PlacedReport]]:
    """Return the contents of traces that report progress as their blocks are opened to be written, in this order.

    Args:
        progress: The callback.
        activity: The current activity.
        traces: Contents of one trace or several.
    """
    reports = [report for trace in traces for report in trace]
    rows = [sum(subtrack.rows for subtrack in report.drawn_subtracks()) for report in reports]
    before = [0, *accumulate(rows)]
    watched = (
        replace(
            report,
            open_blocks=_announce(
                report.open_blocks,
                progress,
                activity,
                Share.of(number, len(reports), doing="writing", value=before[number] / max(before[-1], 1)),
            ),
        )
        for number, report in enumerate(reports)
    )
    return [[next(watched) for _ in trace] for trace in traces]


def _announce(open_blocks: OpenBlocks, progress: Progress | None, activity: str, share: Share) -> OpenBlocks:
    def open_and_report() -> AbstractContextManager[Source]:
        report_progress(progress, activity, share)
        return open_blocks()

    return open_and_report


_nothing_to_draw = import_on_call("nsys_pp.run.report:nothing_to_draw_error")  # all stages of a report


def nothing_drawn_error(paths: Sequence[Path], *, is_cut: bool, detail: str) -> MissingDataError:
    """Return the error of a run without an event to draw.

    Args:
        paths: The inputs.
        is_cut: Whether a part of the run was asked for.
        detail: Level of detail of the trace, or of its parts.
    """
    subject = f"`{paths[0]}` has nothing to draw"
    if len(paths) > 1:
        subject = f"none of the {len(paths)} reports has anything to draw"
    if is_cut:
        return MissingDataError(
            f"{subject} within what was asked for",
            "check `--device`, `--start` and `--end`: times count from the start of the earliest report,"
            " and `nsys-pp info` lists the GPUs",
        )
    if detail == "jobs" and any(map(is_part, paths)):
        return MissingDataError(
            f"{subject}: parts of `--detail jobs` have no ranges and kernels", "merge parts of more detail"
        )
    error: MissingDataError = _nothing_to_draw(subject)
    return error


# all stages of a report, which parts need not
_extract_report, _redraw_report_within, _redraw_windows = (
    import_on_call(f"nsys_pp.run.report:{name}")
    for name in ("extract_report", "redraw_report", "redraw_windows")
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
        self._row_store: Store = self._stack.enter_context(Spool(self._output))
        self._store: Store = self._row_store
        if not self._batch.is_local:
            self._store = Shelf(self._stack.enter_context(make_scratch(self._output)), output=self._output)
        if self._batch.is_remote:  # other machines write traces with these rows
            self._row_store = self._store
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
        if content.needs:
            survey = partial(
                survey_input,
                options=self._options,
                nsys=batch.nsys,
                with_training=True,
                with_density=content.by_steps,
            )
            return order_inputs(batch, parts, batch.map("reading", reports, survey))
        if len(batch.paths) > 1:  # broken ones fail before work begins
            batch.map_locally("reading", reports, partial(inspect_report, nsys=batch.nsys))
        encode = partial(_encode_report, options=self._options, nsys=batch.nsys, store=self._store)
        return order_inputs(batch, parts, batch.map("drawing", reports, encode))

    def draw(self, run: Run) -> tuple[dict[Path, Shown], list[Shown]]:
        """Place all reports, by path, and the rows of the training.

        Raises:
            MissingDataError: There is nothing to draw.
        """
        content = self._content
        layout = self._lay_out(run)
        window = find_window(run, content)
        by_path: dict[Path, Shown]
        if content.needs:
            by_path = self._redraw(run, layout, window)
        else:
            by_path = {recorded.path: layout.place_encoded(recorded) for recorded in run.inputs}
        training = self._place_training(run, layout, by_path, window)
        if self._is_open(run):
            is_empty = not count_shown([*by_path.values(), *training])[1]
            without = [path for path, shown in by_path.items() if not count_shown([shown])[1]]
            if is_empty and not any(map(is_part, by_path)):
                by_path, training = self._draw_without_gpus(run, layout, window)
            elif without := [path for path in without if not is_part(path)]:
                by_path |= self._draw_hosts(run, layout, window, without)
        self._check_shown(run, [*by_path.values(), *training])
        return by_path, training

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
        layout = self._lay_out(run)
        whole = Window(start_ns=windows[0].start_ns, end_ns=windows[-1].end_ns)
        overview = replace(self._options, detail="jobs", flows=False, show=())
        asked = [(overview, whole), *((self._options, window) for window in windows)]
        cuts = [_cut(run, window) for _, window in asked]
        draw = partial(
            _draw_windows,
            options=[options for options, _ in asked],
            nsys=self._batch.nsys,
            store=self._store,
        )
        by_path = {recorded.path: recorded for recorded in run.inputs}
        own = {path: [cut[path] for cut in cuts] for path in by_path}
        encoded = self._batch.map("drawing", list(by_path), draw, own)
        drawn = []
        for number, (_, window) in enumerate(asked):
            reports = {
                path: _lay_out_redrawn(layout, by_path[path], of_report[number])
                for path, of_report in encoded.items()
            }
            drawn.append(Drawn(reports=reports, training=self._place_training(run, layout, reports, window)))  # type: ignore[arg-type]
        self._check_shown(run, [report for piece in drawn for report in piece.shown])
        return drawn[0], drawn[1:]

    @property
    def shared_folder(self) -> Path | None:
        """Folder for files that other machines write for this one; None where they do no work."""
        return self._store.folder if self._batch.is_remote else None

    def write(self, shown: Sequence[Shown], *, force: bool) -> None:
        """Write the trace.

        Raises:
            OutputError: It exists, or cannot be written.
        """
        with replace_file(self._output, force=force) as target, target.open("wb") as stream:
            for block in _encode_trace(self._watch(shown), self._content.format, self._output):
                stream.write(block)

    def _watch(self, shown: Sequence[Shown]) -> Sequence[Shown]:
        if not self._content.is_encoded:
            return shown
        reports = [report for report in shown if isinstance(report, PlacedReport)]
        return watch_writing(self._batch.progress, f"writing {self._output.name}", [reports])[0]

    def _lay_out(self, run: Run) -> TraceLayout:
        return TraceLayout(run, devices=self._content.devices)

    def _place_training(
        self, run: Run, layout: TraceLayout, reports: Mapping[Path, Shown], window: Window
    ) -> list[Shown]:
        rows = layout.place_training(reports, window=window)
        return self._finish_rows([*rows, *place_mpi_messages(run, reports, window)])

    def _finish_rows(self, rows: Sequence[PlacedDrawing]) -> list[Shown]:
        if not self._content.is_encoded:
            return [*rows]
        sources: dict[int, Source] = {}  # machines share frames
        return [self._encode_rows(drawing, sources) for drawing in rows]

    def _check_shown(self, run: Run, shown: Sequence[Shown]) -> None:
        if not count_events(shown):  # marks and counters alone are enough
            paths = [recorded.path for recorded in run.inputs]
            raise nothing_drawn_error(paths, is_cut=self._content.is_cut, detail=self._options.detail)

    def _is_open(self, run: Run) -> bool:
        """Return whether the content of the trace is open: no level of detail, kind of data or part of the run is chosen."""
        has_parts = any(is_part(recorded.path) for recorded in run.inputs)
        is_open = is_usual(self._options) if has_parts else is_content_open(self._content.part_options)
        return is_open and not self._content.is_cut

    def _draw_without_gpus(
        self, run: Run, layout: TraceLayout, window: Window
    ) -> tuple[dict[Path, Shown], list[Shown]]:
        """Draw the rows of CPUs, and messages of MPI, where no report has GPU operations; reports are read once more."""
        self._options = draw_run(self._options)
        shown = self._redraw(run, layout, window)
        if count_events([*shown.values()]):
            warnings.warn(
                "no report has GPU operations: CPU ranges, calls and samples are drawn"
                f" (`--detail cpu --show {','.join(OF_RUN)}`)",
                stacklevel=2,
            )
        paths = [recorded.path for recorded in run.inputs]
        read = self._batch.map("reading messages", paths, partial(read_mpi_messages, nsys=self._batch.nsys))
        return shown, self._finish_rows(place_mpi_messages(run, shown, window, read))

    def _draw_hosts(
        self, run: Run, layout: TraceLayout, window: Window, paths: Sequence[Path]
    ) -> dict[Path, Shown]:
        """Draw CPU ranges and communication of reports without GPU operations, which other reports of the run have."""
        drawn = self._redraw(run, layout, window, options=draw_host(self._options), paths=paths)
        has_rows = count_shown([*drawn.values()])[1] > 0
        warnings.warn(describe_hosts(paths, has_rows=has_rows), stacklevel=2)
        return drawn

    def _redraw(
        self,
        run: Run,
        layout: TraceLayout,
        window: Window,
        *,
        options: PartOptions | None = None,
        paths: Sequence[Path] | None = None,
    ) -> dict[Path, Shown]:
        """Draw the events of all reports, or of some, that overlap the window; reports that fail now are skipped."""
        redraw = partial(
            _redraw_report,
            options=options or self._options,
            nsys=self._batch.nsys,
            store=self._store if self._content.is_encoded else None,
        )
        by_path = {recorded.path: recorded for recorded in run.inputs}
        own = _cut(run, window)
        redrawn = self._batch.map("drawing", list(by_path) if paths is None else paths, redraw, own)
        return {path: _lay_out_redrawn(layout, by_path[path], drawn) for path, drawn in redrawn.items()}

    def _encode_rows(self, rows: PlacedDrawing, sources: dict[int, Source]) -> PlacedReport:
        with self._row_store.add() as (sink, open_blocks):
            encoded = encode_drawing(rows.drawing, sink, sources=sources)
        return PlacedReport(encoded=encoded, placement=rows.placement, open_blocks=open_blocks)


def _encode_report(path: Path, options: PartOptions, nsys: str | None, store: Store) -> Input:
    with store.add() as (sink, open_blocks):
        part = _extract_report(path, options, sink, nsys=nsys, with_tables=False)
    return Input(path=path, part=part, identity=build_identity(part), open_blocks=open_blocks)


def _cut(run: Run, window: Window) -> dict[Path, tuple[Window, pl.DataFrame]]:
    """Map the window to the clock of each report, with its `JOB_RANGES`."""
    cuts = {}
    for recorded, clock in zip(run.inputs, run.clocks.clocks, strict=True):
        on_report = Window(
            start_ns=None if window.start_ns is None else clock.to_report(window.start_ns),
            end_ns=None if window.end_ns is None else clock.to_report(window.end_ns),
        )
        cuts[recorded.path] = on_report, list_job_ranges(recorded.part.frames["jobs"])
    return cuts


def _redraw_report(
    path: Path,
    cut: tuple[Window, pl.DataFrame],
    *,
    options: PartOptions,
    nsys: str | None,
    store: Store | None,
) -> Drawing | tuple[Encoded, OpenBlocks]:
    """Draw the events of a report that overlap its window; encoded, if there is a store."""
    window, job_ranges = cut
    drawing: Drawing = _redraw_report_within(path, options, nsys=nsys, job_ranges=job_ranges, window=window)
    if store is None:
        return drawing
    with store.add() as (sink, open_blocks):
        return encode_drawing(drawing, sink), open_blocks


def _draw_windows(
    path: Path,
    cuts: Sequence[tuple[Window, pl.DataFrame]],
    *,
    options: Sequence[PartOptions],
    nsys: str | None,
    store: Store,
) -> list[tuple[Encoded, OpenBlocks]]:
    """Draw and encode a report once for each window."""
    asked = [(content, window) for content, (window, _) in zip(options, cuts, strict=True)]
    encoded = []
    for drawing in _redraw_windows(path, asked, nsys=nsys, job_ranges=cuts[0][1]):
        with store.add() as (sink, open_blocks):
            encoded.append((encode_drawing(drawing, sink), open_blocks))
    return encoded


def _lay_out_redrawn(
    layout: TraceLayout, recorded: Input, drawn: Drawing | tuple[Encoded, OpenBlocks]
) -> Shown:
    if isinstance(drawn, Drawing):
        return layout.place_drawing(recorded, drawn)
    encoded, open_blocks = drawn
    part = replace(recorded.part, encoded=encoded)
    return layout.place_encoded(replace(recorded, part=part, open_blocks=open_blocks))


def find_window(run: Run, content: TraceContent) -> Window:
    """Return the window of a trace on its clock; with chosen steps, the training has no others."""
    training = run.training
    starts = [training.zero_ns + content.start_ns] if content.start_ns is not None else []
    ends = [training.zero_ns + content.end_ns] if content.end_ns is not None else []
    if content.only_steps:
        starts.append(int(training.steps["start_ns"].min()))  # type: ignore[arg-type]
        ends.append(int(training.steps["end_ns"].max()))  # type: ignore[arg-type]
    return Window(start_ns=max(starts, default=None), end_ns=min(ends, default=None))


def _encode_trace(shown: Sequence[Shown], trace_format: TraceFormat, output: Path) -> Iterator[bytes]:
    if trace_format.encode_drawings is not None:
        drawings = [
            (report.drawing, report.placement) for report in shown if isinstance(report, PlacedDrawing)
        ]
        return trace_format.encode_drawings(drawings, output)
    assert trace_format.merge_encoded is not None
    return trace_format.merge_encoded([report for report in shown if isinstance(report, PlacedReport)])

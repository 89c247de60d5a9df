"""The trace of a run: reports are encoded one by one, placed, and written with the rows of the training.

Parts are encoded already. A report is drawn later, once the clocks and the training are known, where the
content depends on them (a window, chosen steps) or the format is made of all drawings.

A run whose trace is larger than a viewer opens is written as pieces by machine, rank or steps, and an
overview. All pieces have the clock, the root and the names of the one trace, and each is a complete trace.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.errors import MissingDataError, ReportError
from nsys_pp.frames.part import PartOptions
from nsys_pp.frames.training import span_steps
from nsys_pp.options import SHOW_KINDS, Split
from nsys_pp.output.blocks import Store, make_scratch
from nsys_pp.output.files import open_replaced, replace_file, replace_folder, sync_file, translate_errors
from nsys_pp.output.perfetto.trace import PlacedReport, encode_drawing, write_perfetto
from nsys_pp.output.split_index import (
    INDEX,
    SplitFile,
    is_split_folder,
    name_files,
    name_folder,
    write_index,
)
from nsys_pp.output.trace.drawing import FrameColumns
from nsys_pp.output.trace.run_tracks import RUN
from nsys_pp.output.trace.tracks import is_busy_track, is_range_track
from nsys_pp.progress import Progress, Share, report_progress
from nsys_pp.read import inspect_report, is_part
from nsys_pp.run.inputs import (
    Batch,
    order_inputs,
    read_parts,
    settle_part_options,
)
from nsys_pp.run.layout import (
    Drawn,
    PlacedDrawing,
    Shown,
    TraceLayout,
    count_events,
    count_shown,
    list_run_gpus,
    place_mpi_messages,
    read_mpi_messages,
)
from nsys_pp.run.report import (
    Input,
    Window,
    encode_report,
    nothing_to_draw_error,
    redraw_report,
    survey_report,
)
from nsys_pp.run.run import Run
from nsys_pp.training.jobs import list_job_ranges

OF_HOSTS = ("mpi", "ucx")
# Kinds of data on request that are drawn where no report of a run has GPU operations. Texts of the profiler
# and of unknown tables are drawn only if asked for: they may have secrets.
OF_RUN = tuple(kind for kind in SHOW_KINDS if kind not in ("profiler", "other"))
_CONTENT = ("detail", "show", "flows")


def is_content_open(asked: Mapping[str, Any]) -> bool:
    """Return whether no level of detail and no kind of data is chosen.

    `asked` has fields of `PartOptions`, None where open.
    """
    return all(asked.get(name) is None for name in _CONTENT)


def is_usual(options: PartOptions) -> bool:
    """Return whether parts with these options have the content that is drawn where none is chosen."""
    usual = PartOptions()
    return all(getattr(options, name) == getattr(usual, name) for name in _CONTENT)


def describe_hosts(paths: Sequence[Path], *, has_rows: bool) -> str:
    """Describe the content that is drawn of reports without GPU operations; nothing without rows."""
    is_one = len(paths) == 1
    named = f"`{paths[0]}` has" if is_one else f"{len(paths):,} reports (`{paths[0]}` and others) have"
    what = (
        f"{'its' if is_one else 'their'} CPU ranges, and calls of CUDA, MPI and UCX, are drawn"
        if has_rows
        else "nothing else that a trace has by default was recorded"
    )
    return f"{named} no GPU operations: {what} (`--show all` draws all else that reports hold)"


class TraceContent(Struct, frozen=True, kw_only=True):
    """Content of a trace, as asked for by the user."""

    format: str  # one of `nsys_pp.output.formats.TRACE_FORMATS`
    part_options: Mapping[str, Any]  # fields of `PartOptions`; None where open
    devices: frozenset[int] | None
    start_ns: int | None  # from the start of the earliest session
    end_ns: int | None
    only_steps: bool  # draw the chosen steps of the training alone
    by_steps: bool = False  # draw each group of steps apart

    @property
    def is_encoded(self) -> bool:
        """Whether reports are encoded one by one, as in parts."""
        return self.format == "perfetto"

    @property
    def needs(self) -> list[str]:
        """Features that need the events of reports, in words."""
        return [
            *["Chrome's format"] * (not self.is_encoded),
            *["`--start` and `--end`"] * (self.start_ns is not None or self.end_ns is not None),
            *["`--steps`"] * self.only_steps,
            *["`--split step`"] * self.by_steps,
        ]

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
        """Open the store of encoded blocks."""
        self._store = Store(self._stack.enter_context(make_scratch(self._output)), output=self._output)
        return self

    def __exit__(self, *raised: Any) -> None:
        """Delete the encoded blocks."""
        self._stack.close()

    def read_inputs(self, run: Run) -> list[Input]:
        """Read the parts of a run, and encode its reports, or survey them where they are drawn later.

        Raises:
            ReportError: An input cannot be read, or a part has other content than asked for.
        """
        content, batch = self._content, run.batch
        parts = read_parts(batch, writes_blocks=True)
        for path in parts if content.needs else ():
            raise ReportError(
                f"`{path}` is a part: its trace is made already, and {content.needs[0]} cannot be had from"
                " it",
                "name its report, and not the part or their folder",
            )
        self._options, parts = settle_part_options(batch, parts, content.part_options)
        reports = [path for path in batch.paths if not is_part(path)]
        work: Callable[[Path], Input] = partial(
            encode_report, options=self._options, nsys=batch.nsys, store=self._store
        )
        if content.needs:
            work = partial(
                survey_report,
                options=self._options,
                nsys=batch.nsys,
                with_training=True,
                with_density=content.by_steps,
            )
        elif len(batch.paths) > 1:  # broken ones fail before work begins
            batch.map("reading", reports, inspect_report, locally=True)
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
        has_parts = any(is_part(recorded.path) for recorded in run.inputs)
        is_open = is_usual(self._options) if has_parts else is_content_open(content.part_options)
        if is_open and not content.is_cut:  # no level of detail and no kind of data is chosen
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
        if self._content.is_encoded:
            reports = [report for report in shown if isinstance(report, PlacedReport)]
            activity = f"writing {self._output.name}"
            blocks = write_perfetto([*watch_writing(self._batch.progress, activity, reports)])
        else:
            from nsys_pp.output.chrome import write_chrome

            drawings = [report for report in shown if isinstance(report, PlacedDrawing)]
            blocks = write_chrome(
                [(report.drawing, report.placement) for report in drawings],
                compress=self._output.suffix == ".gz",
            )
        with open_replaced(self._output, force=force) as stream:
            stream.writelines(blocks)

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
        work = partial(
            _redraw_windows, nsys=self._batch.nsys, store=self._store if self._content.is_encoded else None
        )
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
            with self._store.add() as (sink, open_blocks):
                encoded = encode_drawing(row.drawing, sink, frames=frames)
            finished.append(PlacedReport(encoded=encoded, placement=row.placement, open_blocks=open_blocks))
        return finished

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
            warnings.warn(
                describe_hosts(without, has_rows=count_shown([*shown.values()])[1] > 0), stacklevel=2
            )
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
        subject = (
            f"`{paths[0]}` has nothing to draw"
            if len(paths) == 1
            else f"none of the {len(paths)} reports has anything to draw"
        )
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
        raise nothing_to_draw_error(subject)


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
    drawings = redraw_report(path, windows, nsys=nsys, job_ranges=job_ranges)
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
        share = Share.of(number, len(reports), doing="writing", value=before[number] / max(before[-1], 1))

        def open_watched(
            report: PlacedReport = report, share: Share = share
        ) -> AbstractContextManager[IO[bytes]]:
            report_progress(progress, activity, share)
            return report.open_blocks()

        yield replace(report, open_blocks=open_watched)


_FILL = 0.8  # of the largest number of events: their number is estimated before they are drawn
# Machine and name of an outermost row of a trace.
RowKey = tuple[str, str]


class RowOwner(Struct, frozen=True, kw_only=True):
    """Owner of an outermost row of a report."""

    gpu: RowKey  # row of the GPU that its process used first; the row itself without one
    ranks: tuple[int, ...]  # in order; () where unknown


class Piece(Struct, frozen=True, kw_only=True):
    """One trace of a divided run.

    Attributes:
        title: Machine, rank or steps.
        shown: Its contents; at least one event.
        machines: In order of the trace.
        ranks: In order; empty where unknown.
        steps: Numbers of the steps, in order.
        event_count: Slices, marks and samples of counters.
        slice_count: Slices among these.
    """

    title: str
    shown: Sequence[PlacedReport]
    machines: tuple[str, ...]
    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    event_count: int
    slice_count: int


class Division(Struct, frozen=True, kw_only=True):
    """A run as several traces."""

    split: Split  # "machine", "rank" or "step"
    overview: Piece
    pieces: Sequence[Piece]
    omits_ranges: bool  # the overview has the load of GPUs in place of ranges, which are too many


def divide_trace(run: Run, drawn: Drawn, split: Split, *, max_events: int) -> Division | None:
    """Divide a trace by machine or rank.

    Args:
        run: The run.
        drawn: All of its trace.
        split: "machine" or "rank"; "auto" divides a trace with more than `max_events` by machine, or by rank
            if a machine alone has more; "none".
        max_events: Largest number of events of a trace.

    Returns:
        The division; None where one trace is to be written: "none", and "auto" where it is small enough or
        all is of one rank.
    """
    if split == "none" or (split == "auto" and count_events(drawn.shown) <= max_events):
        return None
    by: Split = "rank" if split == "rank" else "machine"
    pieces = _build_pieces(run, drawn, by)
    if split == "auto" and any(piece.event_count > max_events for piece in pieces):
        by, pieces = "rank", _build_pieces(run, drawn, "rank")
    if split == "auto" and len(pieces) < 2:
        return None
    overview, omits_ranges = _build_overview(run, drawn, max_events=max_events)
    return Division(split=by, overview=overview, pieces=pieces, omits_ranges=omits_ranges)


def divide_by_steps(run: Run, builder: TraceBuilder, content: TraceContent, *, max_events: int) -> Division:
    """Draw a run as a trace for each group of successive steps.

    A group has as many steps as fit `max_events`, and at least one. A window reaches from the first start of
    its first step on any lane to that of the next group; the first and the last window include all that is
    before and after the steps. An event that overlaps two windows is in both pieces.

    Args:
        run: The run.
        builder: Builder of its trace, with `content.by_steps`.
        content: Content of the trace.
        max_events: Largest number of events of a trace.

    Raises:
        MissingDataError: The run has no steps, or there is nothing to draw.
    """
    spans = span_steps(run.training.steps).with_columns(
        pl.col("start_ns").cum_max()
    )  # steps may start together
    starts = (
        spans.group_by("start_ns").agg(first=pl.col("step").min(), last=pl.col("step").max()).sort("start_ns")
    )
    if starts.is_empty():
        raise MissingDataError(
            "`--split step` needs steps, and none were found",
            "add `--step-pattern`, or use `--split machine`",
        )
    edges = starts["start_ns"].to_numpy()
    rows = np.zeros(len(edges), dtype=np.int64)
    for recorded, clock in zip(run.inputs, run.clocks.clocks, strict=True):
        density = recorded.part.frames["density"]
        step = np.searchsorted(edges, clock.to_trace(density["time_ns"].to_numpy()), side="right") - 1
        np.add.at(rows, step.clip(0), density["rows"].to_numpy())  # those before the first step count for it
    groups = group_steps(rows.tolist(), most=_FILL * max_events)
    whole = content.find_window(run)
    limits = [whole.start_ns, *(int(edges[group[0]]) for group in groups[1:]), whole.end_ns]
    windows = [Window(start_ns=limits[at], end_ns=limits[at + 1]) for at in range(len(groups))]
    overview, drawn = builder.draw_windows(run, windows)
    pieces = []
    for group, contents in zip(groups, drawn, strict=True):
        first, last = int(starts["first"][group[0]]), int(starts["last"][group[-1]])
        title = f"step {first}" if first == last else f"steps {first} to {last}"
        is_own = pl.col("step").is_between(first, last)
        pieces.append(_describe_piece(run, title, contents.shown, _list_owners(run, contents), steps=is_own))
    described = _describe_piece(run, "overview", overview.shown, _list_owners(run, overview))
    return Division(split="step", overview=described, pieces=pieces, omits_ranges=False)


def group_steps(rows: list[int], *, most: float) -> list[list[int]]:
    """Group successive steps, each group with at most a number of rows, or of one step.

    >>> group_steps([4, 4, 4, 20, 1], most=10)
    [[0, 1], [2], [3], [4]]
    """
    groups: list[list[int]] = []
    total = 0
    for step, count in enumerate(rows):
        if not groups or total + count > most:
            groups.append([])
            total = 0
        groups[-1].append(step)
        total += count
    return groups


def write_division(division: Division, output: Path, batch: Batch, *, force: bool) -> list[SplitFile]:
    """Write the traces of a divided run; each file and the folder appear complete or not at all.

    Args:
        division: The run.
        output: The overview; the folder of the other traces is `name_folder` of it.
        batch: Batch of the inputs, for progress.
        force: Replace existing ones.

    Returns:
        The traces of the folder.

    Raises:
        OutputError: The output or the folder exists, or cannot be written.
    """
    folder = name_folder(output)
    names = name_files([piece.title for piece in division.pieces])
    all_reports = [report for piece in (division.overview, *division.pieces) for report in piece.shown]
    watched = watch_writing(batch.progress, f"writing {folder.name}", all_reports)

    def write(piece: Piece, target: Path, path: Path) -> SplitFile:
        """Write the next trace, which will be at a path."""
        with target.open("wb") as stream:
            for block in write_perfetto([next(watched) for _ in piece.shown]):
                stream.write(block)
            size = stream.tell()
        return SplitFile(
            path=path,
            title=piece.title,
            machines=piece.machines,
            ranks=piece.ranks,
            steps=piece.steps,
            slice_count=piece.slice_count,
            event_count=piece.event_count,
            size_bytes=size,
        )

    # one renaming after the other: nothing that takes time is between them, since a kill there leaves a
    # folder without its overview
    with ExitStack() as removal, replace_file(output, force=force) as target:
        overview = write(division.overview, target, output)
        with replace_folder(folder, force=force, is_ours=is_split_folder, removal=removal) as new:
            files = [
                write(piece, new / name, folder / name)
                for piece, name in zip(division.pieces, names, strict=True)
            ]
            write_index(new / INDEX, overview=overview, files=files, unit=division.split)
            if target.is_file():  # no pipe
                with translate_errors(output):
                    sync_file(target)
    return files


def _build_overview(run: Run, drawn: Drawn, *, max_events: int) -> tuple[Piece, bool]:
    """Build the overview: steps, jobs and messages of all ranks; of reports without jobs also their ranges.

    With more than `max_events`, the load of GPUs replaces these ranges.

    Returns:
        The overview, and whether it lacks ranges.
    """
    has_jobs = {recorded.path for recorded in run.inputs if recorded.part.drawn_job_count}
    for is_kept in (is_range_track, is_busy_track):
        shown: list[PlacedReport] = []
        for path, report in drawn.encoded.items():
            tracks = {subtrack.track for subtrack in report.encoded.subtracks}
            kept = {track for track in tracks if is_kept(track)} or set(filter(is_busy_track, tracks))
            shown.append(replace(report, omitted=frozenset(tracks if path in has_jobs else tracks - kept)))
        shown += [report for report in drawn.training if isinstance(report, PlacedReport)]
        if count_events(shown) <= max_events:
            break
    return _describe_piece(run, "overview", shown, _list_owners(run, drawn)), is_kept is is_busy_track


def _describe_piece(
    run: Run,
    title: str,
    contents: Sequence[Shown],
    owners: Mapping[RowKey, RowOwner],
    *,
    steps: pl.Expr | None = None,
) -> Piece:
    """Describe a trace.

    Args:
        run: The run.
        title: Machine, rank or steps.
        contents: Its contents, encoded.
        owners: Of its rows.
        steps: Mask of its steps. Default: those of its ranks.
    """
    shown = [report for report in contents if isinstance(report, PlacedReport)]
    machines = {machine for machine, _ in owners}
    ranks = {rank for owner in owners.values() for rank in owner.ranks}
    if steps is None:
        lanes = run.training.lanes.filter(pl.col("machine").is_in(list(machines)))
        if ranks:
            lanes = lanes.filter(pl.col("rank").is_in(list(ranks)))
        steps = pl.col("lane").is_in(lanes["lane"].implode())
    subtracks = [subtrack for report in shown for subtrack in report.drawn_subtracks()]
    return Piece(
        title=title,
        shown=shown,
        machines=tuple(machine for machine in _list_machines(run) if machine in machines),
        ranks=tuple(sorted(ranks)),
        steps=tuple(run.training.steps.filter(steps)["step"].unique().sort()),
        event_count=sum(subtrack.rows for subtrack in subtracks),
        slice_count=sum(subtrack.rows for subtrack in subtracks if subtrack.kind == "slices"),
    )


def _list_owners(run: Run, drawn: Drawn) -> dict[RowKey, RowOwner]:
    """List the owners of the rows of reports; a row of the CPU has the ranks of its process."""
    owners: dict[RowKey, RowOwner] = {}
    gpus_of = list_run_gpus([recorded.identity for recorded in run.inputs], run.staged_roster)
    keys = ["process_key", "device_id"]
    for index, recorded in enumerate(run.inputs):
        report = drawn.reports.get(recorded.path)
        if report is None:
            continue
        machine, rows = report.placement.machine, report.placement.rows
        ranks: dict[str, list[int]] = {gpu["local"]: gpu["rank"] for gpu in gpus_of.get(index, [])}
        first = (
            run.roster.filter(report=index)
            .join(recorded.identity.devices.select(*keys, local="gpu"), on=keys, maintain_order="left")
            .group_by("pid", maintain_order=True)
            .agg(pl.col("local").first())
        )
        gpu_of_pid = {str(pid): gpu for pid, gpu in first.iter_rows()}
        for name, row in rows.items():
            gpu = name if name in ranks else gpu_of_pid.get(name.rsplit(" ", 1)[-1], "")
            of_row = set(ranks.get(gpu, ()))
            key, gpu_key = (machine, row.name), (machine, rows[gpu].name if gpu in rows else row.name)
            if key in owners:  # a row of several reports
                of_row |= set(owners[key].ranks)
                gpu_key = owners[key].gpu
            owners[key] = RowOwner(gpu=gpu_key, ranks=tuple(sorted(of_row)))
    return owners


def _list_machines(run: Run) -> list[str]:
    return run.roster.sort("machine_order")["machine"].unique(maintain_order=True).to_list()


def _build_pieces(run: Run, drawn: Drawn, split: Split) -> list[Piece]:
    """Group rows by machine or rank, in order.

    Pieces without an event are left out, and so are rows of the run.
    """
    owners = _list_owners(run, drawn)
    machines = {machine: at for at, machine in enumerate(_list_machines(run))}
    groups: dict[tuple[str, int | str], set[RowKey]] = {}
    for key, owner in owners.items():
        group: tuple[str, int | str] = (key[0], "")
        if split == "rank":
            ranks = owners.get(owner.gpu, owner).ranks
            group = ("", ranks[0]) if len(ranks) == 1 else owner.gpu
        groups.setdefault(group, set()).add(key)
    pieces = []
    for (machine, detail), keys in groups.items():
        shown = []
        for report in drawn.shown:
            placement = report.placement
            if placement.machine == RUN or not isinstance(report, PlacedReport):
                continue
            rows = {
                name: row for name, row in placement.rows.items() if (placement.machine, row.name) in keys
            }
            kept = replace(report, placement=replace(placement, rows=rows))
            if kept.drawn_subtracks():
                shown.append(kept)
        if shown:
            title = f"{machine} {detail}".strip() if machine else f"rank {detail}"
            pieces.append(_describe_piece(run, title, shown, {key: owners[key] for key in keys}))
    return sorted(
        pieces, key=lambda piece: (piece.ranks if split == "rank" else (), machines[piece.machines[0]])
    )

"""Layout of a trace: the rows of each report under its machine, and the rows of the training among them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.search import group_pairs
from nsys_pp.errors import describe_path
from nsys_pp.frames.clock import Clock
from nsys_pp.frames.conform import conform
from nsys_pp.frames.part import Encoded, Row, Track
from nsys_pp.frames.roster import Identity
from nsys_pp.frames.training import RUN_MPI_MESSAGES
from nsys_pp.model import build_report
from nsys_pp.output.blocks import OpenBlocks
from nsys_pp.output.perfetto.trace import PlacedReport
from nsys_pp.output.trace.drawing import Drawing, Placement
from nsys_pp.output.trace.run_tracks import RUN, GpuRow, draw_mpi_messages, draw_training
from nsys_pp.output.trace.tracks import GPU_AT, SYSTEM
from nsys_pp.read import read_report
from nsys_pp.run.inputs import ATTRIBUTE, describe_rows, label_reports
from nsys_pp.run.report import FRAME, Input, Window, list_mpi_messages
from nsys_pp.run.run import Run
from nsys_pp.training.messages import pair_mpi_messages
from nsys_pp.units import format_count


def build_titles(roster: pl.DataFrame) -> dict[tuple[int, str], tuple[str, tuple[int, ...]]]:
    """Build the title of each GPU of each report: its ranks, stages, machine if there are several, and GPU.

    Args:
        roster: `ROSTER`.

    Returns:
        Title, and its position among all titles, in order of stage, rank, machine and GPU, by index of the
        report and label of the GPU; empty without GPUs.
    """
    several = (
        pl.col("rank", "stage").drop_nulls().unique().sort()
    )  # processes of several ranks may share a GPU
    gpus = (
        roster.drop_nulls("gpu")
        .group_by("report", "machine", "machine_order", "gpu", "gpu_number", maintain_order=True)
        .agg(several)
        .to_dicts()
    )
    is_one_machine = len({gpu["machine"] for gpu in gpus}) <= 1
    return {
        (gpu["report"], gpu["gpu"]): (
            " · ".join(
                [
                    *format_numbers("rank", gpu["rank"]),
                    *format_numbers("stage", gpu["stage"]),
                    *([] if is_one_machine else [gpu["machine"]]),
                    gpu["gpu"],
                ]
            ),
            (
                min(gpu["stage"], default=0),
                min(gpu["rank"], default=0),
                gpu["machine_order"],
                gpu["gpu_number"],
            ),
        )
        for gpu in gpus
    }


def format_numbers(word: str, numbers: list[int]) -> list[str]:
    """Format numbers after a word in the singular or plural; no text without numbers.

    >>> format_numbers("rank", [3]), format_numbers("rank", [3, 7]), format_numbers("rank", [])
    (['rank 3'], ['ranks 3, 7'], [])
    """
    if not numbers:
        return []
    return [f"{word}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"]


_CPU_ORDER = 1 << 40  # rows other than GPUs are below all GPUs of their machine
_MOST_RANKS = 100_000
_MOST_GPUS = 1_000  # of a machine


class PlacedDrawing(Struct, frozen=True, kw_only=True):
    """A report that is drawn, not encoded, and its rows in the trace."""

    drawing: Drawing
    placement: Placement


Shown = PlacedReport | PlacedDrawing


class Drawn(Struct, frozen=True, kw_only=True):
    """Everything that a trace shows."""

    reports: Mapping[Path, Shown]
    training: Sequence[Shown]  # of the run (machine `RUN`) and of each machine

    @property
    def shown(self) -> list[Shown]:
        """Return reports, then the training."""
        return [*self.reports.values(), *self.training]

    @property
    def encoded(self) -> dict[Path, PlacedReport]:
        """Return the encoded reports."""
        return {path: one for path, one in self.reports.items() if isinstance(one, PlacedReport)}


class TraceLayout:
    """Rows of the reports of a run.

    Args:
        run: The run.
        devices: Include only these GPUs (index per machine); None: all.
    """

    def __init__(self, run: Run, *, devices: frozenset[int] | None) -> None:
        self._run = run
        self._devices = devices
        self._roster = run.staged_roster
        self._gpus_of = list_run_gpus([recorded.identity for recorded in run.inputs], self._roster)
        machines = self._roster.select("report", "machine", "machine_order").unique("report", keep="first")
        self._machine_of = {report: machine for report, *machine in machines.iter_rows()}
        self._titles = build_titles(self._roster)
        self._report_of: dict[Path, int] = {recorded.path: at for at, recorded in enumerate(run.inputs)}
        self._labels = label_reports([recorded.part.source for recorded in run.inputs])
        self._rows = describe_rows(run.row_counts)

    def place_encoded(self, recorded: Input) -> PlacedReport:
        """Return an encoded report with its rows."""
        encoded = recorded.part.encoded
        return PlacedReport(
            encoded=encoded,
            placement=self._build_placement(recorded, encoded.tracks),
            open_blocks=recorded.open_blocks,
        )

    def place(self, recorded: Input, drawn: Drawing | tuple[Encoded, OpenBlocks]) -> Shown:
        """Return a report that was drawn once more, with its rows.

        Of drawings, subtracks of excluded rows are dropped.
        """
        if not isinstance(drawn, Drawing):
            encoded, open_blocks = drawn
            return self.place_encoded(
                replace(recorded, part=replace(recorded.part, encoded=encoded), open_blocks=open_blocks)
            )
        placement = self._build_placement(recorded, drawn.tracks)
        return PlacedDrawing(
            drawing=replace(
                drawn,
                subtracks=[subtrack for subtrack in drawn.subtracks if subtrack.track[0] in placement.rows],
            ),
            placement=placement,
        )

    def place_training(self, shown: Mapping[Path, Shown], *, window: Window) -> Iterator[PlacedDrawing]:
        """Draw the training on the rows of the reports.

        Args:
            shown: Reports of the run that are drawn, by path; at least one.
            window: Draw events that overlap it, on the trace's clock.

        Yields:
            A drawing for the run and for each machine; none without jobs and messages.
        """
        rows = self._list_lane_rows(shown)
        first = next(iter(shown.values()))
        gpu_rows = {
            lane: GpuRow(machine=placement.machine, row=row.name) for lane, (placement, row) in rows.items()
        }
        drawings = draw_training(self._run.training, gpu_rows, start_ns=window.start_ns, end_ns=window.end_ns)
        for machine, drawing in drawings.items():
            if machine == RUN:
                names = {
                    track.path[0]: Row(
                        name=track.name,
                        order=_CPU_ORDER + track.rank,
                        description=track.description,
                        title=track.name,
                        title_order=(-1, track.rank),
                    )
                    for track in drawing.tracks
                }
                placement = replace(
                    first.placement, machine=RUN, machine_order=-1, machine_description="", rows=names
                )
            else:
                own = [(placement, row) for placement, row in rows.values() if placement.machine == machine]
                placement = replace(own[0][0], rows={row.name: row for _, row in own})
            yield PlacedDrawing(drawing=drawing, placement=replace(placement, clock=Clock.fixed(0)))

    def _build_placement(self, recorded: Input, tracks: Iterable[Track]) -> Placement:
        """Name and order the rows of a report: its GPUs, then the other outermost tracks."""
        report = self._report_of[recorded.path]
        clocks = self._run.clocks
        machine, machine_order = self._machine_of[report]
        gpus = {gpu["local"]: gpu for gpu in self._gpus_of.get(report, [])}
        return Placement(
            machine=machine,
            machine_order=machine_order,
            rows={
                **{
                    name: self._build_gpu_row(report, gpu)
                    for name, gpu in gpus.items()
                    if self._is_included(gpu)
                },
                **{
                    track.name: Row(name=track.name, order=_CPU_ORDER + track.rank)
                    for track in tracks
                    if len(track.path) == 1 and track.name not in gpus and not track.name.startswith(GPU_AT)
                },
                **self._list_rows_elsewhere(machine, tracks),
            },
            clock=clocks.clocks[report],
            zero_ns=clocks.zero_ns,
            machine_description=clocks.descriptions.get(machine, ""),
            is_utc=clocks.is_utc,
            attributes={
                **clocks.attributes,
                f"{ATTRIBUTE}{self._labels[report]}": self._rows.get(describe_path(recorded.path), ""),
            },
        )

    def _list_rows_elsewhere(self, machine: str, tracks: Iterable[Track]) -> dict[str, Row]:
        """List the rows of GPUs whose metrics are in a report that does not use them, by their names there.

        They are the rows of the reports of their processes, or the row of the system.
        """
        rows = {}
        for track in tracks:
            if track.path != (track.name,) or not track.name.startswith(GPU_AT):
                continue
            bus = track.name.removeprefix(GPU_AT)
            users = self._roster.filter(pl.col("bus_location").str.to_lowercase() == bus, machine=machine)
            row = Row(name=SYSTEM, order=_CPU_ORDER + track.rank)  # no report of the machine uses the GPU
            if len(users):
                user = users.row(0, named=True)
                at = user["report"]
                gpu = next(gpu for gpu in self._gpus_of[at] if gpu["gpu"] == user["gpu"])
                if not self._is_included(gpu):
                    continue
                row = self._build_gpu_row(at, gpu)
            rows[track.name] = row
        return rows

    def _is_included(self, gpu: Mapping[str, Any]) -> bool:
        return self._devices is None or gpu["gpu_number"] in self._devices

    def _build_gpu_row(self, report: int, gpu: Mapping[str, Any]) -> Row:
        """Build the row of a GPU of a report, named like `GPU 0 · rank 3 · stage 1`."""
        ranks, stages = gpu["rank"], gpu["stage"]
        numbers = [*format_numbers("rank", ranks), *format_numbers("stage", stages)]
        sources = [f"{word} from {source}" for word in ("rank", "stage") for source in gpu[f"{word}_source"]]
        facts = [gpu[name] for name in ("machine", "gpu", "gpu_name", "uuid", "bus_location")]
        title, title_order = self._titles[report, gpu["gpu"]]
        return Row(
            name=" · ".join([gpu["gpu"], *numbers]),
            order=(min(stages, default=0) * _MOST_GPUS + gpu["gpu_number"]) * _MOST_RANKS
            + min(ranks, default=0),
            description=", ".join(
                str(fact)
                for fact in (*facts, self._run.inputs[report].identity.path.name, *sources)
                if fact is not None
            ),
            title=title,
            title_order=title_order,
        )

    def _list_lane_rows(self, shown: Mapping[Path, Shown]) -> dict[int, tuple[Placement, Row]]:
        # lanes that are not drawn are left out
        gpu_of = [
            {
                (process, device): gpu
                for process, device, gpu in recorded.identity.devices[
                    ["process_key", "device_id", "gpu"]
                ].rows()
            }
            for recorded in self._run.inputs
        ]
        rows = {}
        lanes = self._run.training.lanes.select("lane", "report", "process_key", "device_id")
        for lane, report, *key in lanes.rows():
            placed = shown.get(self._run.inputs[report].path)
            if placed is None:
                continue
            row = placed.placement.rows.get(gpu_of[report].get(tuple(key), ""))
            if row is not None:
                rows[lane] = (placed.placement, row)
        return rows


def count_shown(shown: Sequence[Shown]) -> tuple[int, int]:
    """Count the GPUs that have a subtrack, as rows of the trace, and the slices."""
    counts = [*_list_counts(shown)]
    gpus = {
        (report.placement.machine, row.name)
        for report, track, _, _ in counts
        if (row := report.placement.rows[track]).order < _CPU_ORDER
    }
    return len(gpus), sum(count for _, _, count, is_slices in counts if is_slices)


def count_events(shown: Sequence[Shown]) -> int:
    """Count slices, marks and samples of counters."""
    return sum(count for _, _, count, _ in _list_counts(shown))


def _list_counts(shown: Sequence[Shown]) -> Iterator[tuple[Shown, str, int, bool]]:
    """Yield the subtracks of reports.

    The report, the outermost track, events, and whether these are slices.
    """
    for report in shown:
        if isinstance(report, PlacedReport):
            yield from (
                (report, own.track[0], own.rows, own.kind == "slices") for own in report.drawn_subtracks()
            )
        else:
            yield from (
                (report, own.track[0], len(own.rows), own.kind == "slices")
                for own in report.drawing.subtracks
            )


def list_run_gpus(identities: Sequence[Identity], roster: pl.DataFrame) -> dict[int, list[dict[str, Any]]]:
    """List the GPUs of each report: the name in the report, and the facts of the roster.

    Args:
        identities: Of the reports.
        roster: `ROSTER` of them.

    Returns:
        By report, for each of its GPUs: `local`, `machine`, `gpu`, `gpu_number`, `gpu_name`, `uuid`,
            `bus_location`, and lists
        `rank`, `rank_source`, `stage`, `stage_source`; reports without GPUs are left out.
    """
    devices = [identity.devices for identity in identities]
    report = np.repeat(np.arange(len(devices), dtype=np.uint32), [len(of_report) for of_report in devices])
    columns = ["process_key", "device_id", "gpu"]
    local = pl.concat(devices)[columns].rename({"gpu": "local"}).hstack([pl.Series("report", report)])
    facts = ("machine", "gpu", "gpu_number", "gpu_name", "uuid", "bus_location")
    several = ("rank", "rank_source", "stage", "stage_source")  # processes of several ranks may share a GPU
    gpus = (
        roster.join(local, on=["report", "process_key", "device_id"], how="inner", maintain_order="left")
        .group_by("report", "local", maintain_order=True)
        .agg(pl.col(facts).first(), pl.col(several).drop_nulls().unique().sort())
    )
    return group_pairs((gpu.pop("report"), gpu) for gpu in gpus.iter_rows(named=True))


def read_mpi_messages(path: Path, nsys: str | None) -> pl.DataFrame:
    """Read the messages of a report (`PART_MPI_MESSAGES`)."""
    return list_mpi_messages(build_report(read_report(path, need=frozenset({"show_mpi"}), nsys=nsys)))


def place_mpi_messages(
    run: Run,
    shown: Mapping[Path, Shown],
    window: Window,
    messages_of: Mapping[Path, pl.DataFrame] | None = None,
) -> list[PlacedDrawing]:
    """Draw the messages of all reports below their processes; warns of messages without an arrow.

    Args:
        run: The run.
        shown: Its reports that are drawn, by path.
        window: Draw messages that overlap it, on the trace's clock.
        messages_of: `PART_MPI_MESSAGES` of each report. Default: those of the parts.

    Returns:
        A drawing per report with messages; none unless reports were extracted with `--show mpi`.
    """
    if messages_of is None:
        messages_of = {
            recorded.path: recorded.part.frames[FRAME]
            for recorded in run.inputs
            if FRAME in recorded.part.frames
        }
    messages = _gather(run, messages_of)
    pairs = pair_mpi_messages(messages)
    _warn_of_unpaired(pairs)
    drawings = draw_mpi_messages(messages, pairs, start_ns=window.start_ns, end_ns=window.end_ns)
    placed = []
    for report, drawing in drawings.items():
        own = shown.get(run.inputs[report].path)
        if own is None:
            continue
        rows = {
            name: row
            for name, row in own.placement.rows.items()
            if name in {t.path[0] for t in drawing.tracks}
        }
        kept = replace(
            drawing,
            tracks=[track for track in drawing.tracks if track.path[0] in rows],
            subtracks=[subtrack for subtrack in drawing.subtracks if subtrack.track[0] in rows],
        )
        if kept.subtracks:
            placed.append(
                PlacedDrawing(drawing=kept, placement=replace(own.placement, rows=rows, clock=Clock.fixed(0)))
            )
    return placed


def _gather(run: Run, messages_of: Mapping[Path, pl.DataFrame]) -> pl.DataFrame:
    """Gather the messages of all reports, on the trace's clock (`RUN_MPI_MESSAGES`)."""
    parts = [RUN_MPI_MESSAGES.to_frame()]
    bounds = {
        report: (clock, group, bound)
        for clock, (reports, group, bound) in enumerate(
            run.clocks.table.select("reports", "group", "bound_ns").iter_rows()
        )
        for report in reports
    }
    for report, recorded in enumerate(run.inputs):
        frame = messages_of.get(recorded.path)
        if frame is None:
            continue
        clock, group, bound = bounds.get(report, (report, report, None))
        on_trace = run.clocks.clocks[report]
        ends = frame["end_ns"]
        until = pl.Series(on_trace.to_trace(ends.fill_null(0).to_numpy())).set(ends.is_null(), None)
        parts.append(
            frame.with_columns(
                start_ns=pl.Series(on_trace.to_trace(frame["start_ns"].to_numpy())),
                end_ns=until,
                report=pl.lit(report, pl.UInt32),
                clock=pl.lit(clock, pl.UInt32),
                clock_group=pl.lit(group, pl.UInt32),
                bound_ns=pl.lit(bound, pl.Int64),
            ).pipe(conform, RUN_MPI_MESSAGES)
        )
    return pl.concat(parts)


def _warn_of_unpaired(pairs: pl.DataFrame) -> None:
    """Warn of sends and receives without an arrow, by reason, and of guessed arrows."""
    counts = pairs["unpaired"].drop_nulls().value_counts().sort("count", "unpaired", descending=[True, False])
    facts = []
    if len(counts):
        missing = int(counts["count"].sum())
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in counts.iter_rows())
        facts.append(f"{missing:,} of {len(pairs):,} sends and receives of MPI are not joined: {reasons}")
    if guesses := int(pairs["is_guess"].sum() or 0) // 2:
        facts.append(
            f"{format_count(guesses, 'arrow')} of MPI messages are guessed by order: recording began after "
            "`MPI_Init`"
        )
    if facts:
        warnings.warn("; ".join(facts), stacklevel=4)

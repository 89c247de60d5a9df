"""Titles of the rows of GPUs, as they are shown above all machines: `rank 6 · stage 1`, in order of stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.frames.clock import Clock
from nsys_pp.frames.ids import describe_path
from nsys_pp.frames.part import Track
from nsys_pp.frames.roster import Identity
from nsys_pp.run.inputs import Input, label_reports
from nsys_pp.run.row_counts import ATTRIBUTE, describe_rows
from nsys_pp.run.run import Run
from nsys_pp.run.view import Window
from nsys_pp.write.perfetto.trace import PlacedReport
from nsys_pp.write.trace.activity_rows import SYSTEM
from nsys_pp.write.trace.drawing import Drawing, SliceSubtrack
from nsys_pp.write.trace.placement import Placement, Row
from nsys_pp.write.trace.tracks import GPU_AT
from nsys_pp.write.trace.training_rows import RUN, GpuRow, draw_training
from nsys_pp.write.trace.tree import count_rows


class Title(Struct, frozen=True, kw_only=True):
    """Title of a row, and its position among all titles."""

    text: str
    order: tuple[int, ...]


def build_titles(roster: pl.DataFrame) -> dict[tuple[int, str], Title]:
    """Build the title of each GPU of each report: its rank and stage, or the GPU itself without a rank.

    The GPU, and then its machine, are added where titles would be equal; the machine of a GPU without a rank is omitted
    if there is only one.

    Args:
        roster: `ROSTER`.

    Returns:
        Titles by index of the report and label of the GPU, in order of stage, rank, machine and GPU; empty without GPUs.
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
    texts = [_format_title(gpu, with_machine=not is_one_machine) for gpu in gpus]
    additions: list[Callable[[Mapping[str, Any]], Any]] = [lambda gpu: gpu["gpu"], lambda gpu: gpu["machine"]]
    for add in additions:
        rows = {(text, gpu["machine"], gpu["gpu"]) for text, gpu in zip(texts, gpus, strict=True)}
        shared = Counter(text for text, *_ in rows)
        texts = [
            f"{text} · {add(gpu)}" if shared[text] > 1 and gpu["rank"] else text
            for text, gpu in zip(texts, gpus, strict=True)
        ]
    return {
        (gpu["report"], gpu["gpu"]): Title(text=text, order=_order(gpu))
        for text, gpu in zip(texts, gpus, strict=True)
    }


def _format_title(gpu: Mapping[str, Any], *, with_machine: bool) -> str:
    if not gpu["rank"]:
        return " · ".join(
            [gpu["machine"]] * with_machine + [gpu["gpu"], *format_numbers("stage", gpu["stage"])]
        )
    return " · ".join([*format_numbers("rank", gpu["rank"]), *format_numbers("stage", gpu["stage"])])


def format_numbers(word: str, numbers: list[int]) -> list[str]:
    """Format numbers after a word in the singular or plural; no text without numbers.

    >>> format_numbers("rank", [3]), format_numbers("rank", [3, 7]), format_numbers("rank", [])
    (['rank 3'], ['ranks 3, 7'], [])
    """
    if not numbers:
        return []
    return [f"{word}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"]


def _order(gpu: Mapping[str, Any]) -> tuple[int, ...]:
    return (
        (gpu["stage"] or [0])[0],
        (gpu["rank"] or [0])[0],
        gpu["machine_order"],
        gpu["gpu_number"],
    )


_CPU_ORDER = 1 << 40  # rows other than GPUs are below all GPUs of their machine
_MOST_RANKS = 100_000
_MOST_GPUS = 1_000  # of a machine


class PlacedDrawing(Struct, frozen=True, kw_only=True):
    """A report that is drawn, not encoded, and its rows in the trace."""

    drawing: Drawing
    placement: Placement


Shown = PlacedReport | PlacedDrawing


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
        self._titles_of: dict[int, dict[str, Title]] = {}
        for (report, gpu), title in build_titles(self._roster).items():
            self._titles_of.setdefault(report, {})[gpu] = title
        self._report_of: dict[Path, int] = {recorded.path: at for at, recorded in enumerate(run.inputs)}
        self._labels = label_reports([recorded.part.source for recorded in run.inputs])
        self._rows = describe_rows(run.row_counts)

    def place_encoded(self, recorded: Input) -> PlacedReport:
        """Return an encoded report with its rows."""
        encoded = recorded.part.encoded
        placement = self._build_placement(recorded, encoded.tracks)
        return PlacedReport(encoded=encoded, placement=placement, open_blocks=recorded.open_blocks)

    def place_drawing(self, recorded: Input, drawing: Drawing) -> PlacedDrawing:
        """Return a drawn report with its rows; subtracks of excluded rows are dropped."""
        placement = self._build_placement(recorded, drawing.tracks)
        subtracks = [subtrack for subtrack in drawing.subtracks if subtrack.track[0] in placement.rows]
        return PlacedDrawing(drawing=replace(drawing, subtracks=subtracks), placement=placement)

    def place_training(self, shown: Mapping[Path, Shown], *, window: Window) -> list[PlacedDrawing]:
        """Draw the training on the rows of the reports.

        Args:
            shown: Reports of the run that are drawn, by path; at least one.
            window: Draw events that overlap it, on the trace's clock.

        Returns:
            A drawing for the run and for each machine; none without jobs and messages.
        """
        rows = self._list_lane_rows(shown)
        first = next(iter(shown.values()))
        gpu_rows = {
            lane: GpuRow(machine=placement.machine, row=row.name) for lane, (placement, row) in rows.items()
        }
        drawings = draw_training(self._run.training, gpu_rows, start_ns=window.start_ns, end_ns=window.end_ns)
        placed = []
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
            on_trace = replace(placement, clock=Clock.fixed(0))
            placed.append(PlacedDrawing(drawing=drawing, placement=on_trace))
        return placed

    def _build_placement(self, recorded: Input, tracks: Iterable[Track]) -> Placement:
        """Name and order the rows of a report that has these tracks in addition to its GPUs."""
        report = self._report_of[recorded.path]
        clocks = self._run.clocks
        machine, machine_order = self._machine_of[report]
        gpus = self._gpus_of.get(report, [])
        return Placement(
            machine=machine,
            machine_order=machine_order,
            rows=_list_rows(
                recorded.identity.path.name, gpus, self._titles_of.get(report, {}), tracks, self._devices
            )
            | self._list_rows_elsewhere(machine, tracks),
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
        for track in (
            track for track in tracks if track.path == (track.name,) and track.name.startswith(GPU_AT)
        ):
            bus = track.name.removeprefix(GPU_AT)
            users = self._roster.filter(pl.col("bus_location").str.to_lowercase() == bus, machine=machine)
            row = build_system_row(track)
            if len(users):
                user = users.row(0, named=True)
                at = user["report"]
                identity = self._run.inputs[at].identity
                gpu = next(gpu for gpu in self._gpus_of[at] if gpu["gpu"] == user["gpu"])
                if self._devices is not None and gpu["gpu_number"] not in self._devices:
                    continue
                row = _build_gpu_row(gpu, identity.path.name, self._titles_of[at][user["gpu"]])
            rows[track.name] = row
        return rows

    def list_rows_by_bus(self, machine: str) -> dict[str, Row]:
        """List the rows of the GPUs of a machine that metrics of other reports are drawn on, by their names there."""
        buses = self._roster.filter(machine=machine)["bus_location"].str.to_lowercase().unique().sort()
        names = [f"{GPU_AT}{bus}" for bus in buses.drop_nulls()]
        return self._list_rows_elsewhere(machine, [Track(path=(name,), name=name, rank=0) for name in names])

    def _list_lane_rows(self, shown: Mapping[Path, Shown]) -> dict[int, tuple[Placement, Row]]:
        """List the row of each lane; lanes that are not drawn are left out."""
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
            row = placed and placed.placement.rows.get(gpu_of[report].get(tuple(key), ""))
            if placed and row:
                rows[lane] = (placed.placement, row)
        return rows


def count_shown(shown: Sequence[Shown]) -> tuple[int, int]:
    """Count the GPUs that have a subtrack, as rows of the trace, and the slices."""
    gpus: set[tuple[str, str]] = set()
    slices = 0
    for report in shown:
        if isinstance(report, PlacedReport):
            subtracks = [
                (subtrack.track, subtrack.rows * (subtrack.kind == "slices"))
                for subtrack in report.drawn_subtracks()
            ]
        else:
            subtracks = [
                (subtrack.track, count_rows(subtrack) if isinstance(subtrack, SliceSubtrack) else 0)
                for subtrack in report.drawing.subtracks
            ]
        slices += sum(count for _, count in subtracks)
        rows = {report.placement.rows[track[0]] for track, _ in subtracks}
        gpus |= {(report.placement.machine, row.name) for row in rows if row.order < _CPU_ORDER}
    return len(gpus), slices


def count_events(shown: Sequence[Shown]) -> int:
    """Count slices, marks and samples of counters."""
    events = 0
    for report in shown:
        if isinstance(report, PlacedReport):
            events += sum(subtrack.rows for subtrack in report.drawn_subtracks())
        else:
            events += sum(count_rows(subtrack) for subtrack in report.drawing.subtracks)
    return events


def _list_rows(
    report: str,
    gpus: Sequence[Mapping[str, Any]],
    titles: Mapping[str, Title],
    tracks: Iterable[Track],
    devices: frozenset[int] | None,
) -> dict[str, Row]:
    """List the rows of a report by their names there: GPUs, then the other outermost tracks."""
    numbers = {gpu["local"]: gpu["gpu_number"] for gpu in gpus}
    named = {gpu["local"]: _build_gpu_row(gpu, report, titles[gpu["gpu"]]) for gpu in gpus}
    rows = {local: row for local, row in named.items() if devices is None or numbers[local] in devices}
    for track in tracks:
        is_elsewhere = track.name.startswith(GPU_AT)
        if len(track.path) == 1 and track.name not in named and not is_elsewhere:
            rows[track.name] = build_other_row(track)
    return rows


def build_other_row(track: Track) -> Row:
    """Build the row of a process or of the system, below the GPUs of its machine."""
    return Row(name=track.name, order=_CPU_ORDER + track.rank)


def build_system_row(track: Track) -> Row:
    """Build the row of metrics of a GPU that no report of the machine uses."""
    return Row(name=SYSTEM, order=_CPU_ORDER + track.rank)


def list_run_gpus(identities: Sequence[Identity], roster: pl.DataFrame) -> dict[int, list[dict[str, Any]]]:
    """List the GPUs of each report: the name in the report, and the facts of the roster.

    Args:
        identities: Of the reports.
        roster: `ROSTER` of them.

    Returns:
        By report, for each of its GPUs: `local`, `machine`, `gpu`, `gpu_number`, `gpu_name`, `uuid`, `bus_location`, and lists
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
    listed: dict[int, list[dict[str, Any]]] = {}
    for gpu in gpus.iter_rows(named=True):
        listed.setdefault(gpu.pop("report"), []).append(gpu)
    return listed


def _build_gpu_row(gpu: Mapping[str, Any], report: str, title: Title) -> Row:
    """Build the row of a GPU, named like `GPU 0 · rank 3 · stage 1`."""
    ranks, stages = gpu["rank"], gpu["stage"]
    name = " · ".join([str(gpu["gpu"]), *format_numbers("rank", ranks), *format_numbers("stage", stages)])
    sources = [f"{word} from {source}" for word in ("rank", "stage") for source in gpu[f"{word}_source"]]
    facts = [gpu["machine"], gpu["gpu"], gpu["gpu_name"], gpu["uuid"], gpu["bus_location"], report, *sources]
    return Row(
        name=name,
        order=((stages or [0])[0] * _MOST_GPUS + gpu["gpu_number"]) * _MOST_RANKS + (ranks or [0])[0],
        description=", ".join(str(fact) for fact in facts if fact is not None),
        title=title.text,
        title_order=title.order,
    )

"""`nsys-pp merge`: one trace of all reports."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from nsys_pp.align.clocks import Alignment, Recorded, align_by_utc
from nsys_pp.api.progress import Progress, tell
from nsys_pp.api.scene import Wanted, view_report
from nsys_pp.errors import MissingDataError, NsysPPError
from nsys_pp.model import build_report
from nsys_pp.model.report import Report
from nsys_pp.project.ranges import Scope
from nsys_pp.raw import Group
from nsys_pp.read import find_reports, read_report
from nsys_pp.units import NS_PER_DAY
from nsys_pp.write.chrome import write_chrome
from nsys_pp.write.drawing import Drawing, SliceLane
from nsys_pp.write.files import check_output, replace_file
from nsys_pp.write.perfetto import write_perfetto
from nsys_pp.write.tracks import Detail, draw_report

TraceFormat = Literal["perfetto", "chrome"]

_GROUPS: dict[Detail, frozenset[Group]] = {
    "jobs": frozenset({"ranges", "ops"}),
    "ranges": frozenset({"ranges", "ops"}),
    "kernels": frozenset({"ranges", "ops", "details"}),
    "cpu": frozenset({"ranges", "ops", "details", "cpu"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What a merge wrote."""

    reports: int
    machines: int
    gpus: int
    slices: int
    skipped: list[tuple[Path, NsysPPError]]


def merge(
    inputs: Sequence[str | Path],
    output: Path,
    *,
    format: TraceFormat | None = None,
    detail: Detail = "kernels",
    ops: tuple[str, ...] = ("kernel",),
    scope: Scope = "auto",
    devices: frozenset[int] | None = None,
    start_ns: int | None = None,
    end_ns: int | None = None,
    flows: bool = False,
    keep_going: bool = False,
    force: bool = False,
    nsys: str | None = None,
    progress: Progress | None = None,
) -> Merged:
    """Write one trace of all reports, put together by the UTC that each recorded.

    Args:
        inputs: Reports, directories of them, or glob patterns.
        output: The trace; replaced only with `force`.
        format: By the ending of `output` if None: `.json` and `.json.gz` are Chrome's.
        detail: "jobs", "ranges", "kernels" or "cpu": each shows more than the one before.
        ops: Which operations count for projection.
        scope: Whose calls count for projection.
        devices: Only these GPUs, by their number on their machine.
        start_ns: Leave out what ended before, counted from the start of the earliest session.
        end_ns: Leave out what began after, counted likewise.
        flows: Join API calls to their first operation by arrows; needs detail "cpu".
        keep_going: Skip reports that cannot be read, and say so in the result.
        force: Replace an output that exists.
        nsys: The nsys that exports `.nsys-rep` files.
        progress: Told what is going on.

    Raises:
        ReportError: A report cannot be read, or none has anything to draw.
        OutputError: The output exists, or cannot be written.
    """
    check_output(output, force=force)
    paths = find_reports(inputs)
    check_output(output, force=force, inputs=paths)
    sessions, skipped = _read_sessions(paths, nsys, keep_going)
    alignment = _align(sessions)
    wanted = Wanted(
        detail=detail,
        ops=ops,
        scope=scope,
        flows=flows,
        devices=devices,
        start_ns=None if start_ns is None else start_ns + alignment.zero_ns,
        end_ns=None if end_ns is None else end_ns + alignment.zero_ns,
    )
    root = output.name.split(".")[0] or "run"
    machines: set[str] = set()
    gpus: set[tuple[str, ...]] = set()
    slices = 0

    def draw() -> Iterator[Drawing]:
        nonlocal slices
        for number, session in enumerate(sessions):
            tell(progress, f"drawing {session.path.name}", number / len(sessions))
            try:
                report = build_report(read_report(session.path, need=_GROUPS[detail], nsys=nsys))
            except NsysPPError as error:  # in a part that placing it did not look at
                if not keep_going:
                    raise
                skipped.append((session.path, error))
                continue
            offset_ns = alignment.offset_ns[number]
            view = view_report(report, sessions, number=number, offset_ns=offset_ns, wanted=wanted)
            drawing = draw_report(view, root=root, detail=detail)
            machines.add(report.session.machine)
            gpus.update(lane.track[:2] for lane in drawing.lanes if lane.track[1].startswith("GPU"))
            slices += sum(len(lane.slices) for lane in drawing.lanes if isinstance(lane, SliceLane))
            yield replace(drawing, is_utc=alignment.is_utc)

    with replace_file(output, force=force) as target, target.open("wb") as stream:
        if (format or _format_of(output)) == "chrome":
            blocks = write_chrome(draw(), compress=output.suffix == ".gz")
        else:
            blocks = write_perfetto(draw())
        for block in blocks:
            stream.write(block)
        if not slices:
            raise skipped[0][1] if len(skipped) == len(paths) else _nothing_to_draw(sessions, wanted)
    return Merged(
        reports=len(paths) - len(skipped),
        machines=len(machines),
        gpus=len(gpus),
        slices=slices,
        skipped=skipped,
    )


def _read_sessions(
    paths: list[Path], nsys: str | None, keep_going: bool
) -> tuple[list[Report], list[tuple[Path, NsysPPError]]]:
    """Read what little of each report is needed to place all of them; bad ones fail before work begins."""
    sessions: list[Report] = []
    skipped: list[tuple[Path, NsysPPError]] = []
    for path in paths:
        try:
            sessions.append(build_report(read_report(path, need=frozenset(), nsys=nsys)))
        except NsysPPError as error:
            if not keep_going or len(paths) == 1:
                raise
            skipped.append((path, error))
    if not sessions:
        raise skipped[0][1]
    return sessions, skipped


def _align(sessions: list[Report]) -> Alignment:
    alignment = align_by_utc(
        [
            Recorded(utc_epoch_ns=one.session.utc_epoch_ns, time_shift_ns=one.session.time_shift_ns)
            for one in sessions
        ]
    )
    for row in alignment.unplaced:
        warnings.warn(
            f"`{sessions[row].path}` does not know its UTC: it is drawn from the start of the earliest report",
            stacklevel=3,
        )
    epochs = [one.session.utc_epoch_ns for one in sessions if one.session.utc_epoch_ns is not None]
    days = (max(epochs, default=0) - min(epochs, default=0)) // NS_PER_DAY
    if days:
        warnings.warn(
            f"the reports were recorded up to {days:,} days apart: are they of one run?"
            + (" Chrome's format loses nanoseconds over such a time" if days > 100 else ""),
            stacklevel=3,
        )
    if not alignment.is_utc and len(sessions) > 1:
        warnings.warn(
            "no report knows its UTC: all are drawn from one start, whenever they were recorded", stacklevel=3
        )
    return alignment


def _nothing_to_draw(sessions: list[Report], wanted: Wanted) -> MissingDataError:
    what = f"`{sessions[0].path}` has nothing to draw"
    if len(sessions) > 1:
        what = f"none of the {len(sessions)} reports has anything to draw"
    if wanted.is_part:
        return MissingDataError(
            f"{what} within what was asked for",
            "check `--device`, `--start` and `--end`: times count from the start of the earliest report,"
            " and `nsys-pp info` lists the GPUs",
        )
    return MissingDataError(
        f"{what}: no GPU operations",
        "`nsys profile --trace cuda,nvtx` records them; `--detail cpu` also draws CPU ranges",
    )


def _format_of(output: Path) -> TraceFormat:
    return "chrome" if output.name.endswith((".json", ".json.gz")) else "perfetto"

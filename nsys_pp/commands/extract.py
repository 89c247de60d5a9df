"""`nsys-pp extract`: one report as a part, its trace encoded."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from nsys_pp.aggregates.range_items import MOST_NAMES
from nsys_pp.alignment.anchors import find_anchors
from nsys_pp.compose.batch import Batch, Skipped
from nsys_pp.compose.part_files import check_target, find_finished, is_like_part, name_outputs
from nsys_pp.compose.progress import Progress
from nsys_pp.compose.report_aggregates import aggregate_report
from nsys_pp.compose.report_training import Links, ReportTraining, describe_training, find_links
from nsys_pp.compose.report_view import Window, project_report, view_report
from nsys_pp.compose.work import WorkOptions, choose_executor
from nsys_pp.errors import MissingDataError
from nsys_pp.frames.part import Encoded, Part, PartOptions
from nsys_pp.frames.raw import Group
from nsys_pp.frames.report import Report, Session
from nsys_pp.frames.roster import Identity
from nsys_pp.model import build_report
from nsys_pp.model.contents import count_rows
from nsys_pp.model.recorded import name_recorded
from nsys_pp.projection.ranges import Scope
from nsys_pp.read import find_reports, read_report
from nsys_pp.roster.identity import identify
from nsys_pp.write.files import translate_errors
from nsys_pp.write.parts import write_part
from nsys_pp.write.perfetto.trace import Sink, encode_drawing
from nsys_pp.write.trace.drawing import Drawing
from nsys_pp.write.trace.spool import make_scratch
from nsys_pp.write.trace.tracks import Detail, draw_report

# What tells who recorded a report, and what ties its clock to others.
SURVEY_GROUPS: frozenset[Group] = frozenset({"ranges", "ops", "communication"})
_AGGREGATE_GROUPS: frozenset[Group] = SURVEY_GROUPS | {"details", "host"}
_GROUPS: dict[str, frozenset[Group]] = {
    "jobs": SURVEY_GROUPS,
    "ranges": SURVEY_GROUPS,
    "kernels": SURVEY_GROUPS | {"details"},
    "cpu": SURVEY_GROUPS | {"details", "cpu"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """What an extraction wrote."""

    report: Path
    output: Path
    slices: int
    jobs: int  # that a trace draws beside them
    gpus: int
    is_new: bool = True  # else it was there already, as it would be made again


def extract(
    report: str | Path,
    output: Path,
    *,
    detail: Detail = "kernels",
    ops: tuple[str, ...] = ("kernel",),
    scope: Scope = "auto",
    flows: bool = False,
    preset: str | None = None,
    job_patterns: tuple[str, ...] = (),
    step_patterns: tuple[str, ...] = (),
    force: bool = False,
    nsys: str | None = None,
) -> Extracted:
    """Write one report as a part, which `merge` takes like the report and need not encode again.

    A part that is there, whole, and as it would be made again, is left as it is; one that is damaged, of
    another version, of other options or older than its report is made again. The part appears whole or
    not at all, whoever else extracts the same report at the same time.

    Args:
        report: The report.
        output: The part.
        detail: "jobs", "ranges", "kernels" or "cpu": each shows more than the one before.
        ops: Which operations count for projection.
        scope: Whose calls count for projection.
        flows: Join API calls to their first operation by arrows; needs detail "cpu".
        preset: Rules that say which ranges are jobs: a name or a file; None: what fits.
        job_patterns: Further ranges that are jobs, as in `KIND=REGEX`.
        step_patterns: Further ranges that are steps.
        force: Make it again, and replace the output whatever it is.
        nsys: The nsys that exports `.nsys-rep` files.

    Raises:
        ReportError: The report cannot be read, or has nothing to draw.
        OutputError: The output exists and is no part of this report, or cannot be written.
    """
    path = Path(report)
    options = PartOptions(
        detail=detail,
        ops=ops,
        scope=scope,
        flows=flows,
        preset=preset,
        job_patterns=job_patterns,
        step_patterns=step_patterns,
    )
    check_target(path, output, force=force)
    return _extract(path, {path: output}, options, force=force, nsys=nsys, scratch=None)


def extract_all(
    inputs: Sequence[str | Path],
    output: Path | None = None,
    *,
    force: bool = False,
    keep_going: bool = False,
    nsys: str | None = None,
    work: WorkOptions | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> tuple[list[Extracted], Skipped]:
    """Write each of several reports as a part; those that are there already are left as they are.

    Args:
        inputs: Reports, directories of them, or glob patterns.
        output: A part, for one report; or a folder, by default the current one, where parts are named
            like their reports; for several reports it is made.
        force: Make all again, and replace outputs whatever they are.
        keep_going: Skip reports that cannot be extracted.
        nsys: The nsys that exports `.nsys-rep` files.
        work: Where reports are worked on; one by one in this process if None.
        progress: Told what is going on.
        options: As for `extract`: what parts show.

    Raises:
        ReportError: A report cannot be read, or has nothing to draw.
        OutputError: An output exists and is no part of this report, or cannot be written; or two
            reports have one name.
    """
    paths = find_reports(inputs)
    outputs = dict(zip(paths, name_outputs(paths, output), strict=True))
    for path, target in outputs.items():
        check_target(path, target, force=force)
    batch = Batch(paths, keep_going=keep_going, progress=progress, workers=choose_executor(work, paths))
    with ExitStack() as stack:
        scratch = None if batch.is_local else stack.enter_context(make_scratch(outputs[paths[0]]))
        extract_one = partial(
            _extract,
            outputs=outputs,
            options=PartOptions(**options),
            force=force,
            nsys=nsys,
            scratch=scratch,
        )
        extracted = batch.spread("extracting", paths, extract_one)
    return list(extracted.values()), batch.skipped


def _extract(
    path: Path,
    outputs: Mapping[Path, Path],
    options: PartOptions,
    *,
    force: bool,
    nsys: str | None,
    scratch: Path | None,
) -> Extracted:
    """Write the part of a report, unless it is there; what may be killed while it writes does so in `scratch`."""
    output = outputs[path]
    if not force and is_like_part(output):
        part = find_finished(path, _path_to_keep(path), output, options, nsys=nsys)
        if part is not None:
            return _describe(path, output, part, is_new=False)

    def make(sink: Sink) -> Part:
        part = extract_report(path, options, sink, nsys=nsys)
        if not part.encoded.slice_count and not part.frames["jobs"]["start_ns"].count():
            raise nothing_to_draw(f"`{path}` has nothing to draw")
        return part

    if scratch is None or output.is_symlink() or (output.exists() and not output.is_file()):
        return _describe(path, output, write_part(output, make, force=True), is_new=True)
    with translate_errors(output):
        beside = Path(tempfile.mkdtemp(dir=scratch)) / "part"
        part = write_part(beside, make, force=True)
        os.replace(beside, output)
    return _describe(path, output, part, is_new=True)


def _describe(path: Path, output: Path, part: Part, *, is_new: bool) -> Extracted:
    return Extracted(
        report=path,
        output=output,
        slices=part.encoded.slice_count,
        jobs=part.frames["jobs"]["start_ns"].count(),
        gpus=part.frames["devices"]["gpu"].n_unique(),
        is_new=is_new,
    )


def extract_report(
    path: Path, options: PartOptions, sink: Sink, *, nsys: str | None, with_tables: bool = True
) -> Part:
    """Make a part of one report; its blocks go to `sink`.

    Args:
        path: The report.
        options: What to show.
        sink: Takes the blocks.
        nsys: The nsys that exports `.nsys-rep` files.
        with_tables: Keep what only tables are made of, not traces: projections and sums.

    Raises:
        ReportError: It cannot be read.
    """
    need = _GROUPS[options.detail] | (_AGGREGATE_GROUPS if with_tables else frozenset())
    report = build_report(read_report(path, need=need, nsys=nsys))
    links = find_links(report)
    projections = project(report, options, links.launches)
    training = describe_training(
        report, projections=projections, links=links, options=options, with_tables=with_tables
    )
    encoded = encode_drawing(draw(report, projections, options, has_jobs=training.has_jobs), sink)
    frames = {}
    if with_tables:
        sums = _sum_up(report, projections, links, training, options)
        frames = {"projections": projections, **sums}
    return _make_part(report, options, encoded, links, training, frames)


def survey_report(
    path: Path,
    options: PartOptions,
    *,
    nsys: str | None,
    with_training: bool = False,
    with_aggregates: bool = False,
) -> Part:
    """Make a part that tells who recorded a report and when, and shows nothing.

    Args:
        path: The report.
        options: Which rules say what a job is.
        nsys: The nsys that exports `.nsys-rep` files.
        with_training: Also find its jobs.
        with_aggregates: Also sum it up, which takes its jobs.

    Raises:
        ReportError: It cannot be read.
    """
    need = _AGGREGATE_GROUPS if with_aggregates else SURVEY_GROUPS
    report = build_report(read_report(path, need=need, nsys=nsys))
    links = find_links(report)
    empty = Encoded(report_id=report.fingerprint, base_ns=0, tracks=[], subtracks=[])
    training, sums = None, {}
    if with_training or with_aggregates:
        projections = project(report, options, links.launches)
        training = describe_training(report, projections=projections, links=links, options=options)
        if with_aggregates:
            sums = _sum_up(report, projections, links, training, options)
    return _make_part(report, options, empty, links, training, sums)


def open_report(path: Path, options: PartOptions, nsys: str | None) -> Report:
    """Read what of a report is drawn."""
    return build_report(read_report(path, need=_GROUPS[options.detail], nsys=nsys))


def project(report: Report, options: PartOptions, launches: pl.DataFrame | None = None) -> pl.DataFrame:
    """Project a report's ranges as its part wants it (`PROJECTIONS`); `LAUNCHES`, where they are known."""
    scope: Any = options.scope
    return project_report(report, ops=options.ops, scope=scope, launches=launches)


def draw(
    report: Report,
    projections: pl.DataFrame,
    options: PartOptions,
    *,
    has_jobs: bool = False,
    window: Window | None = None,
) -> Drawing:
    """Draw a report as its part wants it, or what of it reaches into a window."""
    if "details" not in _GROUPS[options.detail]:  # what only sums were to have
        report = replace(report, op_details=report.op_details.clear())
    view = view_report(
        report,
        projections,
        detail=options.detail,
        flows=options.flows,
        has_jobs=has_jobs,
        window=window,
    )
    return draw_report(view, detail=options.detail)  # type: ignore[arg-type]


def identity_of(part: Part) -> Identity:
    """Tell who recorded a part's report; the opposite of what extraction does.

    Raises:
        KeyError, TypeError: A fact is missing.
    """
    facts = dict(part.facts["identity"])
    session = Session(**facts.pop("session"))
    frames: dict[str, Any] = {name: part.frames[name] for name in IDENTITY_FRAMES}
    return Identity(path=part.source, session=session, **facts, **frames)


IDENTITY_FRAMES = tuple(field.name for field in fields(Identity) if "DataFrame" in str(field.type))


def nothing_to_draw(what: str) -> MissingDataError:
    """Say that there is nothing to draw, and what would record it."""
    return MissingDataError(
        f"{what}: no GPU operations",
        "`nsys profile --trace cuda,nvtx` records them; `--detail cpu` also draws CPU ranges",
    )


def _sum_up(
    report: Report, projections: pl.DataFrame, links: Links, training: ReportTraining, options: PartOptions
) -> dict[str, pl.DataFrame]:
    """Sum up a report as its part wants it (`AGGREGATE_FRAMES`)."""
    return aggregate_report(
        report, projections=projections, links=links, training=training.frames, counted=options.ops
    )


def _tell_sums(report: Report) -> dict[str, Any]:
    """Tell what a summary has to know besides sums."""
    return {
        "recorded": name_recorded(count_rows(report)),
        "is_folded": report.ranges["name"].n_unique() > MOST_NAMES,
    }


def _make_part(
    report: Report,
    options: PartOptions,
    encoded: Encoded,
    links: Links,
    training: ReportTraining | None,
    frames: Mapping[str, pl.DataFrame],
) -> Part:
    identity = identify(report)
    facts: dict[str, Any] = {
        field.name: getattr(identity, field.name)
        for field in fields(identity)
        if field.name not in ("path", "session", *IDENTITY_FRAMES)
    }
    return Part(
        source=_path_to_keep(report.path),
        made_by=version("nsys-pp"),
        options=options,
        facts={
            "identity": {**facts, "session": asdict(identity.session)},
            "preset": training.preset if training else "",
            "unmatched": list(training.unmatched) if training else [],
            **(_tell_sums(report) if "item_aggregates" in frames else {}),
        },
        frames={
            **{name: getattr(identity, name) for name in IDENTITY_FRAMES},
            "anchors": find_anchors(
                requests=links.requests,
                gpu_ops=report.gpu_ops,
                mpi_calls=report.mpi_calls,
            ),
            **(training.frames if training else {}),
            **frames,
        },
        encoded=encoded,
    )


def _path_to_keep(path: Path) -> Path:
    """Give the path as it was named, or from its `machine*` folder on, which tells the machine."""
    whole = path.absolute().parts
    at = [place for place, name in enumerate(whole[:-1]) if name.lower().startswith("machine")]
    if not at or len(path.parts) >= len(whole) - at[-1]:
        return path
    return Path(*whole[at[-1] :])

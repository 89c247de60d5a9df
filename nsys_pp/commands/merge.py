"""`nsys-pp merge`: one trace of all reports."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from nsys_pp.errors import OptionError
from nsys_pp.frames.verdict import Verdict
from nsys_pp.options import MAX_EVENTS, Detail, Split
from nsys_pp.output.files import check_folder, check_output, is_file_output
from nsys_pp.output.formats import TRACE_FORMATS, infer_trace_format
from nsys_pp.output.perfetto.manifest import name_manifest, write_manifest
from nsys_pp.output.split_index import INDEX, SplitFile, is_split_folder, name_folder
from nsys_pp.projection.ranges import Scope
from nsys_pp.read import is_part
from nsys_pp.run.inputs import Batch, Result, label_reports
from nsys_pp.run.layout import Shown, count_events, count_shown
from nsys_pp.run.options import (
    Inputs,
    RunOptions,
    check_choice,
    check_keywords,
    check_values,
    parse_part_options,
    parse_steps,
)
from nsys_pp.run.run import Run
from nsys_pp.run.trace import (
    Division,
    TraceBuilder,
    TraceContent,
    divide_by_steps,
    divide_trace,
    write_division,
)
from nsys_pp.units import format_count


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MergeResult(Result):
    """Counts of a trace, or of the traces of a divided run."""

    output: Path  # the trace ("-": standard output); of a divided run its overview
    reports: int
    machines: int
    gpus: int
    slices: int  # of the whole run; divided by steps, in all traces but the overview
    events: int  # slices, marks and samples of counters of `output`
    split: Split  # "none", or division of the run: "machine", "rank" or "step"
    files: list[SplitFile]  # traces of a divided run, other than the overview
    index: Path | None  # page that links them
    manifest: Path | None  # of traces to be opened together
    omits_ranges: bool  # the overview shows the load of GPUs in place of ranges
    notes: list[str]  # inferred, refused and doubtful facts of the training, in sentences
    verdict: Verdict  # of the training; no findings without jobs


def merge(
    inputs: Inputs,
    output: str | Path,
    *,
    format: str | None = None,
    detail: Detail | None = None,
    ops: str | Sequence[str] | None = None,
    scope: Scope | None = None,
    devices: Collection[int] | None = None,
    start_ns: int | None = None,
    end_ns: int | None = None,
    flows: bool | None = None,
    show: str | Sequence[str] | None = None,
    split: Split = "auto",
    max_events: int = MAX_EVENTS,
    manifest: bool = False,
    force: bool = False,
    **options: Unpack[RunOptions],
) -> MergeResult:
    """Write one trace of all reports, on one clock.

    If one would be too large, an overview and several traces are written.

    Reports are encoded one by one, each as in its part; parts are encoded already. So the size of the trace
    is known before it is written. The traces of a divided run have the same clock and names of rows; they are
    in the folder `nsys_pp.output.split_index.name_folder` next to the output, which is the overview.

    Args:
        inputs: Reports, parts, folders of them, or glob patterns.
        output: The trace; "-": standard output, which has one trace.
        format: One of `nsys_pp.output.formats.TRACE_FORMATS`. Default: "chrome" for `.json` and `.json.gz`,
            else "perfetto".
        detail: "jobs", "ranges", "kernels" or "cpu": each has more than the one before. Default: that of the
            parts, else "kernels".
        ops: GPU operations that ranges are projected onto. Default: those of the parts, else "kernel".
        scope: Launches that count for a range. Default: that of the parts, else "auto".
        devices: Include only these GPUs (index per machine).
        start_ns: Omit events that end before this time after the start of the earliest session.
        end_ns: Omit events that begin after this time, counted likewise.
        flows: Draw arrows from CUDA calls to the first operation of each launch; needs detail "cpu".
        show: Kinds of data to draw on request, keys of `nsys_pp.options.SHOW_KINDS` or "all". Default: those
            of the parts, else none.
        split: "machine", "rank" or "step": a trace for each, or for each group of successive steps; "none":
            one trace; "auto": one trace, or with more than `max_events` by machine, or by rank if a machine
            has more. "step" needs the reports; Chrome's format is one trace.
        max_events: Largest number of events (slices, marks, samples of counters) of a trace. Default: the
            capacity of Perfetto's UI in a browser, as measured.
        manifest: Also write Perfetto's manifest of the trace, for opening it with traces of other tools:
            `NAME.manifest.json` next to the output.
        force: Replace existing outputs.
        options: See `nsys_pp.RunOptions`; with `steps`, all other time is omitted.

    Raises:
        OptionError: `split` or `manifest` excludes the format or the output.
        ReportError: A report cannot be read, or is named twice, none has anything to draw, or a part
            has other content than asked for.
        OutputError: The output exists, or cannot be written.
    """
    check_keywords(options, RunOptions)
    if format is not None:
        check_choice("format", format, TRACE_FORMATS)
    check_values(detail=detail, scope=scope, split=split, max_events=max_events)
    target = Path(output)
    trace_format = format or infer_trace_format(target)
    check_output(target, force=force)
    split = _settle_split(split, trace_format, target, force=force)
    if manifest and (trace_format != "perfetto" or not is_file_output(target)):
        raise OptionError("manifest", "`--manifest` needs a file in Perfetto's format as output")
    content = TraceContent(
        format=trace_format,
        part_options=parse_part_options(options, detail=detail, ops=ops, scope=scope, flows=flows, show=show),
        devices=None if devices is None else frozenset(devices),
        start_ns=start_ns,
        end_ns=end_ns,
        only_steps=parse_steps(options.get("steps")) is not None,
        by_steps=split == "step",
    )
    batch = Batch(inputs, options)
    builder = TraceBuilder(batch, content, target)
    run = Run(batch, options, read=builder.read_inputs)
    for path in (target, name_manifest(target)) if manifest else (target,):
        check_output(path, force=force, inputs=batch.paths)
    division: Division | None = None
    shown: list[Shown]
    with builder:
        if split == "step":
            division = divide_by_steps(run, builder, content, max_events=max_events)
            shown = [report for piece in division.pieces for report in piece.shown]
        else:
            drawn = builder.draw(run)
            shown = drawn.shown
            if content.is_encoded:
                division = divide_trace(run, drawn, split, max_events=max_events)
        notes, verdict = [], Verdict()
        if len(run.training.jobs):  # without jobs there is no verdict, and its tables are not imported
            from nsys_pp.tables.verdict import build_verdict

            notes, verdict = [*run.training.notes], build_verdict(run.training)
        written: dict[str, Any]
        if division is None:
            builder.write(shown, force=force)
            events = count_events(shown)
            written = {"split": "none", "files": [], "index": None, "omits_ranges": False}
        else:
            events = division.overview.event_count
            written = {
                "split": division.split,
                "files": write_division(division, target, batch, force=force),
                "index": name_folder(target) / INDEX,
                "omits_ranges": division.omits_ranges,
            }
    gpus, slices = count_shown(shown)
    notes += describe_earlier(target, has_folder=division is not None, has_manifest=manifest)
    bare = sum(is_part(recorded.path) and recorded.part.options.detail == "jobs" for recorded in run.inputs)
    if bare and detail is None:
        notes.append(
            f"{format_count(bare, 'part')} of `--detail jobs` have steps, jobs and messages alone: for ranges"
            " and kernels, merge parts of more detail"
        )
    return MergeResult(
        output=target,
        reports=len(run.inputs),
        machines=run.roster["machine"].n_unique(),
        gpus=gpus,
        slices=slices,
        events=events,
        **written,
        manifest=write_manifest(target, _list_offsets(run), force=force) if manifest else None,
        notes=notes,
        verdict=verdict,
        skipped=run.skipped,
        row_counts=run.row_counts,
    )


def describe_earlier(output: Path, *, has_folder: bool = False, has_manifest: bool = False) -> list[str]:
    """Note the folder and the manifest of a trace that another run wrote and this one did not."""
    folder, manifest = name_folder(output), name_manifest(output)
    is_earlier = {
        folder: not has_folder and is_split_folder(folder),
        manifest: not has_manifest and manifest.is_file(),
    }
    return [f"not written by this run: `{path}`" for path, is_there in is_earlier.items() if is_there]


def _list_offsets(run: Run) -> dict[str, int]:
    """Return what is added to the UTC of each report, by its label; reports without UTC have none."""
    labels = label_reports([recorded.path for recorded in run.inputs])
    return {
        labels[report]: offset_ns
        for reports, offset_ns in run.clocks.table.select("reports", "offset_ns").rows()
        for report in reports
        if run.clocks.is_utc and run.inputs[report].identity.session.utc_epoch_ns is not None
    }


def _settle_split(split: Split, trace_format: str, target: Path, *, force: bool) -> Split:
    """Return the division, "none" where "auto" cannot divide; refuse an existing folder before any work.

    Raises:
        OptionError: The format or the output cannot be divided.
        OutputError: The folder exists.
    """
    is_file = is_file_output(target)
    if split in ("auto", "none"):
        return split if trace_format == "perfetto" and is_file else "none"
    if trace_format != "perfetto":
        raise OptionError("split", f"`--split {split}` needs Perfetto's format; the output is {trace_format}")
    if not is_file:
        raise OptionError("split", f"`--split {split}` needs a file as output; expected a name for `-o`")
    check_folder(name_folder(target), force=force, is_ours=is_split_folder)
    return split

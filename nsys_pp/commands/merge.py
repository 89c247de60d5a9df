"""`nsys-pp merge`: one trace of all reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from nsys_pp.commands.extract import draw, extract_report, identity_of, nothing_to_draw, open_report, project
from nsys_pp.compose.batch import Batch, Skipped
from nsys_pp.compose.inputs import (
    Input,
    drop_repeated,
    read_part_input,
    refuse_parts,
    settle_part_options,
    survey_input,
)
from nsys_pp.compose.progress import Progress, tell
from nsys_pp.compose.report_view import Window
from nsys_pp.compose.run_training import TrainingOptions, find_training
from nsys_pp.compose.trace_layout import Overrides, PlacedDrawing, Plan, Shown, count_shown, make_plan
from nsys_pp.compose.training_rows import place_training
from nsys_pp.compose.work import WorkOptions, choose_executor
from nsys_pp.errors import MissingDataError
from nsys_pp.frames.part import Encoded, PartOptions
from nsys_pp.frames.training import Training
from nsys_pp.projection.ranges import Scope
from nsys_pp.read import find_reports, is_part, read_report
from nsys_pp.write.chrome.trace import write_chrome
from nsys_pp.write.files import check_output, replace_file
from nsys_pp.write.perfetto.trace import PlacedReport, encode_drawing, write_perfetto
from nsys_pp.write.trace.drawing import Drawing
from nsys_pp.write.trace.spool import OpenBlocks, Shelf, Spool, Store, make_scratch
from nsys_pp.write.trace.tracks import Detail

TraceFormat = Literal["perfetto", "chrome"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """What a merge wrote."""

    reports: int
    machines: int
    gpus: int
    slices: int
    notes: list[str]  # what of its training was inferred, refused or doubted, in sentences
    skipped: Skipped


def merge(
    inputs: Sequence[str | Path],
    output: Path,
    *,
    format: TraceFormat | None = None,
    detail: Detail | None = None,
    ops: tuple[str, ...] | None = None,
    scope: Scope | None = None,
    devices: frozenset[int] | None = None,
    start_ns: int | None = None,
    end_ns: int | None = None,
    flows: bool | None = None,
    overrides: Overrides | None = None,
    training: TrainingOptions | None = None,
    keep_going: bool = False,
    force: bool = False,
    nsys: str | None = None,
    work: WorkOptions | None = None,
    progress: Progress | None = None,
) -> MergeResult:
    """Write one trace of all reports, all on one clock.

    Reports are encoded one by one, each as its part would be; parts are taken as they are.

    Args:
        inputs: Reports, parts, directories of them, or glob patterns.
        output: The trace; replaced only with `force`.
        format: By the ending of `output` if None: `.json` and `.json.gz` are Chrome's.
        detail: "jobs", "ranges", "kernels" or "cpu": each shows more than the one before. This and
            the next two are, if None, as the parts were made, else "kernels", kernels and "auto".
        ops: Which operations count for projection.
        scope: Whose calls count for projection.
        devices: Only these GPUs, by their number on their machine.
        start_ns: Leave out what ended before, counted from the start of the earliest session.
        end_ns: Leave out what began after, counted likewise.
        flows: Join API calls to their first operation by arrows; needs detail "cpu".
        overrides: What is said of clocks and ranks.
        training: What is said of jobs and steps; a choice of steps leaves out all other time.
        keep_going: Skip reports that cannot be read, and say so in the result.
        force: Replace an output that exists.
        nsys: The nsys that exports `.nsys-rep` files.
        work: Where reports are worked on; one by one in this process if None.
        progress: Told what is going on.

    Raises:
        ReportError: A report cannot be read, is there twice, or none has anything to draw; a part
            shows something else than is asked for.
        OutputError: The output exists, or cannot be written.
    """
    check_output(output, force=force)
    paths = find_reports(inputs, with_parts=True)
    check_output(output, force=force, inputs=paths)
    is_chrome = (format or _format_of(output)) == "chrome"
    training = training or TrainingOptions()
    needs = ["Chrome's format"] * is_chrome
    needs += ["`--start` and `--end`"] * (start_ns is not None or end_ns is not None)
    needs += ["`--steps`"] * (training.steps is not None)
    batch = Batch(paths, keep_going=keep_going, progress=progress, workers=choose_executor(work, paths))
    parts = batch.each("reading", [path for path in paths if is_part(path)], read_part_input)
    refuse_parts(parts, needs)
    asked = {"detail": detail, "ops": ops, "scope": scope, "flows": flows, **training.of_parts()}
    options = settle_part_options(list(parts.values()), asked)
    recipe = _Recipe(options=options, is_chrome=is_chrome, nsys=nsys)
    reports = [path for path in paths if path not in parts and not is_part(path)]
    with ExitStack() as stack:
        spool = stack.enter_context(Spool(output))
        store = spool if batch.is_local else Shelf(stack.enter_context(make_scratch(output)))
        if needs:  # what is drawn depends on the clocks: nothing is encoded before
            survey = partial(survey_input, options=options, nsys=nsys, with_training=True)
            read = batch.spread("reading", reports, survey)
        else:
            if len(paths) > 1:  # bad ones fail before work begins
                batch.each("reading", reports, partial(_check, nsys=nsys))
            read = batch.spread("drawing", reports, partial(_encode, recipe=recipe, store=store))
        given = {path: one for path in paths if (one := parts.get(path) or read.get(path))}
        tell(progress, "aligning reports", 1)
        different = drop_repeated(list(given.values()), batch)
        given = {one.path: one for one in different}
        root = output.name.split(".")[0] or "run"
        plan = make_plan(list(given.values()), root=root, devices=devices, overrides=overrides or Overrides())
        found = find_training(plan, training)
        plan = plan.with_stages(found.lanes)
        window = _find_window(found, start_ns, end_ns, only_steps=training.steps is not None)
        if needs:
            redraw = partial(_redraw, cuts=_cut(plan, window), recipe=recipe, store=store)
            redrawn = batch.spread("drawing", list(given), redraw)
            shown = [_place(plan, given[path], one) for path, one in redrawn.items()]
        else:
            shown = [plan.place_encoded(one) for one in given.values()]
        tell(progress, f"writing {output.name}", 1)
        rows = place_training(found, plan, shown, window=window)
        shown += rows if is_chrome else [_encode_rows(one, spool) for one in rows]
        gpus, slices = count_shown(shown)
        if not slices:
            raise _nothing_to_draw(list(given), is_part=len(needs) > is_chrome or devices is not None)
        with replace_file(output, force=force) as target, target.open("wb") as stream:
            for block in _write(shown, output):
                stream.write(block)
    return MergeResult(
        reports=len(given),
        machines=plan.roster["machine"].n_unique(),
        gpus=gpus,
        slices=slices,
        notes=found.notes if len(found.jobs) else [],
        skipped=batch.skipped,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recipe:
    """How reports are drawn."""

    options: PartOptions
    is_chrome: bool
    nsys: str | None


def _check(path: Path, nsys: str | None) -> None:
    """Read what little is needed to find that a report is none."""
    read_report(path, need=frozenset(), nsys=nsys)


def _encode(path: Path, recipe: _Recipe, store: Store) -> Input:
    with store.add() as (sink, open_blocks):
        part = extract_report(path, recipe.options, sink, nsys=recipe.nsys, with_tables=False)
    return Input(path=path, part=part, identity=identity_of(part), open_blocks=open_blocks)


def _cut(plan: Plan, window: Window) -> dict[Path, tuple[Window, bool]]:
    """Say what of each report reaches into the window, on its own clock, and whether it has jobs."""
    cuts = {}
    for one, clock in zip(plan.given, plan.clocks.clocks, strict=True):
        on_report = Window(
            start_ns=None if window.start_ns is None else clock.to_report(window.start_ns),
            end_ns=None if window.end_ns is None else clock.to_report(window.end_ns),
        )
        cuts[one.path] = on_report, one.part.frames["jobs"]["start_ns"].count() > 0
    return cuts


def _redraw(
    path: Path, cuts: Mapping[Path, tuple[Window, bool]], recipe: _Recipe, store: Store
) -> Drawing | tuple[Encoded, OpenBlocks]:
    """Draw what of a report reaches into the window, which is known only now that clocks are."""
    window, has_jobs = cuts[path]
    report = open_report(path, recipe.options, recipe.nsys)
    projections = project(report, recipe.options)
    drawing = draw(report, projections, recipe.options, has_jobs=has_jobs, window=window)
    if recipe.is_chrome:
        return drawing
    with store.add() as (sink, open_blocks):
        return encode_drawing(drawing, sink), open_blocks


def _place(plan: Plan, one: Input, redrawn: Drawing | tuple[Encoded, OpenBlocks]) -> Shown:
    if isinstance(redrawn, Drawing):
        return plan.place_drawing(one, redrawn)
    encoded, open_blocks = redrawn
    return plan.place_encoded(replace(one, part=replace(one.part, encoded=encoded), open_blocks=open_blocks))


def _find_window(training: Training, start_ns: int | None, end_ns: int | None, *, only_steps: bool) -> Window:
    """Put what is asked for on the trace's clock; the chosen steps are those of `training`."""
    starts = [training.zero_ns + start_ns] if start_ns is not None else []
    ends = [training.zero_ns + end_ns] if end_ns is not None else []
    if only_steps:
        starts.append(int(training.steps["start_ns"].min()))  # type: ignore[arg-type]
        ends.append(int(training.steps["end_ns"].max()))  # type: ignore[arg-type]
    return Window(start_ns=max(starts, default=None), end_ns=min(ends, default=None))


def _encode_rows(one: PlacedDrawing, spool: Spool) -> PlacedReport:
    with spool.add() as (sink, open_blocks):
        encoded = encode_drawing(one.drawing, sink)
    return PlacedReport(encoded=encoded, placement=one.placement, open_blocks=open_blocks)


def _write(shown: Sequence[Shown], output: Path) -> Iterator[bytes]:
    drawings = [(one.drawing, one.placement) for one in shown if isinstance(one, PlacedDrawing)]
    if drawings:
        return write_chrome(drawings, compress=output.suffix == ".gz")
    return write_perfetto([one for one in shown if isinstance(one, PlacedReport)])


def _nothing_to_draw(paths: list[Path], *, is_part: bool) -> MissingDataError:
    what = f"`{paths[0]}` has nothing to draw"
    if len(paths) > 1:
        what = f"none of the {len(paths)} reports has anything to draw"
    if not is_part:
        return nothing_to_draw(what)
    return MissingDataError(
        f"{what} within what was asked for",
        "check `--device`, `--start` and `--end`: times count from the start of the earliest report,"
        " and `nsys-pp info` lists the GPUs",
    )


def _format_of(output: Path) -> TraceFormat:
    return "chrome" if output.name.endswith((".json", ".json.gz")) else "perfetto"

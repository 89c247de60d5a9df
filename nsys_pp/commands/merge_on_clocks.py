"""Traces of some reports of a run on the clocks of a file, and the overview of all (`nsys-pp merge --clocks`)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from nsys_pp.commands.merge_result import MergeResult
from nsys_pp.errors import MissingDataError, OptionError
from nsys_pp.frames.choices import Split
from nsys_pp.frames.run_clocks import MachineClocks
from nsys_pp.frames.verdict import Verdict
from nsys_pp.run.batch import Batch
from nsys_pp.run.inputs import TABLE_OPTION_NAMES
from nsys_pp.run.layout import count_events, count_shown
from nsys_pp.run.options import RunOptions
from nsys_pp.run.pieces import Drawn, choose_overview
from nsys_pp.run.run import Run
from nsys_pp.run.trace import TraceBuilder, TraceContent
from nsys_pp.run.trace_on_clocks import ClockFile, MachineTrace
from nsys_pp.units import format_count
from nsys_pp.write.files import check_output, replace_file, translate_errors
from nsys_pp.write.perfetto.trace import PlacedReport, write_perfetto
from nsys_pp.write.split_index import FOLDER_SUFFIX, INDEX, SplitFile, name_folder, write_index

# of the whole run, and so of `align`, which sees all of it
_OF_THE_RUN = ("layout", "rank_from", "offsets", "schedule", "infer_jobs", "steps")


def merge_on_clocks(
    batch: Batch,
    output: Path,
    content: TraceContent,
    options: RunOptions,
    clocks: Path,
    *,
    split: Split,
    max_events: int,
    force: bool,
) -> MergeResult:
    """Write the traces of some reports of a run; arguments and errors as in `nsys_pp.merge`.

    Raises:
        OptionError: An option is of the whole run, or needs events that the file of clocks does not have.
        ReportError: The file does not fit: it is damaged, of another version, or without a report of the inputs.
    """
    _check_options(content, options, split)
    file = ClockFile(clocks)
    usual = {name: getattr(file.facts.options, name) for name in TABLE_OPTION_NAMES}
    asked = {
        name: usual.get(name) if value is None else value for name, value in content.part_options.items()
    }
    is_folder = output.is_dir() or (output.suffix == FOLDER_SUFFIX and not output.exists())
    target = output / "trace" if output.is_dir() else output
    check_output(target, force=force, inputs=[*batch.paths, clocks])
    own = TraceContent(
        format=content.format, part_options=asked, devices=None, start_ns=None, end_ns=None, only_steps=False
    )
    with TraceBuilder(batch, own, target) as builder:
        run = Run(batch, options, read=builder.read_inputs, last_stage="inputs")
        inputs = file.check(run.inputs, batch)
        machines = file.draw(inputs)
        _warn_of_missing(machines, clocks, is_overview=split == "machine")
        if is_folder:
            shown, files = _write_machines(machines, output, force=force)
        else:
            is_whole = split == "machine" or len(inputs) == file.report_count
            drawn = _join(machines, file.draw_run() if is_whole else [])
            shown, files, omits = drawn.shown, [], False
            if split == "machine":
                has_jobs = [one.path for one in inputs if one.part.drawn_job_count]
                shown, omits = choose_overview(drawn, frozenset(has_jobs), max_events=max_events)
            _write(shown, output, batch, force=force)
            if split == "machine":
                files = _write_page(file, shown, output)
    gpus, slices = count_shown(shown)
    return MergeResult(
        output=output,
        reports=len(inputs),
        machines=len(machines),
        gpus=gpus,
        slices=slices,
        events=0 if is_folder else count_events(shown),
        split="machine" if split == "machine" else "none",
        files=files,
        index=name_folder(output) / INDEX if split == "machine" and not is_folder else None,
        omits_ranges=not is_folder and omits,
        notes=[],
        verdict=Verdict(),
        skipped=run.skipped,
        row_counts=run.row_counts,
    )


def _check_options(content: TraceContent, options: RunOptions, split: Split) -> None:
    for name in _OF_THE_RUN:
        if options.get(name):
            option = f"--{name.replace('_', '-').replace('offsets', 'offset')}"
            raise OptionError(
                name,
                f"`--clocks` has the clocks and jobs of the run already; use `{option}` of `nsys-pp align` instead"
                if name != "steps"
                else "`--clocks` has rows of all steps; omit `--steps`, or merge without `--clocks`",
            )
    if options.get("clock", "collectives") != "collectives":
        raise OptionError("clock", "`--clocks` has the clocks of the run already; omit `--clock`")
    needs = [*content.needs, *(["`--device`"] * (content.devices is not None))]
    if needs:
        raise OptionError(
            "clocks", f"`--clocks` has rows of the whole run, without {needs[0]}; omit one of them"
        )
    if split in ("rank", "step"):
        raise OptionError(
            "split", f"`--clocks` divides a run by machine; expected `--split machine` instead of {split}"
        )


def _join(machines: Sequence[MachineTrace], of_run: Sequence[tuple[int, PlacedReport]]) -> Drawn:
    """Join machines and the rows of the run to one trace, in order of the run."""
    reports = {path: placed for machine in machines for path, placed in machine.reports.items()}
    numbers = {path: machine.numbers[path] for machine in machines for path in machine.reports}
    training = sorted(
        [*of_run, *(rows for machine in machines for rows in machine.training)], key=lambda rows: rows[0]
    )
    return Drawn(
        reports={path: reports[path] for path in sorted(reports, key=lambda path: numbers[path])},
        training=[placed for _, placed in training],
    )


def _write_machines(
    machines: Sequence[MachineTrace], folder: Path, *, force: bool
) -> tuple[list[PlacedReport], list[SplitFile]]:
    """Write the trace of each machine into a folder."""
    files, all_shown = [], []
    with translate_errors(folder):
        folder.mkdir(exist_ok=True)
    for machine in machines:
        shown, path = machine.shown, folder / machine.clocks.file_name
        size = _write(shown, path, None, force=force)
        all_shown += shown
        files.append(
            _describe(machine.clocks, path, size, slices=count_shown(shown)[1], events=count_events(shown))
        )
    return all_shown, files


def _describe(
    machine: MachineClocks, path: Path, size_bytes: int, *, slices: int | None, events: int
) -> SplitFile:
    return SplitFile(
        path=path,
        title=machine.machine,
        machines=(machine.machine,),
        ranks=tuple(machine.ranks),
        steps=tuple(machine.steps),
        slice_count=slices,
        event_count=events,
        size_bytes=size_bytes,
    )


def _write(shown: Sequence[PlacedReport], path: Path, batch: Batch | None, *, force: bool) -> int:
    if not count_events(shown):
        raise MissingDataError(
            f"nothing to draw in `{path}`", "draw the reports or parts with more `--detail`"
        )
    with replace_file(path, force=force) as target, target.open("wb") as stream:
        for block in write_perfetto(shown):
            stream.write(block)
        return stream.tell()


def _write_page(file: ClockFile, shown: Sequence[PlacedReport], output: Path) -> list[SplitFile]:
    """Write the page that links the traces of all machines, and return the existing ones."""
    folder = name_folder(output)
    with translate_errors(folder):
        folder.mkdir(exist_ok=True)
    machines = file.list_machines()
    files = []
    for machine in machines:
        path = folder / machine.file_name
        with suppress(OSError):
            files.append(_describe(machine, path, path.stat().st_size, slices=None, events=0))
    if missing := len(machines) - len(files):
        warnings.warn(
            f"{missing} of {format_count(len(machines), 'trace')} are not in `{folder}`: each machine writes its own with"
            f" `nsys-pp merge --clocks {file.path} -o {folder}`; then repeat this command with `--force`",
            stacklevel=4,
        )
    ranks = {rank for machine in machines for rank in machine.ranks}
    steps = {step for machine in machines for step in machine.steps}
    overview = SplitFile(
        path=output,
        title="overview",
        machines=tuple(machine.machine for machine in machines),
        ranks=tuple(sorted(ranks)),
        steps=tuple(sorted(steps)),
        slice_count=count_shown(shown)[1],
        event_count=count_events(shown),
        size_bytes=output.stat().st_size,
    )
    with replace_file(folder / INDEX, force=True) as page:
        write_index(page, overview=overview, files=files, unit="machine")
    return files


def _warn_of_missing(machines: Sequence[MachineTrace], clocks: Path, *, is_overview: bool) -> None:
    """Warn of machines with reports that are not among the inputs."""
    for machine in machines:
        if machine.missing_count and not is_overview:
            total = machine.missing_count + len(machine.reports)
            warnings.warn(
                f"{machine.missing_count} of {format_count(total, 'report')} of `{machine.clocks.machine}` in `{clocks}` are not among"
                " the inputs: their jobs and messages alone are drawn",
                stacklevel=4,
            )

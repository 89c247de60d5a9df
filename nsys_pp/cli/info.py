"""`nsys-pp info`: contents of reports, and missing tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

import nsys_pp
from nsys_pp.cli.command import command, end_with, run_with_progress
from nsys_pp.cli.result import list_rows
from nsys_pp.cli.tables import SCREEN_FORMATS, open_screen

if TYPE_CHECKING:
    import polars as pl

    from nsys_pp.commands.info import ReportInfo

_MAX_SCREENS = 4
_ROSTER_COLUMNS = (
    *("machine", "machine_source", "pid", "device_id", "gpu", "gpu_number", "gpu_name", "uuid"),
    *("bus_location", "rank", "rank_source", "stage", "tensor", "replica", "stage_source"),
)


@command(format=SCREEN_FORMATS)
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
    result = run_with_progress(nsys_pp.info, reports, **options)
    if format == "json":
        infos = [_describe_info(info) for info in result.reports]
        click.echo(json.dumps(infos, indent=2, ensure_ascii=False))
    else:
        from nsys_pp.cli.info_screen import print_info, print_roster

        with open_screen() as console:
            if len(result.reports) > 1:
                print_roster(result.reports, console)
            if verbose or len(result.reports) <= _MAX_SCREENS:
                for info in result.reports:
                    console.print("\n" * (len(result.reports) > 1), end="")
                    print_info(info, console, with_fact_tables=verbose)
    end_with(result)


def _describe_info(info: ReportInfo) -> dict[str, Any]:
    """Return a report as plain types; the keys are stable."""
    import polars as pl

    from nsys_pp.cli.info_screen import format_utc

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

"""`nsys-pp info`: what is in a report, and what is not."""

from __future__ import annotations

import json
from typing import Any

import click
import polars as pl
from rich.console import Console

from nsys_pp import commands as api
from nsys_pp.cli.identity_options import identity_options
from nsys_pp.cli.info_screen import format_utc, print_info
from nsys_pp.cli.info_table import print_roster
from nsys_pp.cli.options import end_with_skipped, input_options, keep_going_option
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.result import result_options

_MOST_SCREENS = 4
_WHO = (
    *("machine", "machine_source", "pid", "device_id", "gpu", "gpu_number", "gpu_name", "uuid"),
    *("bus_location", "rank", "rank_source", "stage", "tensor", "replica", "stage_source"),
)


@click.command()
@input_options
@identity_options
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects, one per report.")
@click.option(
    "--verbose", is_flag=True, help=f"Tell all of each report, also of more than {_MOST_SCREENS} reports."
)
@keep_going_option("read")
@result_options
@click.pass_context
def info(
    ctx: click.Context, /, reports: tuple[str, ...], as_json: bool, verbose: bool, **options: Any
) -> None:
    """Tell who recorded reports, and what they hold.

    Several reports are listed with machine, rank, GPU, and place in the pipeline, and where each was
    learned. Of each report it tells versions, GPUs, processes, ranges, and what is missing.

    nsys writes no table for what did not happen: what is listed as not recorded may also have
    been switched on and have met nothing.

    \b
    Example:
      nsys-pp info report.sqlite
    """
    with show_progress() as progress:
        infos, skipped = api.info(reports, progress=progress, **options)
    if as_json:
        click.echo(json.dumps([_describe(one) for one in infos], indent=2, ensure_ascii=False))
    else:
        console = Console(highlight=False, markup=False, emoji=False)
        with console.capture() as screen:
            if len(infos) > 1:
                print_roster(infos, console)
            if verbose or len(infos) <= _MOST_SCREENS:
                for one in infos:
                    console.print("\n" * (len(infos) > 1), end="")
                    print_info(one, console)
        click.echo("\n".join(line.rstrip() for line in screen.get().splitlines()))
    end_with_skipped(ctx, skipped)


def _describe(one: api.ReportInfo) -> dict[str, Any]:
    """Put a report into plain types; the keys are stable."""
    session, contents = one.session, one.contents
    return {
        "report": str(one.path),
        "nsys_version": session.nsys_version,
        "schema_version": session.schema_version,
        "machine": session.machine,
        "machine_source": session.machine_source,
        "hardware_id": session.hardware_id,
        "rank": session.rank,
        "rank_source": session.rank_source,
        "launcher": session.launcher,
        "who": one.roster.select(_WHO).to_dicts(),
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
        "recorded": dict(contents.recorded.select("what", "row_count").rows()),
        "missing": dict(contents.missing.select("what", "option").rows()),
        "notes": contents.anomalies,
    }


def _describe_process(process: dict[str, Any], threads: pl.DataFrame) -> dict[str, Any]:
    """Add its threads to a process; keys of nsys are left out."""
    key = process.pop("process_key")
    return {**process, "threads": threads.filter(process_key=key).drop("process_key").to_dicts()}

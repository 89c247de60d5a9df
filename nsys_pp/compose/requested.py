"""Data of tables on request: reports are read once more, with the tables that only these need."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from importlib.metadata import version
from pathlib import Path

import polars as pl

from nsys_pp.compose.bubble_hosts import list_bubble_hosts
from nsys_pp.compose.run import Run
from nsys_pp.frames.causes import HOST_CAUSES
from nsys_pp.frames.conform import conform
from nsys_pp.frames.part_host import HOST_FRAMES
from nsys_pp.frames.requested import HOST_TIMES
from nsys_pp.frames.training import Training
from nsys_pp.model.contents import name_option
from nsys_pp.read import is_part, read_part
from nsys_pp.training.run.run_steps import renumber_steps

_RECORDED = {  # kind of data, and its noun, by table
    "metrics": ("gpu_metrics", "GPU metrics"),
    "step_metrics": ("gpu_metrics", "GPU metrics"),
    "network": ("nic_metrics", "network metrics"),
}


def explain_no_rows(run: Run, training: Training, name: str) -> str:
    """Explain why a table that is built only if it is named has no rows.

    An option is spelled as in the version of nsys that recorded the first report.
    """
    reports = [recorded for recorded in run.inputs if not is_part(recorded.path)]
    is_host = name == "host"
    if is_host and not training.lane_states["cause"].is_in(HOST_CAUSES).any():
        return "there is no bubble of cause host or data"
    kind, noun = _RECORDED.get(name, ("", ""))
    if not reports and kind == "gpu_metrics":
        return (
            "none of the parts has GPU metrics of a GPU with kernels: record them, or extract the parts again"
        )
    if not reports and kind:
        return "none of the parts has network metrics in steps: record them, or extract the parts again"
    if name == "overhead":
        return "no overhead was recorded on threads that launch"
    if is_host:
        return "no activity of the host was recorded in bubbles of cause host or data"
    facts = [recorded.part.facts for recorded in reports]
    if any(kind in (fact.recorded or ()) for fact in facts):
        return f"there are no samples of {noun} in the steps of any GPU with kernels"
    option = name_option(kind, nsys_version=facts[0].session.nsys_version)
    what = "the report has" if len(reports) == 1 else f"none of the {len(reports):,} reports has"
    return f"{what} {'no ' if len(reports) == 1 else ''}{noun}: record them with `nsys profile {option}`"


def read_host_times(run: Run, training: Training, reports: Collection[int] | None = None) -> pl.DataFrame:
    """Read the activities of hosts in the bubbles of causes "host" and "data" (`HOST_TIMES`): from parts, or from reports once more.

    The launching thread of a bubble is that of the call that launched the next kernel of the GPU. Bubbles without one have
    the row of the bubbles alone.

    Args:
        run: The run.
        training: Its training.
        reports: Numbers of the inputs to read; None: all.
    """
    wanted = {
        number: recorded for number, recorded in enumerate(run.inputs) if reports is None or number in reports
    }
    frames = {
        recorded.path: recorded.part.frames for recorded in wanted.values() if not is_part(recorded.path)
    }
    work = partial(list_bubble_hosts, nsys=run.batch.nsys)
    read = run.batch.map("reading hosts", list(frames), work, frames)
    parts = [HOST_TIMES.to_frame()]
    numbered, captures = run.numbered_steps, run.captures
    kept = training.steps.select("lane", "step")
    for report, recorded in wanted.items():
        hosts = _read_part_hosts(recorded.path) if is_part(recorded.path) else read.get(recorded.path)
        if hosts is None or hosts.is_empty():
            continue
        located = captures.join(hosts.with_columns(report=pl.lit(report, pl.UInt32)))
        lanes = numbered.lanes.select("lane", "report", "process_key", "device_id")
        placed = located.join(lanes, on=["report", "process_key", "device_id"]).drop("report")
        renumbered = renumber_steps(placed, numbered.numbers)
        parts.append(renumbered.join(kept, on=["lane", "step"], how="semi").pipe(conform, HOST_TIMES))
    return pl.concat(parts).sort("lane", "step", "cause", "activity", "name", nulls_last=False)


def _read_part_hosts(path: Path) -> pl.DataFrame | None:
    """Read the activities of hosts that a part keeps (`BUBBLE_HOSTS`); None without any."""
    return read_part(path, (), version=version("nsys-pp"), optional=HOST_FRAMES).frames.get("bubble_hosts")

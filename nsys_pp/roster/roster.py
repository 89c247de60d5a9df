"""Roster of a run: machine, GPU, rank and stage of every process of all reports -> ROSTER."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from nsys_pp.errors import NsysPPError, ReportError
from nsys_pp.frames.conform import conform
from nsys_pp.frames.ids import pid
from nsys_pp.frames.roster import ROSTER, Identity, ProcessDevice
from nsys_pp.roster.gpu_ranks import number_gpus
from nsys_pp.roster.identity import find_repeated, list_process_devices
from nsys_pp.roster.layout import Layout, count_ranks, locate_ranks
from nsys_pp.roster.machines import Machine, find_machines
from nsys_pp.roster.physical import DeviceGpu, assign_gpus
from nsys_pp.roster.rank_sources import Rank, find_ranks, is_file_order

_COORDINATES = {"stage": "pp", "tensor": "tp", "replica": "dp"}


def build_roster(
    identities: Sequence[Identity], *, layout: Layout | None = None, rank_from: str | None = None
) -> pl.DataFrame:
    """Find machines, GPUs, ranks and pipeline coordinates of all reports of a run.

    A rank comes from the report itself (MPI, NCCL, launcher, XLA); else from `rank_from` and the name of the file;
    else from the names of all files without a rank, by one common pattern; else, if no rank is known and every
    report has one GPU process, from the natural order of the files, unless a layout has more ranks; else, with a layout, from
    the order of GPUs (`gpu_ranks.py`). Ranks of NCCL are used only if no two processes
    have the same rank in the largest communicator. Except for `report`, the result does not depend on the order of
    reports.

    Args:
        identities: One or more reports, in the order of the inputs.
        layout: Layout of ranks; without it, coordinates come from names of ranges and marks.
        rank_from: A regular expression whose first group is the rank in a file's name.

    Returns:
        `ROSTER`.

    Raises:
        ReportError: A recording occurs twice.
        NsysPPError: A rank is beyond the layout; or `rank_from` finds no ranks.
        ValueError: `rank_from` is not a regular expression with a group.
    """
    for repeated, first in find_repeated(identities):
        raise repeated_error(identities[first].path, identities[repeated].path)
    machines = find_machines(identities)
    ranks = find_ranks(identities, machines, rank_from=rank_from)
    if layout is not None and is_file_order(ranks) and len(ranks) != count_ranks(layout):
        ranks = {}  # some file is missing, and all after it would have a wrong place
    numbers = {device: rank.rank for device, rank in ranks.items()}
    gpus = {
        ProcessDevice(gpu.report, gpu.process_key, gpu.device_id): gpu
        for machine in machines
        for gpu in assign_gpus(identities, machine.reports, numbers)
    }
    if layout is not None and not ranks:
        ranks = number_gpus(identities, machines, gpus, count_ranks(layout))
    rows = [
        _build_row(device, machines, gpus.get(device), ranks.get(device))
        for device in list_process_devices(identities)
    ]
    roster = pl.DataFrame(rows, schema={**ROSTER}, strict=False)
    roster = roster.with_columns(pid=pid(pl.col("process_key")))
    if layout is None:
        roster = _add_named_coordinates(roster, identities)
    else:
        roster = _add_layout(roster, identities, layout)
    return conform(roster, ROSTER).sort("report", "process_key", "device_id")


def repeated_error(first: Path, repeated: Path) -> ReportError:
    """Build the error of two files with the same recording."""
    return ReportError(f"`{first}` and `{repeated}` are the same recording", "name each report once")


def _build_row(
    device: ProcessDevice, machines: Sequence[Machine], gpu: DeviceGpu | None, rank: Rank | None
) -> Mapping[str, object]:
    number = next(number for number, machine in enumerate(machines) if device.report in machine.reports)
    row: dict[str, object] = {
        "report": device.report,
        "machine": machines[number].label,
        "machine_source": machines[number].source,
        "machine_order": number,
        "process_key": device.process_key,
        "device_id": device.device_id,
    }
    if gpu is not None:
        row |= {
            "gpu": gpu.gpu,
            "gpu_number": gpu.number,
            "gpu_name": gpu.name,
            "uuid": gpu.uuid,
            "bus_location": gpu.bus_location,
        }
    if rank is not None:
        row |= {"rank": rank.rank, "rank_source": rank.source, "run_size": rank.world_size}
    return row


def _add_layout(roster: pl.DataFrame, identities: Sequence[Identity], layout: Layout) -> pl.DataFrame:
    """Add the coordinates of ranks in a layout."""
    beyond = roster.filter(pl.col("rank") >= count_ranks(layout)).sort("rank")
    for report, rank in beyond.select("report", "rank").head(1).rows():
        raise NsysPPError(
            f"the layout has {count_ranks(layout):,} ranks, but rank {rank} is in `{identities[report].path}`",
            "the product of all parts of `--layout` is the number of ranks",
        )
    located = locate_ranks(roster["rank"], layout)
    columns = [located[axis].alias(ours) for ours, axis in _COORDINATES.items()]
    is_located = pl.col("rank").is_not_null()
    return roster.with_columns(columns).with_columns(
        stage_source=pl.when(is_located).then(pl.lit("--layout")),
        stage_count=pl.when(is_located).then(layout.pp),
        run_size=pl.when(is_located).then(count_ranks(layout)),
    )


def _add_named_coordinates(roster: pl.DataFrame, identities: Sequence[Identity]) -> pl.DataFrame:
    """Add the coordinates of processes in names of NVTX ranges and marks."""
    parts = [
        identity.coordinates.with_columns(report=pl.lit(report, dtype=pl.UInt32), stage_source=pl.lit("NVTX"))
        for report, identity in enumerate(identities)
        if len(identity.coordinates)
    ]
    if not parts:
        return roster
    coordinates = pl.concat(parts)
    return roster.drop(*_COORDINATES, "stage_source").join(
        coordinates, on=["report", "process_key"], how="left", maintain_order="left"
    )

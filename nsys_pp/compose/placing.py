"""Where each report stands in a trace: its rows' names and order, once it is known who is who."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from nsys_pp.frames.clock import Clock
from nsys_pp.frames.part import Track
from nsys_pp.frames.roster import Identity
from nsys_pp.write.trace.placement import Placement, Row

CPU_ORDER = 1 << 40  # what is no GPU stands below all GPUs of its machine
_MOST_RANKS = 100_000
_MOST_GPUS = 1_000  # of a machine


def place_report(
    identity: Identity,
    roster: pl.DataFrame,
    tracks: Iterable[Track],
    *,
    root: str,
    clock: Clock,
    is_utc: bool = True,
    devices: frozenset[int] | None = None,
    machine_description: str = "",
    attributes: Mapping[str, str] | None = None,
) -> Placement:
    """Place one report.

    Args:
        identity: Who recorded it.
        roster: Its rows of `ROSTER`; at least one.
        tracks: What it shows besides GPUs; rows are named and ordered by their kind.
        root: The name of the row above all.
        clock: From its clock to the trace's.
        is_utc: The trace's clock is UTC.
        devices: Draw only these GPUs, by their number on their machine; all if None.
        machine_description: What is said of its machine.
        attributes: Facts for the trace's metadata.
    """
    gpus = _name_gpus(identity, roster)
    numbers = dict(zip(gpus["local"], gpus["gpu_number"], strict=True))
    names = {row["local"]: _gpu_row(row, identity.path.name) for row in gpus.iter_rows(named=True)}
    rows = {local: row for local, row in names.items() if devices is None or numbers[local] in devices}
    for track in tracks:
        if len(track.path) == 1 and track.name not in names:
            rows[track.name] = Row(name=track.name, order=CPU_ORDER + track.rank)
    return Placement(
        root=root,
        machine=roster["machine"][0],
        machine_order=roster["machine_order"][0],
        rows=rows,
        clock=clock,
        machine_description=machine_description,
        is_utc=is_utc,
        attributes=attributes or {},
    )


def is_gpu(row: Row) -> bool:
    """Say whether a row is a GPU's."""
    return row.order < CPU_ORDER


def _name_gpus(identity: Identity, roster: pl.DataFrame) -> pl.DataFrame:
    """List the GPUs of a report, one row each: its name there, and what the roster says of it."""
    local = identity.devices.select("process_key", "device_id", local="gpu")
    known = ("gpu", "gpu_number", "gpu_name", "uuid", "bus_location")
    several = ("rank", "rank_source", "stage", "stage_source")  # processes of several ranks may share a GPU
    return (
        roster.join(local, on=["process_key", "device_id"], how="inner", maintain_order="left")
        .group_by("local", maintain_order=True)
        .agg(pl.col(known).first(), pl.col(several).drop_nulls().unique().sort())
    )


def _gpu_row(gpu: Mapping[str, Any], report: str) -> Row:
    """Say what a GPU's row is called: `GPU 0 · rank 3 · stage 1`."""
    ranks, stages = gpu["rank"], gpu["stage"]
    name = " · ".join([str(gpu["gpu"]), *_name("rank", ranks), *_name("stage", stages)])
    overrides = [f"{what} from {source}" for what in ("rank", "stage") for source in gpu[f"{what}_source"]]
    described = [gpu["gpu_name"], gpu["uuid"], gpu["bus_location"], report, *overrides]
    return Row(
        name=name,
        order=((stages or [0])[0] * _MOST_GPUS + gpu["gpu_number"]) * _MOST_RANKS + (ranks or [0])[0],
        description=", ".join(str(one) for one in described if one is not None),
    )


def _name(word: str, numbers: list[int]) -> list[str]:
    if not numbers:
        return []
    return [f"{word}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"]

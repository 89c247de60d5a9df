"""Identities made up of a few facts, without a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

import polars as pl

from nsys_pp.frames.report import DEVICES, GPUS, PROCESSES, RANKS, Session
from nsys_pp.frames.roster import COORDINATES, Identity

NS = 1_000_000_000
_fingerprints = count(1)

Gpu = tuple[str | None, str | None]  # uuid, place on the bus


def process(pid: int) -> int:
    return (1 << 48) | (pid << 24)


def identity(
    path: str,
    *,
    hostname: str | None = "worker",
    hardware_id: str | None = None,
    pids: Sequence[int] = (100,),
    devices: Sequence[tuple[int, int, str | None, str | None]] | None = None,
    is_recorded: bool = True,
    gpus: Sequence[Gpu] = (),
    ranks: Sequence[tuple[int | None, int | None, int, str, int | None]] = (),
    coordinates: Sequence[tuple[int, int | None, int | None, int | None]] = (),
    launcher: Mapping[str, str] | None = None,
    start_ns: int | None = 0,
    duration_ns: int | None = NS,
    fingerprint: int | None = None,
) -> Identity:
    """Make an identity.

    Args:
        path: The report's.
        hostname: As recorded.
        hardware_id: As recorded.
        pids: Processes; without `devices`, each has device 0.
        devices: pid, ordinal, uuid and place on the bus of each device.
        is_recorded: Whether uuids and places of devices are more than guessed by ordinals.
        gpus: uuid and place of each GPU that the report lists.
        ranks: pid, ordinal, rank, source and world size.
        coordinates: pid, stage, tensor part, replica.
        launcher: Variables.
        start_ns: UTC of the start.
        duration_ns: Of the capture.
        fingerprint: One of its own if None.
    """
    if devices is None:
        devices = [(pid, 0, None, None) for pid in pids]
    session = Session(
        nsys_version=None,
        schema_version=None,
        hostname=hostname,
        hardware_id=hardware_id,
        machine="",
        machine_source="",
        utc_epoch_ns=start_ns,
        system_clock_ns=None,
        time_shift_ns=0,
        capture_end_ns=duration_ns,
        graph_mode=None,
        launcher=dict(launcher or {}),
        rank=None,
        rank_source=None,
    )
    return Identity(
        path=Path(path),
        session=session,
        processes=pl.DataFrame(
            [(process(pid), pid, "python") for pid in pids], schema=PROCESSES, orient="row"
        ),
        gpus=pl.DataFrame([(*gpu, "H100") for gpu in gpus], schema=GPUS, orient="row"),
        devices=pl.DataFrame(
            [
                (process(pid), ordinal, f"GPU {ordinal}", "H100", uuid, bus, is_recorded)
                for pid, ordinal, uuid, bus in devices
            ],
            schema=DEVICES,
            orient="row",
        ),
        ranks=pl.DataFrame(
            [(None if pid is None else process(pid), *rest) for pid, *rest in ranks],
            schema=RANKS,
            orient="row",
        ),
        coordinates=pl.DataFrame(
            [(process(pid), *rest) for pid, *rest in coordinates], schema=COORDINATES, orient="row"
        ),
        fingerprint=next(_fingerprints) if fingerprint is None else fingerprint,
    )

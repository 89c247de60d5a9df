"""Identities of reports: facts that distinguish recordings, processes and GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nsys_pp.frames.report import Report
from nsys_pp.frames.roster import Identity, ProcessDevice
from nsys_pp.roster.coordinates import find_coordinates


def identify(report: Report) -> Identity:
    """Build the identity of a report.

    Session, GPUs, fingerprint, and ranks by MPI, launcher and XLA do not depend on the groups that were read.
    Devices are exact with group "ops", ranks include NCCL with "communication", and coordinates need "ranges".
    """
    return Identity(
        path=report.path,
        session=report.session,
        processes=report.processes,
        gpus=report.gpus,
        devices=report.devices,
        ranks=report.ranks,
        coordinates=find_coordinates(report.ranges, report.marks),
        fingerprint=report.fingerprint,
    )


def list_process_devices(identities: Sequence[Identity]) -> list[ProcessDevice]:
    """List the processes and devices of all reports; one entry with nulls for a report without devices."""
    return [
        ProcessDevice(report, *keys)
        for report, identity in enumerate(identities)
        for keys in _list_keys(identity) or [(None, None)]
    ]


def _list_keys(identity: Identity) -> list[tuple[int | None, int | None]]:
    """List process and device of each device: of a few rows, which a query takes many times as long for."""
    keys = (identity.devices[name].to_list() for name in ("process_key", "device_id"))
    return list(zip(*keys, strict=True))


def find_repeated(identities: Sequence[Identity]) -> list[tuple[int, int]]:
    """Find recordings that occur more than once.

    Returns:
        Pairs of indices of `identities`: the repeated one, and its first occurrence.
    """
    first: dict[int, int] = {}
    pairs = []
    for index, identity in enumerate(identities):
        earlier = first.setdefault(identity.fingerprint, index)
        if earlier != index:
            pairs.append((index, earlier))
    return pairs


def gpu_processes(identity: Identity) -> list[int]:
    """List the keys of the processes with a GPU."""
    return sorted({key for key in identity.devices["process_key"].to_list() if key is not None})


def name_paths(paths: Sequence[Path]) -> str:
    """Format the names of the first three of several files.

    >>> name_paths([Path(f"{name}.sqlite") for name in "abcde"])
    '`a.sqlite`, `b.sqlite`, `c.sqlite` and 2 more'
    >>> name_paths([Path("a.sqlite"), Path("b.sqlite")])
    '`a.sqlite` and `b.sqlite`'
    """
    named = [f"`{path}`" for path in paths[:3]]
    rest = [f"{len(paths) - 3:,} more"] if len(paths) > 3 else []
    *heads, last = [*named, *rest]
    return f"{', '.join(heads)} and {last}" if heads else last

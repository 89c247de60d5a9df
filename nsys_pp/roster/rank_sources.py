"""Ranks of all processes: from the reports, then from the names of files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from nsys_pp.arrays.natural_sort import natural_key
from nsys_pp.frames.ids import find_rank
from nsys_pp.frames.roster import FILE_ORDER, MOST_RANKS, Identity, ProcessDevice
from nsys_pp.roster.file_names import guess_ranks, read_ranks
from nsys_pp.roster.identity import gpu_processes, list_process_devices
from nsys_pp.roster.machines import Machine
from nsys_pp.roster.runs import split_runs


class Rank(NamedTuple):
    """A rank and its source."""

    rank: int
    source: str
    world_size: int | None  # None where unknown


def find_ranks(
    identities: Sequence[Identity], machines: Sequence[Machine], *, rank_from: str | None
) -> dict[ProcessDevice, Rank]:
    """Find the ranks of all processes.

    Args:
        identities: All reports.
        machines: Machines of the reports.
        rank_from: Pattern for names of files.

    Returns:
        Rank of each process and device with a known one.

    Raises:
        NsysPPError: `rank_from` matches no name.
        ValueError: `rank_from` is not a regular expression with a group.
    """
    devices = list_process_devices(identities)
    ranks = {
        device: rank
        for device in devices
        if (rank := _find_recorded(device, identities[device.report])) is not None
    }
    machine_of = {report: number for number, machine in enumerate(machines) for report in machine.reports}
    ranks = _drop_group_ranks(ranks, identities, machine_of)

    def list_unranked() -> dict[int, Path]:
        ranked = {device.report for device in ranks}
        return {
            report: identity.path
            for report, identity in enumerate(identities)
            if report not in ranked and len(gpu_processes(identity)) <= 1
        }

    def add(rank_of: dict[int, int], source: str) -> None:
        ranks.update(
            (device, Rank(rank_of[device.report], source, None))
            for device in devices
            if device.report in rank_of
        )

    if rank_from is not None:
        add(read_ranks(list_unranked(), rank_from), "--rank-from")
    if not _has_repeated_process(identities, machine_of):
        used = [rank.rank for rank in ranks.values()]
        add(guess_ranks(list_unranked(), used), "file name")
        if not ranks:
            add(_number_files(identities), FILE_ORDER)
    return ranks


def is_file_order(ranks: Mapping[ProcessDevice, Rank]) -> bool:
    """Return whether ranks are only guessed from the order of the files."""
    return any(rank.source == FILE_ORDER for rank in ranks.values())


def _find_recorded(device: ProcessDevice, identity: Identity) -> Rank | None:
    """Find the rank of a device in its report: of the device, of its process, or of the only process."""
    ranks = identity.ranks.rows(named=True)  # a few, for which a query takes longer
    of_process = [row for row in ranks if row["process_key"] == device.process_key]
    of_device = [row for row in of_process if row["device_id"] == device.device_id]
    is_only_device = identity.devices["process_key"].to_list().count(device.process_key) <= 1
    candidates = [of_device, [row for row in of_process if row["device_id"] is None]]
    if is_only_device:
        candidates.append(of_process)
    if len(gpu_processes(identity)) <= 1:
        candidates.append([row for row in ranks if row["process_key"] is None])
    if device.process_key is None:
        candidates.append(ranks)
    for candidate in candidates:
        if len(candidate) == 1:
            (row,) = candidate
            return _check_rank(Rank(row["rank"], row["rank_source"], row["world_size"]))
    return None


def _check_rank(rank: Rank) -> Rank | None:
    """Return a rank that a run may have; the model has warned of others."""
    size = rank.world_size if rank.world_size is not None and 0 < rank.world_size <= MOST_RANKS else None
    return Rank(rank.rank, rank.source, size) if 0 <= rank.rank < MOST_RANKS else None


def _drop_group_ranks(
    ranks: dict[ProcessDevice, Rank], identities: Sequence[Identity], machine_of: dict[int, int]
) -> dict[ProcessDevice, Rank]:
    """Drop ranks of NCCL unless all are of the communicator of all ranks: others are of communicators of groups.

    A process without its rank of NCCL has the rank of its launcher, if nsys launched only this process.
    """
    of_nccl = {device: rank for device, rank in ranks.items() if rank.source == "NCCL"}
    size = max((rank.world_size or 0 for rank in of_nccl.values()), default=0)
    owners: dict[int, set[tuple[int, int | None, int | None]]] = {}
    for device, rank in of_nccl.items():
        if rank.world_size == size:
            owners.setdefault(rank.rank, set()).add((machine_of[device.report], *device[1:]))
    is_of_all = all(len(processes) == 1 for processes in owners.values())
    kept = dict(ranks)
    for device, rank in of_nccl.items():
        if is_of_all and rank.world_size == size:
            continue
        del kept[device]
        identity = identities[device.report]
        of_launcher = find_rank(identity.session.launcher) if len(gpu_processes(identity)) <= 1 else None
        if of_launcher is not None and (checked := _check_rank(Rank(*of_launcher))) is not None:
            kept[device] = checked
    return kept


def _has_repeated_process(identities: Sequence[Identity], machine_of: dict[int, int]) -> bool:
    """Whether a process is in several reports; then numbers in names of files count captures."""
    keys = [
        (machine_of[report], key)
        for report, identity in enumerate(identities)
        for key in gpu_processes(identity)
    ]
    return len(set(keys)) < len(keys)


def _number_files(identities: Sequence[Identity]) -> dict[int, int]:
    """Number reports in natural order; only several reports of one run, with one GPU process each."""
    is_run = len(split_runs([identity.session for identity in identities])) <= 1
    if len(identities) < 2 or not is_run or any(len(gpu_processes(identity)) != 1 for identity in identities):
        return {}
    ordered = _sort_naturally(identities)
    return {report: number for number, report in enumerate(ordered)}


def _sort_naturally(identities: Sequence[Identity]) -> Iterable[int]:
    paths = [str(identity.path) for identity in identities]
    return sorted(range(len(paths)), key=lambda report: (natural_key(paths[report]), paths[report]))

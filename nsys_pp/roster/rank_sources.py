"""The rank of every process among all reports: what reports say, then what names of files say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import polars as pl

from nsys_pp.arrays.natural_sort import natural_key
from nsys_pp.frames.launcher import find_rank
from nsys_pp.frames.roster import Identity, Who
from nsys_pp.roster.file_names import guess_ranks, read_ranks
from nsys_pp.roster.identity import gpu_processes, list_who
from nsys_pp.roster.machines import Machine
from nsys_pp.roster.runs import split_runs


class Rank(NamedTuple):
    """A rank, and where it was learned."""

    rank: int
    source: str
    world_size: int | None  # None where unknown


def find_ranks(
    identities: Sequence[Identity], machines: Sequence[Machine], *, rank_from: str | None
) -> dict[Who, Rank]:
    """Find the rank of every process that has one.

    Args:
        identities: All reports.
        machines: Theirs.
        rank_from: The user's own pattern for names of files.

    Raises:
        NsysPPError: `rank_from` finds no ranks.
        ValueError: `rank_from` is no regular expression with a group.
    """
    rows = list_who(identities)
    ranks = {who: rank for who in rows if (rank := _look_up(who, identities[who.report])) is not None}
    machine_of = {report: place for place, machine in enumerate(machines) for report in machine.reports}
    ranks = _doubt_groups(ranks, identities, machine_of)

    def unnamed() -> list[int]:
        named = {who.report for who in ranks}
        alone = [place for place, one in enumerate(identities) if len(gpu_processes(one)) <= 1]
        return [place for place in alone if place not in named]

    def add(found: dict[int, int], source: str) -> None:
        told = {who: Rank(found[who.report], source, None) for who in rows if who.report in found}
        ranks.update(told)

    if rank_from is not None:
        add(read_ranks({place: identities[place].path for place in unnamed()}, rank_from), "--rank-from")
    if not _is_captured_again(identities, machine_of):
        taken = [rank.rank for rank in ranks.values()]
        add(guess_ranks({place: identities[place].path for place in unnamed()}, taken), "file name")
        if not ranks:
            add(_count_files(identities), "file order")
    return ranks


def _look_up(who: Who, one: Identity) -> Rank | None:
    """Take what the report says of a process's device, of the process, or of its one process."""
    said = one.ranks
    of_process = said.filter(pl.col("process_key").eq_missing(pl.lit(who.process_key, dtype=pl.Int64)))
    of_device = of_process.filter(pl.col("device_id").eq_missing(pl.lit(who.device_id, dtype=pl.Int32)))
    is_only_device = one.devices["process_key"].to_list().count(who.process_key) <= 1
    candidates = [of_device, of_process.filter(pl.col("device_id").is_null())]
    if is_only_device:
        candidates.append(of_process)
    if len(gpu_processes(one)) <= 1:
        candidates.append(said.filter(pl.col("process_key").is_null()))
    if who.process_key is None:
        candidates.append(said)
    for found in candidates:
        if found.height == 1:
            row = found.row(0, named=True)
            return Rank(row["rank"], row["rank_source"], row["world_size"])
    return None


def _doubt_groups(
    ranks: dict[Who, Rank], identities: Sequence[Identity], machine_of: dict[int, int]
) -> dict[Who, Rank]:
    """Believe NCCL only where all name one communicator's ranks: else it made communicators of groups.

    Whose rank is not believed has that of its launcher, where nsys launched just it.
    """
    told = {who: rank for who, rank in ranks.items() if rank.source == "NCCL"}
    size = max((rank.world_size or 0 for rank in told.values()), default=0)
    owners: dict[int, set[tuple[int, int | None, int | None]]] = {}
    for who, rank in told.items():
        if rank.world_size == size:
            owners.setdefault(rank.rank, set()).add((machine_of[who.report], *who[1:]))
    is_of_all = all(len(processes) == 1 for processes in owners.values())
    believed = dict(ranks)
    for who, rank in told.items():
        if is_of_all and rank.world_size == size:
            continue
        del believed[who]
        one = identities[who.report]
        launched = find_rank(one.session.launcher) if len(gpu_processes(one)) <= 1 else None
        if launched is not None:
            believed[who] = Rank(*launched)
    return believed


def _is_captured_again(identities: Sequence[Identity], machine_of: dict[int, int]) -> bool:
    """Whether a process is in several reports: then numbers in names of files count captures."""
    keys = [(machine_of[place], key) for place, one in enumerate(identities) for key in gpu_processes(one)]
    return len(set(keys)) < len(keys)


def _count_files(identities: Sequence[Identity]) -> dict[int, int]:
    """Number reports in natural order, if there are several of one GPU process each, of one run."""
    is_run = len(split_runs([one.session for one in identities])) <= 1
    if len(identities) < 2 or not is_run or any(len(gpu_processes(one)) != 1 for one in identities):
        return {}
    ordered = _sort_naturally(identities)
    return {place: number for number, place in enumerate(ordered)}


def _sort_naturally(identities: Sequence[Identity]) -> Iterable[int]:
    paths = [str(one.path) for one in identities]
    return sorted(range(len(paths)), key=lambda place: (natural_key(paths[place]), paths[place]))

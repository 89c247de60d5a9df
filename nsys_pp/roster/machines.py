"""Which reports were recorded on one machine, and what to call it.

A hardware id is one machine, and so is a GPU, by its uuid. Reports of one host name are of one machine
unless something speaks against it; containers often share a name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys_pp.arrays.natural_sort import natural_key
from nsys_pp.frames.ids import find_machine_folder, strip_uuid
from nsys_pp.frames.launcher import list_visible
from nsys_pp.frames.roster import Identity
from nsys_pp.roster.identity import capture_window, gpu_processes

_SHORT = 8  # letters of an id that are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine of a run."""

    label: str  # no other machine has it
    source: str  # what told which it is: "hostname", "hardware id", "folder", "GPU uuids", "file name", ...
    hostname: str | None
    reports: tuple[int, ...]  # places among the reports


class _Facts(NamedTuple):
    """What one report, or several of one machine, say of their machine."""

    reports: tuple[int, ...]
    paths: tuple[Path, ...]
    hostnames: frozenset[str]
    hardware_ids: frozenset[str]
    folders: frozenset[str]
    uuids: frozenset[str]
    places: frozenset[tuple[str, str]]  # (bus location, uuid) of listed GPUs
    processes: frozenset[int]  # that used a GPU
    captures: frozenset[tuple[int, int, int]]  # (process, start, end)


def tell_machines(identities: Sequence[Identity]) -> list[Machine]:
    """Tell the machines of all reports apart.

    One machine: equal hardware ids; a GPU that both list. Equal host names also, unless the hardware
    ids differ, or the `machine*` folders, or two GPUs are at one place of the bus (or share no GPU,
    where places are unknown), or one process id was captured twice at one time. A report that fits two
    machines of its name that are told apart joins neither. The result does not depend on the order of
    reports.

    Returns:
        The machines in natural order of their labels.
    """
    groups = _link([_gather(place, one) for place, one in enumerate(identities)])
    by_name: dict[str, list[_Facts]] = {}
    for group in groups:
        by_name.setdefault(_base(group)[0], []).append(group)
    machines: list[Machine] = []
    for name, alike in by_name.items():
        machines += _label(name, _merge(alike))
    return sorted(machines, key=lambda machine: (natural_key(machine.label), machine.label))


def _gather(place: int, one: Identity) -> _Facts:
    session, folder, window = one.session, find_machine_folder(one.path), capture_window(one.session)
    parts = {strip_uuid(entry) for entry in list_visible(session.launcher) if entry.startswith("MIG")}
    known = one.gpus.drop_nulls(["uuid", "bus_location"])
    known = known.filter(pl.col("bus_location").is_unique(), ~pl.col("uuid").is_in(parts))  # whole GPUs
    uuids = set(pl.concat([one.gpus["uuid"], one.devices["uuid"]]).drop_nulls()) - parts
    processes = frozenset(gpu_processes(one))
    return _Facts(
        reports=(place,),
        paths=(one.path,),
        hostnames=_known(session.hostname),
        hardware_ids=_known(session.hardware_id),
        folders=_known(folder),
        uuids=frozenset(uuids),
        places=frozenset(known.select(pl.col("bus_location").str.to_lowercase(), "uuid").rows()),
        processes=processes,
        captures=frozenset((key, *window) for key in processes if window is not None),
    )


def _known(name: str | None) -> frozenset[str]:
    return frozenset() if name is None else frozenset({name})


def _join(parts: Sequence[_Facts]) -> _Facts:
    return _Facts(
        reports=tuple(report for part in parts for report in part.reports),
        paths=tuple(path for part in parts for path in part.paths),
        hostnames=frozenset().union(*(part.hostnames for part in parts)),
        hardware_ids=frozenset().union(*(part.hardware_ids for part in parts)),
        folders=frozenset().union(*(part.folders for part in parts)),
        uuids=frozenset().union(*(part.uuids for part in parts)),
        places=frozenset().union(*(part.places for part in parts)),
        processes=frozenset().union(*(part.processes for part in parts)),
        captures=frozenset().union(*(part.captures for part in parts)),
    )


def _link(facts: Sequence[_Facts]) -> list[_Facts]:
    """Join what shares a hardware id, and then what shares a GPU unless hardware ids differ."""
    by_id = _connect(facts, lambda one: one.hardware_ids)
    linked: list[_Facts] = []
    for group in _connect(by_id, lambda one: one.uuids):
        if len(group.hardware_ids) <= 1:
            linked.append(group)
        else:
            linked += [part for part in by_id if set(part.reports) <= set(group.reports)]
    return linked


def _connect(facts: Sequence[_Facts], keys_of: Callable[[_Facts], frozenset[str]]) -> list[_Facts]:
    """Join what is connected by common keys."""
    owner: dict[str, int] = {}
    leader = list(range(len(facts)))

    def find(place: int) -> int:
        while leader[place] != place:
            leader[place] = place = leader[leader[place]]
        return place

    for place, one in enumerate(facts):
        for key in keys_of(one):
            leader[find(place)] = find(owner.setdefault(key, place))
    groups: dict[int, list[_Facts]] = {}
    for place, one in enumerate(facts):
        groups.setdefault(find(place), []).append(one)
    return [_join(group) for group in groups.values()]


def _merge(alike: list[_Facts]) -> list[_Facts]:
    """Join those of one name that nothing speaks against."""
    against = np.array([[_differ(one, other) for other in alike] for one in alike], dtype=np.float32)
    if not against.any():
        return [_join(alike)]
    fits = 1 - against
    np.fill_diagonal(fits, 0)
    # fits two that do not fit each other
    is_torn = ((fits @ against) * fits).any(axis=1)
    merged: list[_Facts] = []
    for side in (np.flatnonzero(~is_torn), np.flatnonzero(is_torn)):
        merged += _merge_clear([alike[place] for place in side], fits[np.ix_(side, side)])
    return merged


def _merge_clear(members: list[_Facts], fits: NDArray[np.float32]) -> list[_Facts]:
    """Join those that fit the same others; where fitting does not carry over, each stays alone."""
    np.fill_diagonal(fits, 1)
    is_clear = all((fits[place] == fits[fits[place] > 0]).all() for place in range(len(members)))
    if not is_clear:
        return members
    groups: dict[bytes, list[_Facts]] = {}
    for one, row in zip(members, fits, strict=True):
        groups.setdefault(row.tobytes(), []).append(one)
    return [_join(group) for group in groups.values()]


def _differ(one: _Facts, other: _Facts) -> bool:
    """Whether something speaks against two groups of one name being of one machine."""
    if one is other or one.uuids & other.uuids:
        return one is not other and _are_apart(one.hardware_ids, other.hardware_ids)
    if _are_apart(one.hardware_ids, other.hardware_ids) or _are_apart(one.folders, other.folders):
        return True
    taken = dict(one.places)
    if any(taken.get(place, uuid) != uuid for place, uuid in other.places):
        return True
    if _are_apart(one.uuids, other.uuids) and not (one.places and other.places):
        return True
    return not one.processes.isdisjoint(other.processes) and any(
        key == its_key and start < its_end and its_start < end
        for key, start, end in one.captures
        for its_key, its_start, its_end in other.captures
    )


def _are_apart(one: frozenset[str], other: frozenset[str]) -> bool:
    return bool(one and other and not one & other)


def _base(facts: _Facts) -> tuple[str, str]:
    """Give the name that a machine has by itself, and its source."""
    named = (
        (facts.hostnames, "hostname"),
        (facts.hardware_ids, "hardware id"),
        (facts.folders, "folder"),
        ({path.stem for path in facts.paths}, "file name"),
    )
    return next(
        (min(names, key=lambda name: (natural_key(name), name)), source) for names, source in named if names
    )


def _label(name: str, machines: list[_Facts]) -> list[Machine]:
    """Label machines of one name: where there are several, by what tells each from the others."""
    if len(machines) == 1:
        return [_machine(machines[0], name, _base(machines[0])[1])]
    machines = sorted(
        machines, key=lambda one: min((natural_key(str(path)), str(path)) for path in one.paths)
    )
    signs = [_tell_apart(one, [other for other in machines if other is not one]) for one in machines]
    labelled = []
    for number, (one, (sign, source)) in enumerate(zip(machines, signs, strict=True), start=1):
        is_alone = sign and [other for other, _ in signs].count(sign) == 1
        labelled.append(_machine(one, f"{name} ({sign if is_alone else number})", source))
    return labelled


def _tell_apart(one: _Facts, others: list[_Facts]) -> tuple[str, str]:
    """Give what one machine has and no other of its name, and what that is."""
    for kind, names, theirs in (
        ("folder", one.folders, [other.folders for other in others]),
        ("hardware id", one.hardware_ids, [other.hardware_ids for other in others]),
        ("GPU uuids", one.uuids, [other.uuids for other in others]),
    ):
        if names and all(names.isdisjoint(other) for other in theirs):
            first = min(names, key=lambda name: (natural_key(name), name))
            return (first if kind == "folder" else first[:_SHORT]), kind
    return "", "process ids" if one.processes and one.hostnames else "file name"


def _machine(facts: _Facts, label: str, source: str) -> Machine:
    hostname = min(facts.hostnames, key=lambda name: (natural_key(name), name), default=None)
    return Machine(label=label, source=source, hostname=hostname, reports=tuple(sorted(facts.reports)))

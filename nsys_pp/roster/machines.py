"""Machines of a run: groups of reports, and their labels.

Reports with the same hardware id, or with the same GPU by uuid, come from one machine. Reports that share a
hostname come from one machine unless other facts contradict it: containers often share a hostname.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.arrays.natural_sort import natural_key
from nsys_pp.frames.ids import find_machine_folder, list_visible, strip_uuid
from nsys_pp.frames.roster import Identity, capture_window
from nsys_pp.roster.identity import gpu_processes

_SHORT = 8  # characters of an id in a label


class Machine(Struct, frozen=True, kw_only=True):
    """One machine of a run."""

    label: str  # unique
    source: str  # of the label: "hostname", "hardware id", "folder", "GPU uuids", "file name", ...
    hostname: str | None
    reports: tuple[int, ...]  # indices


class _Facts(NamedTuple):
    """Facts about the machine of one or several reports."""

    reports: tuple[int, ...]
    paths: tuple[Path, ...]
    hostnames: frozenset[str]
    hardware_ids: frozenset[str]
    folders: frozenset[str]
    uuids: frozenset[str]
    slots: frozenset[tuple[str, str]]  # (bus location, uuid) of listed GPUs
    processes: frozenset[int]  # with a GPU
    captures: frozenset[tuple[int, int, int]]  # (process, start, end)


def find_machines(identities: Sequence[Identity]) -> list[Machine]:
    """Group reports by machine.

    Reports come from one machine if they have the same hardware id, or list the same GPU; also if they have the
    same hostname, unless one of these contradicts it: different hardware ids; different `machine*` folders;
    different GPUs at one bus location (or no common GPU, where locations are unknown); captures of one process id
    that overlap in time. A report that fits two machines of its hostname that contradict each other joins neither.
    The result does not depend on the order of reports.

    Returns:
        The machines in natural order of their labels.
    """
    groups = _link([_gather_facts(report, identity) for report, identity in enumerate(identities)])
    by_name: dict[str, list[_Facts]] = {}
    for group in groups:
        by_name.setdefault(_name_machine(group)[0], []).append(group)
    machines: list[Machine] = []
    for name, groups in by_name.items():
        machines += _label(name, _merge(groups))
    return sorted(machines, key=lambda machine: (natural_key(machine.label), machine.label))


def _gather_facts(report: int, identity: Identity) -> _Facts:
    session, folder = identity.session, find_machine_folder(identity.path)
    window = capture_window(session)
    parts = {strip_uuid(entry) for entry in list_visible(session.launcher) if entry.startswith("MIG")}
    listed = zip(identity.gpus["bus_location"].to_list(), identity.gpus["uuid"].to_list(), strict=True)
    gpus = [(bus, uuid) for bus, uuid in listed if bus is not None and uuid is not None]
    gpus_at = Counter(bus for bus, _ in gpus)
    uuids = {*identity.gpus["uuid"].to_list(), *identity.devices["uuid"].to_list()} - {None, *parts}
    processes = frozenset(gpu_processes(identity))
    return _Facts(
        reports=(report,),
        paths=(identity.path,),
        hostnames=_as_set(session.hostname),
        hardware_ids=_as_set(session.hardware_id),
        folders=_as_set(folder),
        uuids=frozenset(uuids),
        slots=frozenset(  # of whole GPUs
            (bus.lower(), uuid) for bus, uuid in gpus if gpus_at[bus] == 1 and uuid not in parts
        ),
        processes=processes,
        captures=frozenset((key, *window) for key in processes if window is not None),
    )


def _as_set(name: str | None) -> frozenset[str]:
    return frozenset() if name is None else frozenset({name})


def _join(parts: Sequence[_Facts]) -> _Facts:
    return _Facts(
        reports=tuple(report for part in parts for report in part.reports),
        paths=tuple(path for part in parts for path in part.paths),
        hostnames=frozenset().union(*(part.hostnames for part in parts)),
        hardware_ids=frozenset().union(*(part.hardware_ids for part in parts)),
        folders=frozenset().union(*(part.folders for part in parts)),
        uuids=frozenset().union(*(part.uuids for part in parts)),
        slots=frozenset().union(*(part.slots for part in parts)),
        processes=frozenset().union(*(part.processes for part in parts)),
        captures=frozenset().union(*(part.captures for part in parts)),
    )


def _link(facts: Sequence[_Facts]) -> list[_Facts]:
    """Join groups that share a hardware id, then groups that share a GPU unless hardware ids differ."""
    by_id = _connect(facts, lambda group: group.hardware_ids)
    linked: list[_Facts] = []
    for group in _connect(by_id, lambda group: group.uuids):
        if len(group.hardware_ids) <= 1:
            linked.append(group)
        else:
            linked += [part for part in by_id if set(part.reports) <= set(group.reports)]
    return linked


def _connect(facts: Sequence[_Facts], keys_of: Callable[[_Facts], frozenset[str]]) -> list[_Facts]:
    """Join the groups that are connected by common keys."""
    owner: dict[str, int] = {}
    root = list(range(len(facts)))

    def find_root(index: int) -> int:
        while root[index] != index:
            root[index] = index = root[root[index]]
        return index

    for index, own in enumerate(facts):
        for key in keys_of(own):
            root[find_root(index)] = find_root(owner.setdefault(key, index))
    groups: dict[int, list[_Facts]] = {}
    for index, own in enumerate(facts):
        groups.setdefault(find_root(index), []).append(own)
    return [_join(group) for group in groups.values()]


def _merge(groups: list[_Facts]) -> list[_Facts]:
    """Join groups of one name unless they contradict each other."""
    contradicts = np.array([[_differ(a, b) for b in groups] for a in groups], dtype=np.float32)
    if not contradicts.any():
        return [_join(groups)]
    fits = 1 - contradicts
    np.fill_diagonal(fits, 0)
    # fits two groups that contradict each other
    is_ambiguous = ((fits @ contradicts) * fits).any(axis=1)
    merged: list[_Facts] = []
    for side in (np.flatnonzero(~is_ambiguous), np.flatnonzero(is_ambiguous)):
        merged += _merge_equal([groups[index] for index in side], fits[np.ix_(side, side)])
    return merged


def _merge_equal(members: list[_Facts], fits: NDArray[np.float32]) -> list[_Facts]:
    """Join groups that fit the same groups; if fitting is not transitive, join none."""
    np.fill_diagonal(fits, 1)
    is_transitive = all((row == fits[row > 0]).all() for row in fits)
    if not is_transitive:
        return members
    groups: dict[bytes, list[_Facts]] = {}
    for member, row in zip(members, fits, strict=True):
        groups.setdefault(row.tobytes(), []).append(member)
    return [_join(group) for group in groups.values()]


def _differ(a: _Facts, b: _Facts) -> bool:
    """Whether facts of two groups of one name contradict a common machine."""
    if a is b or a.uuids & b.uuids:
        return a is not b and _are_disjoint(a.hardware_ids, b.hardware_ids)
    if _are_disjoint(a.hardware_ids, b.hardware_ids) or _are_disjoint(a.folders, b.folders):
        return True
    uuid_at = dict(a.slots)
    if any(uuid_at.get(bus, uuid) != uuid for bus, uuid in b.slots):
        return True
    if _are_disjoint(a.uuids, b.uuids) and not (a.slots and b.slots):
        return True
    return not a.processes.isdisjoint(b.processes) and any(
        a_key == b_key and a_start < b_end and b_start < a_end
        for a_key, a_start, a_end in a.captures
        for b_key, b_start, b_end in b.captures
    )


def _are_disjoint(a: frozenset[str], b: frozenset[str]) -> bool:
    """Whether both sets have values, and no common one."""
    return bool(a and b and not a & b)


def _name_machine(facts: _Facts) -> tuple[str, str]:
    """Return the name of a machine, perhaps not unique, and its source."""
    candidates = (
        (facts.hostnames, "hostname"),
        (facts.hardware_ids, "hardware id"),
        (facts.folders, "folder"),
        ({path.stem for path in facts.paths}, "file name"),
    )
    return next(
        (min(names, key=lambda name: (natural_key(name), name)), source)
        for names, source in candidates
        if names
    )


def _label(name: str, machines: list[_Facts]) -> list[Machine]:
    """Label machines of one name; several ones by a fact that distinguishes each, else by number."""
    if len(machines) == 1:
        return [_machine(machines[0], name, _name_machine(machines[0])[1])]
    machines = sorted(
        machines, key=lambda machine: min((natural_key(str(path)), str(path)) for path in machine.paths)
    )
    facts = [_find_distinct_fact(own, [other for other in machines if other is not own]) for own in machines]
    labelled = []
    for number, (machine, (fact, source)) in enumerate(zip(machines, facts, strict=True), start=1):
        is_unique = fact and [other for other, _ in facts].count(fact) == 1
        labelled.append(_machine(machine, f"{name} ({fact if is_unique else number})", source))
    return labelled


def _find_distinct_fact(own: _Facts, others: list[_Facts]) -> tuple[str, str]:
    """Find a fact that distinguishes a machine from others of its name, and the kind of the fact."""
    for kind, names, names_of_others in (
        ("folder", own.folders, [other.folders for other in others]),
        ("hardware id", own.hardware_ids, [other.hardware_ids for other in others]),
        ("GPU uuids", own.uuids, [other.uuids for other in others]),
    ):
        if names and all(names.isdisjoint(other) for other in names_of_others):
            first = min(names, key=lambda name: (natural_key(name), name))
            return (first if kind == "folder" else first[:_SHORT]), kind
    return "", "process ids" if own.processes and own.hostnames else "file name"


def _machine(facts: _Facts, label: str, source: str) -> Machine:
    hostname = min(facts.hostnames, key=lambda name: (natural_key(name), name), default=None)
    return Machine(label=label, source=source, hostname=hostname, reports=tuple(sorted(facts.reports)))

"""Machines of a run, and the physical GPUs of each."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from nsys_pp.arrays.names import natural_key
from nsys_pp.arrays.search import group_pairs
from nsys_pp.frames.ids import find_machine_folder, strip_uuid
from nsys_pp.frames.launchers import find_local_rank, list_visible
from nsys_pp.frames.roster import Identity, ProcessDevice, capture_window
from nsys_pp.roster.identity import gpu_processes

_UNRANKED = 1 << 40  # after all ranks
_SHORT = 8  # characters of a uuid in a label
_Key = tuple[str, object, int]  # shared by the devices of one GPU


class DeviceGpu(Struct, frozen=True, kw_only=True):
    """A device of a process, and its GPU."""

    report: int  # index of the report
    process_key: int
    device_id: int
    gpu: str  # label of the GPU, or of a part of it; unique in the machine
    number: int  # of the GPU, by the order of `nvidia-smi` where that is known
    name: str | None
    uuid: str | None
    bus_location: str | None


class _Device(Struct, frozen=True, kw_only=True):
    gpu: DeviceGpu  # without its label
    listed: int | None  # number in the list of visible devices
    preferred: int  # number within its report
    rank: int | None
    is_recorded: bool  # the report identifies the GPU; else only the ordinal is known
    is_contested: bool  # claimed by a process of another rank as well
    order: tuple[int, str]  # in which free numbers are assigned


def assign_gpus(
    identities: Sequence[Identity], reports: Sequence[int], ranks: Mapping[ProcessDevice, int]
) -> list[DeviceGpu]:
    """Assign each device of a machine to a GPU, and number the GPUs.

    Two devices are one GPU if they have the same uuid or the same bus location. GPUs are numbered as
    `nvidia-smi` numbers them: along the bus, among all GPUs in any report of the machine. A GPU without a
    known bus location has its number in `CUDA_VISIBLE_DEVICES`; else its ordinal, if it is the only one with
    it; else, with one device 0 per report, its rank on the machine (`LOCAL_RANK`, `SLURM_LOCALID`, ...); else
    the next free number. If only the ordinal is known, processes of one report with the same ordinal share a
    GPU; processes of different reports do not, unless they are one process.

    Args:
        identities: All reports.
        reports: Indices of the reports of the machine.
        ranks: Ranks of processes and devices; lower ranks get lower free numbers.
    """
    buses = _list_buses(identities, reports)
    devices = [device for report in reports for device in _list_devices(identities, report, ranks)]
    devices = _contest([_find_bus(device, buses) for device in devices])
    on_bus = [device for device in devices if device.gpu.bus_location is not None]
    others = [device for device in devices if device.gpu.bus_location is None]
    numbered = [*_number_along_bus(on_bus, buses)]
    return [*numbered, *_number_others(others, numbered, identities)]


def _list_buses(identities: Sequence[Identity], reports: Iterable[int]) -> dict[str, set[str]]:
    """List the bus locations of the GPUs of a machine, in order, with their uuids."""
    buses: dict[str, set[str]] = defaultdict(set)
    for report in reports:
        identity = identities[report]
        known = (*identity.gpus[["bus_location", "uuid"]].rows(), *identity.devices[["bus_location"]].rows())
        for bus, *uuid in known:
            if bus is not None:
                buses[bus.lower()] |= {*uuid} - {None}
    return {bus: buses[bus] for bus in sorted(buses)}


def _list_devices(
    identities: Sequence[Identity], report: int, ranks: Mapping[ProcessDevice, int]
) -> Iterable[_Device]:
    identity = identities[report]
    visible = list_visible(identity.session.launcher)
    columns = ("process_key", "device_id", "gpu", "name", "uuid", "bus_location", "is_recorded")
    values = (identity.devices[name].to_list() for name in columns)
    for process_key, device_id, label, name, uuid, bus, is_recorded in zip(*values, strict=True):
        entry = visible[device_id] if 0 <= device_id < len(visible) else ""
        number = re.search(r"\d+", label or "")
        is_part = entry.startswith("MIG") and uuid == strip_uuid(entry)
        listed = int(entry) if entry.isdecimal() else None
        in_report = int(number[0]) if number else device_id
        device = ProcessDevice(report, process_key, device_id)
        yield _Device(
            gpu=DeviceGpu(
                report=report,
                process_key=process_key,
                device_id=device_id,
                gpu="MIG" if is_part else "GPU",
                number=0,
                name=name,
                uuid=uuid,
                bus_location=bus.lower() if bus else None,
            ),
            listed=listed,
            preferred=in_report if listed is None else listed,
            rank=ranks.get(device),
            is_recorded=is_recorded or listed is not None,
            is_contested=False,
            order=(ranks.get(device, _UNRANKED), str(identity.path)),
        )


def _contest(devices: list[_Device]) -> list[_Device]:
    """Remove the GPU of devices that only the ordinal identifies, if devices of several ranks claim it."""
    claims: dict[tuple[str | None, int], set[int]] = defaultdict(set)
    for device in devices:
        if not device.is_recorded and device.rank is not None:
            claims[device.gpu.bus_location, device.preferred].add(device.rank)
    return [
        replace(device, is_contested=True, gpu=replace(device.gpu, uuid=None, bus_location=None))
        if not device.is_recorded and len(claims[device.gpu.bus_location, device.preferred]) > 1
        else device
        for device in devices
    ]


def _find_bus(device: _Device, buses: dict[str, set[str]]) -> _Device:
    """Find the bus location in other reports, by uuid or by the number in the list of visible devices."""
    gpu = device.gpu
    bus = gpu.bus_location or next((bus for bus, uuids in buses.items() if gpu.uuid in uuids), None)
    if bus is None and gpu.uuid is None and device.listed is not None and device.listed < len(buses):
        bus = [*buses][device.listed]
    return replace(device, gpu=replace(gpu, bus_location=bus))


def _number_along_bus(devices: list[_Device], buses: dict[str, set[str]]) -> Iterable[DeviceGpu]:
    """Number GPUs by bus location; several uuids at one location are parts of one GPU."""
    numbers = {bus: number for number, bus in enumerate(buses)}
    parts: dict[str, set[str]] = defaultdict(set)
    for device in devices:
        bus, uuid = device.gpu.bus_location or "", device.gpu.uuid
        is_part = bool(buses[bus]) and buses[bus] != {uuid}
        if uuid is not None and (is_part or device.gpu.gpu == "MIG"):
            parts[bus].add(uuid)
    for device in devices:
        gpu, bus = device.gpu, device.gpu.bus_location or ""
        label = f"GPU {numbers[bus]}"
        if gpu.uuid in parts[bus]:
            label += f" MIG {sorted(parts[bus]).index(gpu.uuid)}"
        uuid = gpu.uuid or (next(iter(buses[bus])) if len(buses[bus]) == 1 else None)
        yield replace(gpu, gpu=label, number=numbers[bus], uuid=uuid)


def _number_others(
    devices: list[_Device], numbered: Sequence[DeviceGpu], identities: Sequence[Identity]
) -> Iterable[DeviceGpu]:
    """Number GPUs without a known bus location."""
    by_key = group_pairs(zip(_find_keys(devices), devices, strict=True))
    preferred = {key: min(device.preferred for device in same) for key, same in by_key.items()}
    if len({*preferred.values()}) < len(preferred):
        preferred = _number_by_local_ranks(by_key, identities) or preferred
    order = {key: min(device.order for device in same) for key, same in by_key.items()}
    ordered = sorted(by_key, key=lambda key: (preferred[key], order[key], str(key)))
    numbers: dict[_Key, int] = {}
    used = {gpu.number for gpu in numbered}
    for key in ordered:
        if preferred[key] not in used:
            numbers[key] = preferred[key]
            used.add(preferred[key])
    free = (number for number in count() if number not in used)
    for key in ordered:
        number = numbers[key] if key in numbers else next(free)
        for gpu in (device.gpu for device in by_key[key]):
            label = f"MIG {(gpu.uuid or '')[:_SHORT]}" if gpu.gpu == "MIG" else f"GPU {number}"
            yield replace(gpu, gpu=label, number=number)


def _find_keys(devices: list[_Device]) -> list[_Key]:
    """Find the key of the GPU of each device.

    Uuid, number in the list of visible devices, or ordinal in a recording.
    """
    group: dict[int, int] = {}  # report -> first report with a common process
    owner: dict[int, int] = {}
    for device in sorted(devices, key=lambda device: device.order):
        report = device.gpu.report
        group.setdefault(report, owner.setdefault(device.gpu.process_key, report))
    claims = {
        (group[device.gpu.report], device.preferred)
        for device in devices
        if device.gpu.uuid is None and device.listed is None and not device.is_contested
    }
    is_shared = len({number for _, number in claims}) < len(claims)

    def key_of(device: _Device) -> _Key:
        gpu, number = device.gpu, device.preferred
        if gpu.uuid is not None:
            return "uuid", gpu.uuid, 0
        if device.is_contested:
            return "rank", gpu.report if device.rank is None else device.rank, number
        if device.listed is not None:
            return "listed", None, device.listed
        return "ordinal", group[gpu.report] if is_shared else None, number

    return [key_of(device) for device in devices]


def _number_by_local_ranks(
    by_key: dict[_Key, list[_Device]], identities: Sequence[Identity]
) -> dict[_Key, int] | None:
    """Number GPUs by the ranks on the machine.

    None unless each GPU is device 0 in all reports of one such rank.
    """
    ranks = {}
    for key, same in by_key.items():
        local = {find_local_rank(identities[device.gpu.report].session.launcher) for device in same}
        if {device.gpu.device_id for device in same} != {0} or len(local) != 1 or key[0] == "listed":
            return None
        ranks[key] = local.pop()
    numbers = {key: rank for key, rank in ranks.items() if rank is not None}
    return numbers if len({*numbers.values()}) == len(ranks) else None


class Machine(Struct, frozen=True, kw_only=True):
    """One machine of a run."""

    label: str  # unique
    source: str  # of the label: "hostname", "hardware id", "folder", "GPU uuids", "file name", ...
    reports: tuple[int, ...]  # indices


class _Facts(NamedTuple):
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

    Reports come from one machine if they have the same hardware id, or list the same GPU; also if they have
    the same hostname, unless one of these contradicts it: different hardware ids; different `machine*`
    folders; different GPUs at one bus location (or no common GPU, where locations are unknown); captures of
    one process id that overlap in time. A report that fits two machines of its hostname that contradict each
    other joins neither. The result does not depend on the order of reports.

    Returns:
        The machines in natural order of their labels.
    """
    groups = _link([_gather_facts(report, identity) for report, identity in enumerate(identities)])
    by_name = group_pairs((_name_machine(group)[0], group) for group in groups)
    machines = [machine for name, groups in by_name.items() for machine in _label(name, _merge(groups))]
    return sorted(machines, key=lambda machine: (natural_key(machine.label), machine.label))


def _gather_facts(report: int, identity: Identity) -> _Facts:
    session, folder = identity.session, find_machine_folder(identity.path)
    window = capture_window(session)
    parts = {strip_uuid(entry) for entry in list_visible(session.launcher) if entry.startswith("MIG")}
    gpus = [slot for slot in identity.gpus[["bus_location", "uuid"]].rows() if None not in slot]
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
    """Join facts about one machine: reports and paths in order, the other facts as sets."""
    reports, paths, *facts = zip(*parts, strict=True)
    return _Facts(
        tuple(chain.from_iterable(reports)),
        tuple(chain.from_iterable(paths)),
        *(frozenset[Any]().union(*values) for values in facts),
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
    owner: dict[str, int] = {}
    root = list(range(len(facts)))

    def find_root(index: int) -> int:
        while root[index] != index:
            root[index] = index = root[root[index]]
        return index

    for index, own in enumerate(facts):
        for key in keys_of(own):
            root[find_root(index)] = find_root(owner.setdefault(key, index))
    groups = group_pairs((find_root(index), own) for index, own in enumerate(facts))
    return [_join(group) for group in groups.values()]


def _merge(groups: list[_Facts]) -> list[_Facts]:
    """Join groups of one name unless they contradict each other."""
    contradicts = np.array([[a is not b and _differ(a, b) for b in groups] for a in groups], dtype=np.float32)
    fits = 1 - contradicts
    np.fill_diagonal(fits, 0)
    # fits two groups that contradict each other
    is_ambiguous = ((fits @ contradicts) * fits).any(axis=1)
    return [
        merged
        for side in (np.flatnonzero(~is_ambiguous), np.flatnonzero(is_ambiguous))
        for merged in _merge_equal([groups[index] for index in side], fits[np.ix_(side, side)])
    ]


def _merge_equal(members: list[_Facts], fits: NDArray[np.float32]) -> list[_Facts]:
    """Join groups that fit the same groups; if fitting is not transitive, join none."""
    np.fill_diagonal(fits, 1)
    if not all((row == fits[row > 0]).all() for row in fits):
        return members
    groups = group_pairs((row.tobytes(), member) for member, row in zip(members, fits, strict=True))
    return [_join(group) for group in groups.values()]


def _differ(a: _Facts, b: _Facts) -> bool:
    """Whether facts of two groups of one name contradict a common machine."""
    if _are_disjoint(a.hardware_ids, b.hardware_ids):
        return True
    if a.uuids & b.uuids:
        return False
    uuid_at = dict(a.slots)
    if _are_disjoint(a.folders, b.folders) or any(uuid_at.get(bus, uuid) != uuid for bus, uuid in b.slots):
        return True
    if a.uuids and b.uuids and not (a.slots and b.slots):
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
        source = _name_machine(machines[0])[1]
        return [Machine(label=name, source=source, reports=tuple(sorted(machines[0].reports)))]
    machines = sorted(
        machines, key=lambda machine: min((natural_key(str(path)), str(path)) for path in machine.paths)
    )
    facts = [_find_distinct_fact(own, [other for other in machines if other is not own]) for own in machines]
    counts = Counter(fact for fact, _ in facts)
    return [
        Machine(
            label=f"{name} ({fact if fact and counts[fact] == 1 else number})",
            source=source,
            reports=tuple(sorted(machine.reports)),
        )
        for number, (machine, (fact, source)) in enumerate(zip(machines, facts, strict=True), start=1)
    ]


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

"""Which GPU of a machine each process's device is, over all reports of the machine."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from nsys_pp.frames.ids import strip_uuid
from nsys_pp.frames.launcher import find_local_rank, list_visible
from nsys_pp.frames.roster import Identity, Who

_UNRANKED = 1 << 40  # behind all that have a rank
_SHORT = 8  # letters of a uuid that are shown
_Key = tuple[str, object, int]  # what devices of one GPU have in common


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A device of a process, and the GPU that it is."""

    report: int  # place among the reports
    process_key: int
    device_id: int
    gpu: str  # one label per GPU, or part of one, of the machine
    number: int  # the GPU's, as `nvidia-smi` counts, as far as that is known
    name: str | None
    uuid: str | None
    bus_location: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Device:
    place: Place  # without its label
    told: int | None  # the number that the list of visible devices gives it
    wished: int  # its number within its report
    rank: int | None
    is_recorded: bool  # the report tells which GPU it is
    is_contested: bool  # by a process of another rank
    order: tuple[int, str]  # where a number must be given, by this


def place_devices(
    identities: Sequence[Identity], reports: Sequence[int], ranks: Mapping[Who, int]
) -> list[Place]:
    """Tell the GPUs of one machine apart and number them.

    Two devices are one GPU if they have one uuid, or one place on the bus. Numbers are those of
    `nvidia-smi`: along the bus, among all GPUs that any report of the machine lists. A GPU whose place
    nobody knows has the number that `CUDA_VISIBLE_DEVICES` gives it; else its ordinal, if no other
    claims that; else, with one device 0 per report, its rank on the machine (`LOCAL_RANK`,
    `SLURM_LOCALID`, ...); else the next free one. Within a report, processes that use one ordinal of
    which nothing more is known share a GPU; over reports they do not, unless it is one process.

    Args:
        identities: All reports.
        reports: Those of the machine, by their place.
        ranks: Of processes and devices; the lower ones get the lower numbers where some must be given.
    """
    buses = _list_buses(identities, reports)
    devices = [device for report in reports for device in _list_devices(identities, report, ranks)]
    devices = _contest([_find_bus(device, buses) for device in devices])
    on_bus = [device for device in devices if device.place.bus_location is not None]
    elsewhere = [device for device in devices if device.place.bus_location is None]
    placed = [*_number_along_bus(on_bus, buses)]
    return [*placed, *_number_others(elsewhere, placed, identities)]


def _list_buses(identities: Sequence[Identity], reports: Iterable[int]) -> dict[str, set[str]]:
    """List the machine's GPUs: places on the bus, in order, with the uuids listed there."""
    buses: dict[str, set[str]] = defaultdict(set)
    for report in reports:
        one = identities[report]
        for bus, uuid in one.gpus.select("bus_location", "uuid").rows():
            if bus:
                buses[bus.lower()] |= {uuid} - {None}
        for bus in one.devices["bus_location"].drop_nulls():
            buses[bus.lower()] |= set()
    return {bus: buses[bus] for bus in sorted(buses)}


def _list_devices(identities: Sequence[Identity], report: int, ranks: Mapping[Who, int]) -> Iterable[_Device]:
    one = identities[report]
    visible = list_visible(one.session.launcher)
    columns = ("process_key", "device_id", "gpu", "name", "uuid", "bus_location", "is_recorded")
    for process_key, device_id, label, name, uuid, bus, is_recorded in one.devices.select(columns).rows():
        entry = visible[device_id] if device_id < len(visible) else ""
        number = re.search(r"\d+", label or "")
        is_part = entry.startswith("MIG") and uuid == strip_uuid(entry)
        place = Place(
            report=report,
            process_key=process_key,
            device_id=device_id,
            gpu="MIG" if is_part else "GPU",
            number=0,
            name=name,
            uuid=uuid,
            bus_location=bus.lower() if bus else None,
        )
        told = int(entry) if entry.isdecimal() else None
        seen = int(number[0]) if number else device_id
        rank = ranks.get(Who(report, process_key, device_id))
        yield _Device(
            place=place,
            told=told,
            wished=seen if told is None else told,
            rank=rank,
            is_recorded=is_recorded or told is not None,
            is_contested=False,
            order=(_UNRANKED if rank is None else rank, str(one.path)),
        )


def _contest(devices: list[_Device]) -> list[_Device]:
    """Take the GPU from those that have it by ordinal alone, where they are of different ranks."""
    claims: dict[tuple[str | None, int], set[int]] = defaultdict(set)
    for one in devices:
        if not one.is_recorded and one.rank is not None:
            claims[one.place.bus_location, one.wished].add(one.rank)
    return [
        replace(one, is_contested=True, place=replace(one.place, uuid=None, bus_location=None))
        if not one.is_recorded and len(claims[one.place.bus_location, one.wished]) > 1
        else one
        for one in devices
    ]


def _find_bus(device: _Device, buses: dict[str, set[str]]) -> _Device:
    """Look up where another report saw the uuid, or the number that the device was given."""
    place = device.place
    bus = place.bus_location
    if bus is None and place.uuid is not None:
        bus = next((bus for bus, uuids in buses.items() if place.uuid in uuids), None)
    if bus is None and place.uuid is None and device.told is not None and device.told < len(buses):
        bus = [*buses][device.told]
    return replace(device, place=replace(place, bus_location=bus))


def _number_along_bus(devices: list[_Device], buses: dict[str, set[str]]) -> Iterable[Place]:
    """Number GPUs by their place; several uuids at one place are its parts."""
    numbers = {bus: number for number, bus in enumerate(buses)}
    parts: dict[str, set[str]] = defaultdict(set)
    for device in devices:
        bus, uuid = device.place.bus_location or "", device.place.uuid
        is_other = bool(buses[bus]) and buses[bus] != {uuid}  # than the whole GPU
        if uuid is not None and (is_other or device.place.gpu == "MIG"):
            parts[bus].add(uuid)
    for device in devices:
        place, bus = device.place, device.place.bus_location or ""
        label = f"GPU {numbers[bus]}"
        if place.uuid in parts[bus]:
            label += f" MIG {sorted(parts[bus]).index(place.uuid)}"
        uuid = place.uuid or (next(iter(buses[bus])) if len(buses[bus]) == 1 else None)
        yield replace(place, gpu=label, number=numbers[bus], uuid=uuid)


def _number_others(
    devices: list[_Device], placed: Sequence[Place], identities: Sequence[Identity]
) -> Iterable[Place]:
    """Number GPUs whose place is unknown."""
    by_key: dict[_Key, list[_Device]] = defaultdict(list)
    for device, key in zip(devices, _find_keys(devices), strict=True):
        by_key[key].append(device)
    wished = {key: min(device.wished for device in same) for key, same in by_key.items()}
    if len({*wished.values()}) < len(wished):
        wished = _ask_local_ranks(by_key, identities) or wished
    ordered = sorted(by_key, key=lambda key: (wished[key], min(one.order for one in by_key[key]), str(key)))
    numbers: dict[_Key, int] = {}
    taken = {place.number for place in placed}
    for key in ordered:
        if wished[key] not in taken:
            numbers[key] = wished[key]
            taken.add(wished[key])
    free = (number for number in count() if number not in taken)
    for key in ordered:
        number = numbers[key] if key in numbers else next(free)
        for place in (one.place for one in by_key[key]):
            label = f"MIG {(place.uuid or '')[:_SHORT]}" if place.gpu == "MIG" else f"GPU {number}"
            yield replace(place, gpu=label, number=number)


def _find_keys(devices: list[_Device]) -> list[_Key]:
    """Say which devices are one GPU: by uuid, by the number told, or by ordinal within what is one recording."""
    group: dict[int, int] = {}  # report -> the first report that has a process in common with it
    owner: dict[int, int] = {}
    for device in sorted(devices, key=lambda one: one.order):
        report = device.place.report
        group.setdefault(report, owner.setdefault(device.place.process_key, report))
    plain = [one for one in devices if one.place.uuid is None and one.told is None and not one.is_contested]
    claims = {(group[one.place.report], one.wished) for one in plain}
    is_shared = len({wish for _, wish in claims}) < len(claims)

    def key_of(device: _Device) -> _Key:
        if device.place.uuid is not None:
            return "uuid", device.place.uuid, 0
        if device.is_contested:
            return "rank", device.place.report if device.rank is None else device.rank, device.wished
        if device.told is not None:
            return "told", None, device.told
        return "ordinal", group[device.place.report] if is_shared else None, device.wished

    return [key_of(device) for device in devices]


def _ask_local_ranks(
    by_key: dict[_Key, list[_Device]], identities: Sequence[Identity]
) -> dict[_Key, int] | None:
    """Take ranks on the machine for numbers, where each GPU is device 0 of reports of one such rank."""
    ranks = {}
    for key, same in by_key.items():
        local = {find_local_rank(identities[one.place.report].session.launcher) for one in same}
        if {one.place.device_id for one in same} != {0} or len(local) != 1 or key[0] == "told":
            return None
        ranks[key] = local.pop()
    known = [rank for rank in ranks.values() if rank is not None]
    is_useful = len(known) == len(ranks) and len(set(known)) == len(known)
    return {key: rank for key, rank in ranks.items() if rank is not None} if is_useful else None

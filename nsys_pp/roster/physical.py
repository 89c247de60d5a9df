"""Physical GPUs of a machine: the GPU of each device of each process, over all reports of the machine."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.frames.ids import find_local_rank, list_visible, strip_uuid
from nsys_pp.frames.roster import Identity, ProcessDevice

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

    Two devices are one GPU if they have the same uuid or the same bus location. GPUs are numbered as `nvidia-smi`
    numbers them: along the bus, among all GPUs in any report of the machine. A GPU without a known bus location
    has its number in `CUDA_VISIBLE_DEVICES`; else its ordinal, if it is the only one with it; else, with one device
    0 per report, its rank on the machine (`LOCAL_RANK`, `SLURM_LOCALID`, ...); else the next free number. If only
    the ordinal is known, processes of one report with the same ordinal share a GPU; processes of different reports
    do not, unless they are one process.

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
        gpus = (identity.gpus[name].to_list() for name in ("bus_location", "uuid"))
        for bus, uuid in zip(*gpus, strict=True):
            if bus:
                buses[bus.lower()] |= {uuid} - {None}
        for bus in identity.devices["bus_location"].to_list():
            if bus is not None:
                buses[bus.lower()] |= set()
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
        gpu = DeviceGpu(
            report=report,
            process_key=process_key,
            device_id=device_id,
            gpu="MIG" if is_part else "GPU",
            number=0,
            name=name,
            uuid=uuid,
            bus_location=bus.lower() if bus else None,
        )
        listed = int(entry) if entry.isdecimal() else None
        in_report = int(number[0]) if number else device_id
        rank = ranks.get(ProcessDevice(report, process_key, device_id))
        yield _Device(
            gpu=gpu,
            listed=listed,
            preferred=in_report if listed is None else listed,
            rank=rank,
            is_recorded=is_recorded or listed is not None,
            is_contested=False,
            order=(_UNRANKED if rank is None else rank, str(identity.path)),
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
    bus = gpu.bus_location
    if bus is None and gpu.uuid is not None:
        bus = next((bus for bus, uuids in buses.items() if gpu.uuid in uuids), None)
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
    by_key: dict[_Key, list[_Device]] = defaultdict(list)
    for device, key in zip(devices, _find_keys(devices), strict=True):
        by_key[key].append(device)
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
    """Find the key of the GPU of each device: uuid, number in the list of visible devices, or ordinal in a recording."""
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
    """Number GPUs by the ranks on the machine; None unless each GPU is device 0 in all reports of one such rank."""
    ranks = {}
    for key, same in by_key.items():
        local = {find_local_rank(identities[device.gpu.report].session.launcher) for device in same}
        if {device.gpu.device_id for device in same} != {0} or len(local) != 1 or key[0] == "listed":
            return None
        ranks[key] = local.pop()
    numbers = {key: rank for key, rank in ranks.items() if rank is not None}
    is_unique = len({*numbers.values()}) == len(ranks)
    return numbers if is_unique else None

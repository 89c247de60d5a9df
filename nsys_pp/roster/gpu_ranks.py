"""Ranks by the order of GPUs, where a report has all processes of a machine and no rank of any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nsys_pp.frames.ids import find_rank
from nsys_pp.frames.roster import GPU_ORDER, MACHINE_ORDER, Identity, ProcessDevice
from nsys_pp.roster.identity import list_process_devices
from nsys_pp.roster.machines import Machine
from nsys_pp.roster.physical import DeviceGpu
from nsys_pp.roster.rank_sources import Rank


def number_gpus(
    identities: Sequence[Identity],
    machines: Sequence[Machine],
    gpus: Mapping[ProcessDevice, DeviceGpu],
    count: int,
) -> dict[ProcessDevice, Rank]:
    """Number GPU processes by machine and GPU, as launchers do that start one process for each GPU.

    Machines are in the order of the ranks of what nsys launched on them (`GPU_ORDER`), else in the natural order of
    their names (`MACHINE_ORDER`), which is only a guess.

    Args:
        identities: All reports.
        machines: Machines of the reports, in natural order.
        gpus: GPU of each device.
        count: Number of ranks of the run.

    Returns:
        Ranks; empty unless every rank has a GPU of its own in these reports.
    """
    devices = list_process_devices(identities)
    machine_of = {report: number for number, machine in enumerate(machines) for report in machine.reports}
    places = {
        device: (machine_of[device.report], gpus[device].number) for device in devices if device in gpus
    }
    if not len(devices) == len(places) == len(set(places.values())) == count:
        return {}
    launched = [
        {find_rank(identities[report].session.launcher) for report in machine.reports} for machine in machines
    ]
    ranks = [ranks.pop() if len(ranks) == 1 else None for ranks in launched]
    nodes = [None if rank is None else rank.rank for rank in ranks]
    if len(machines) == 1 or sorted(node for node in nodes if node is not None) == [*range(len(machines))]:
        source, orders = GPU_ORDER, [node or 0 for node in nodes]
    else:
        source, orders = MACHINE_ORDER, [*range(len(machines))]
    ordered = sorted(devices, key=lambda device: (orders[places[device][0]], places[device][1]))
    return {device: Rank(rank, source, None) for rank, device in enumerate(ordered)}

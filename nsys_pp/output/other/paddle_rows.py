"""Rows of Paddle's timeline: one per GPU, and further rows for shared GPUs and overlapping jobs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.natural_sort import natural_key

STEP_THREAD = 2333
_RANK_LIMIT = 8  # ranks listed in a sentence


class PaddleRow(Struct, frozen=True, kw_only=True):
    """One row, with its names in both files.

    Attributes:
        lane: Lane of its jobs.
        machine: Name of its machine.
        device: Number of its GPU on the machine.
        text: Its thread in the file for Chrome, `GPU2(machine:0)`.
        thread: Its thread in the file for Perfetto.
    """

    lane: int
    machine: str
    device: int
    text: str
    thread: int

    @property
    def title(self) -> str:
        """Name of its thread in the file for Perfetto."""
        return self.text.replace("GPU", "GPU:", 1)


def number_machines(names: Sequence[str]) -> dict[str, int]:
    """Number machines by their names (`machine10` is 10), or in natural order if a name has another form.

    >>> number_machines(["machine10", "machine2"])
    {'machine2': 2, 'machine10': 10}
    >>> number_machines(["node10", "node2"])
    {'node2': 0, 'node10': 1}
    """
    ordered = sorted({*names}, key=natural_key)
    matches = [re.fullmatch(r"machine[-_]?(\d+)", name, re.IGNORECASE) for name in ordered]
    numbers = [int(match[1]) for match in matches if match]
    is_numbered = len({*numbers}) == len(ordered)
    return dict(zip(ordered, numbers if is_numbered else range(len(ordered)), strict=True))


def list_devices(lanes: pl.DataFrame) -> list[int]:
    """List the numbers of all GPUs of `LANES`, in order; numbers of different machines may be equal."""
    return sorted({device for _, device in _group_lanes(lanes)})


def find_rows(lanes: pl.DataFrame, devices: Sequence[int] | None) -> list[PaddleRow]:
    """Build the row of each lane.

    Args:
        lanes: `LANES`.
        devices: Numbers of the GPUs to include, in this order; None includes all.

    Returns:
        Rows by machine and device; threads are numbered as in the tool, except for lanes that share a GPU.
    """
    groups = _group_lanes(lanes)
    machines = number_machines([machine for machine, _ in groups])
    shown = sorted({device for _, device in groups}) if devices is None else [*dict.fromkeys(devices)]
    spare = STEP_THREAD + 1 + len(machines) * len(shown)
    rows = []
    for at, (machine, number) in enumerate(machines.items()):
        of_machine = f"(machine:{number})" if len(machines) > 1 else ""
        for position, device in enumerate(shown):
            sharing = groups.get((machine, device), [])
            for nth, (lane, rank) in enumerate(sharing):
                suffix = f"(process:{nth})" if rank is None else f"(rank:{rank})"
                thread = STEP_THREAD + 1 + at * len(shown) + position
                if nth:
                    thread, spare = spare, spare + 1
                text = f"GPU{device}{of_machine}" + suffix * (len(sharing) > 1)
                rows.append(PaddleRow(lane=lane, machine=machine, device=device, text=text, thread=thread))
    return rows


def find_missing(
    lanes: pl.DataFrame, rows: Sequence[PaddleRow], devices: Sequence[int] | None, jobs: pl.DataFrame
) -> list[str]:
    """List missing ranks, GPUs and jobs, in sentences.

    Args:
        lanes: `LANES`.
        rows: Rows of `find_rows`.
        devices: The selected GPUs.
        jobs: Jobs of the rows; only the column `lane` is read.

    Returns:
        The sentences; empty if nothing is missing.
    """
    notes = []
    ranks = {*lanes["rank"].drop_nulls()}
    if missing := sorted({*range(max(ranks, default=-1) + 1)} - ranks):
        listed = ", ".join(map(str, missing[:_RANK_LIMIT])) + ", ..." * (len(missing) > _RANK_LIMIT)
        notes.append(f"there is no report of rank {listed}")
    present = {(row.machine, row.device) for row in rows}
    for machine in sorted({*lanes["machine"].fill_null("")}, key=natural_key):
        for device in devices or ():
            if (machine, device) not in present:
                notes.append(f"there is no report of GPU {device} of `{machine}`")
    busy = {*jobs["lane"]}
    notes += [f"`{row.text}` has no jobs" for row in rows if row.lane not in busy]
    return notes


def add_overlaps(
    rows: Sequence[PaddleRow], lanes: np.ndarray, numbers: np.ndarray
) -> Mapping[tuple[int, int], PaddleRow]:
    """Add rows for jobs that overlap without nesting.

    Args:
        rows: One row per lane.
        lanes: Lane of each job.
        numbers: Number of each job's row within its lane: 0 for the lane's own row.

    Returns:
        Rows by lane and number within the lane.
    """
    of_lane = {row.lane: row for row in rows}
    numbered = {(row.lane, 0): row for row in rows}
    spare = max((row.thread for row in rows), default=STEP_THREAD) + 1
    for lane, number in sorted({*zip(lanes.tolist(), numbers.tolist(), strict=True)} - {*numbered}):
        row = of_lane[lane]
        numbered[lane, number] = replace(row, text=f"{row.text}(overlap:{number})", thread=spare)
        spare += 1
    return numbered


def _group_lanes(lanes: pl.DataFrame) -> dict[tuple[str, int], list[tuple[int, int | None]]]:
    """List the lanes and ranks of each machine and GPU number."""
    groups: dict[tuple[str, int], list[tuple[int, int | None]]] = {}
    for lane, machine, gpu, device_id, rank in lanes.select(
        "lane", "machine", "gpu", "device_id", "rank"
    ).iter_rows():
        numbered = re.match(r"GPU (\d+)", gpu or "")
        device = int(numbered[1]) if numbered else device_id
        groups.setdefault((machine or "", device), []).append((lane, rank))
    return groups

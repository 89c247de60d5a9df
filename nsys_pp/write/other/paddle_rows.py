"""The rows of Paddle's timeline: a GPU each, and more where one row cannot show what a GPU did."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from nsys_pp.arrays.natural_sort import natural_key

STEP_THREAD = 2333
_MOST_RANKS = 8  # listed in a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddleRow:
    """One row: what both files call it.

    Attributes:
        lane: Whose jobs it shows.
        machine: Name of its machine.
        device: Its GPU's number on its machine.
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
        """What the file for Perfetto says of its thread."""
        return self.text.replace("GPU", "GPU:", 1)


def number_machines(names: Sequence[str]) -> dict[str, int]:
    """Number machines as they are called, `machine10` 10; else as they come in natural order.

    >>> number_machines(["machine10", "machine2"])
    {'machine2': 2, 'machine10': 10}
    >>> number_machines(["node10", "node2"])
    {'node2': 0, 'node10': 1}
    """
    ordered = sorted({*names}, key=natural_key)
    called = [re.fullmatch(r"machine[-_]?(\d+)", name, re.IGNORECASE) for name in ordered]
    numbers = [int(match[1]) for match in called if match]
    is_told = len({*numbers}) == len(ordered)
    return dict(zip(ordered, numbers if is_told else range(len(ordered)), strict=True))


def list_devices(lanes: pl.DataFrame) -> list[int]:
    """List the numbers of all GPUs of `LANES`, in order; numbers of different machines may be equal."""
    return sorted({device for _, device in _find_places(lanes)})


def find_rows(lanes: pl.DataFrame, devices: Sequence[int] | None) -> list[PaddleRow]:
    """Give every lane a row.

    Args:
        lanes: `LANES`.
        devices: Numbers of the GPUs that have rows, in this order; None: all have.

    Returns:
        Rows by machine and device; threads are numbered as in the tool, but for lanes that share a GPU.
    """
    places = _find_places(lanes)
    machines = number_machines([machine for machine, _ in places])
    shown = sorted({device for _, device in places}) if devices is None else [*dict.fromkeys(devices)]
    spare = STEP_THREAD + 1 + len(machines) * len(shown)
    rows = []
    for at, (machine, number) in enumerate(machines.items()):
        of_machine = f"(machine:{number})" if len(machines) > 1 else ""
        for position, device in enumerate(shown):
            sharing = places.get((machine, device), [])
            for nth, (lane, rank) in enumerate(sharing):
                who = f"(process:{nth})" if rank is None else f"(rank:{rank})"
                thread = STEP_THREAD + 1 + at * len(shown) + position
                if nth:
                    thread, spare = spare, spare + 1
                text = f"GPU{device}{of_machine}" + who * (len(sharing) > 1)
                rows.append(PaddleRow(lane=lane, machine=machine, device=device, text=text, thread=thread))
    return rows


def find_missing(
    lanes: pl.DataFrame, rows: Sequence[PaddleRow], devices: Sequence[int] | None, jobs: pl.DataFrame
) -> list[str]:
    """Say in sentences which ranks, GPUs and jobs are not there.

    Args:
        lanes: `LANES`.
        rows: As found.
        devices: The GPUs that were asked for.
        jobs: With `lane`.
    """
    notes = []
    ranks = {*lanes["rank"].drop_nulls()}
    if missing := sorted({*range(max(ranks, default=-1) + 1)} - ranks):
        listed = ", ".join(map(str, missing[:_MOST_RANKS])) + ", ..." * (len(missing) > _MOST_RANKS)
        notes.append(f"there is no report of rank {listed}")
    known = {(row.machine, row.device) for row in rows}
    for machine in sorted({*lanes["machine"].fill_null("")}, key=natural_key):
        for device in devices or ():
            if (machine, device) not in known:
                notes.append(f"there is no report of GPU {device} of `{machine}`")
    busy = {*jobs["lane"]}
    notes += [f"`{row.text}` has no jobs" for row in rows if row.lane not in busy]
    return notes


def add_overlaps(
    rows: Sequence[PaddleRow], lanes: np.ndarray, numbers: np.ndarray
) -> Mapping[tuple[int, int], PaddleRow]:
    """Give jobs that overlap without nesting rows of their own.

    Args:
        rows: One per lane.
        lanes: Of each job.
        numbers: Of each job, which row of its lane it is on.

    Returns:
        Rows by lane and number.
    """
    of_lane = {row.lane: row for row in rows}
    found = {(row.lane, 0): row for row in rows}
    spare = max((row.thread for row in rows), default=STEP_THREAD) + 1
    for lane, number in sorted({*zip(lanes.tolist(), numbers.tolist(), strict=True)} - {*found}):
        row = of_lane[lane]
        found[lane, number] = replace(row, text=f"{row.text}(overlap:{number})", thread=spare)
        spare += 1
    return found


def _find_places(lanes: pl.DataFrame) -> dict[tuple[str, int], list[tuple[int, int | None]]]:
    """List the lanes and ranks of each machine and GPU number."""
    places: dict[tuple[str, int], list[tuple[int, int | None]]] = {}
    for lane, machine, gpu, device_id, rank in lanes.select(
        "lane", "machine", "gpu", "device_id", "rank"
    ).iter_rows():
        numbered = re.match(r"GPU (\d+)", gpu or "")
        device = int(numbered[1]) if numbered else device_id
        places.setdefault((machine or "", device), []).append((lane, rank))
    return places

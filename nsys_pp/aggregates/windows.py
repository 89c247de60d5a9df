"""Time windows of steps, per device and on the CPU.

    events     [   )  [      )[    )     [   )   [  )
    steps               [ 7      )[ 8       )
    windows    [ null   )[ 7     )[ 8       )[ null )

The windows of a device, or of a process on the CPU, tile its time: without overlaps and gaps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.frames.conform import build_schema, conform

DEVICE_WINDOWS = build_schema(
    {  # by process_key, device_id, start_ns; those of a device tile the time of its process
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "step": pl.Int64,  # null outside all steps
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
    },
    name="DEVICE_WINDOWS",
)
HOST_WINDOWS = build_schema(
    {  # by process_key, start_ns; those of a process tile its time
        "process_key": pl.Int64,
        "step": pl.Int64,  # null outside all steps
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
    },
    name="HOST_WINDOWS",
)
_PROCESS = ["process_key"]
_DEVICE = ["process_key", "device_id"]
_EVER = 1 << 62


class Windows(Struct, frozen=True, kw_only=True):
    """The time of a report, by step.

    Attributes:
        device: `DEVICE_WINDOWS` of every device that has operations or steps.
        host: `HOST_WINDOWS` of every process that has events or steps.
    """

    device: pl.DataFrame
    host: pl.DataFrame


def find_windows(
    steps: pl.DataFrame,
    *,
    gpu_ops: pl.DataFrame,
    api_calls: pl.DataFrame,
    os_calls: pl.DataFrame,
    ranges: pl.DataFrame,
) -> Windows:
    """Cut the time of every process, from its first to its last event, at the borders of its steps.

    Args:
        steps: `STEPS`; if empty, each device and process has one window.
        gpu_ops: `GPU_OPS`.
        api_calls: `API_CALLS`.
        os_calls: `OS_CALLS`.
        ranges: `RANGES`.

    Returns:
        Windows: of a step on a device, `[start_ns, end_ns)`; on the CPU, its range or its jobs, or without these
        the time between the steps around it. If steps overlap, the earlier one ends when the next begins.
        The time of a process includes its steps beyond its events. No window is empty, unless it is the only
        one.
    """
    times = [
        frame.select(*_PROCESS, "start_ns", "end_ns") for frame in (gpu_ops, api_calls, os_calls, ranges)
    ]
    of_steps = [
        steps.select(*_PROCESS, start_ns=f"{side}start_ns", end_ns=f"{side}end_ns") for side in ("", "host_")
    ]
    span = (
        pl.concat(
            frame.group_by(_PROCESS).agg(pl.col("start_ns").min(), pl.col("end_ns").max())
            for frame in (*times, *of_steps)
        )
        .group_by(_PROCESS)
        .agg(first_ns=pl.col("start_ns").min(), last_ns=pl.col("end_ns").max())
    )
    devices = pl.concat([frame.select(_DEVICE).unique() for frame in (gpu_ops, steps)]).unique()
    return Windows(
        device=tile_devices(steps, devices.join(span, on=_PROCESS)),
        host=_tile(_on_host(steps), span, _PROCESS).pipe(conform, HOST_WINDOWS),
    )


def tile_devices(steps: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Cut the time of devices at the borders of their steps.

    Args:
        steps: `STEPS`.
        spans: process_key, device_id, first_ns, last_ns: the time of each device, one row per device.

    Returns:
        `DEVICE_WINDOWS` that tile these times.
    """
    return _tile(_on_device(steps), spans, _DEVICE).pipe(conform, DEVICE_WINDOWS)


def step_on_device(frame: pl.DataFrame, steps: pl.DataFrame, *, time: str = "start_ns") -> pl.Series:
    """Return the step of each row on its device.

    Args:
        frame: process_key, device_id and `time`; any order.
        steps: `STEPS`.
        time: Column with the moment of a row.

    Returns:
        Int64 `step`, one per row; null outside all steps, and where the device or the time is null.
    """
    return _look_up(frame, _on_device(steps), _DEVICE, time)


def step_on_host(frame: pl.DataFrame, steps: pl.DataFrame, *, time: str = "start_ns") -> pl.Series:
    """Return the step of each row (process_key and `time`) on the CPU, as `step_on_device` does."""
    return _look_up(frame, _on_host(steps), _PROCESS, time)


def _on_device(steps: pl.DataFrame) -> pl.DataFrame:
    """List the disjoint steps of devices, by device and time."""
    return _cut(steps.select(*_DEVICE, "step", "start_ns", "end_ns"), _DEVICE)


def _on_host(steps: pl.DataFrame) -> pl.DataFrame:
    """List the disjoint steps of processes on the CPU, by process and time; an unknown border is infinitely far."""
    end = pl.col("host_end_ns").cum_max().forward_fill().over(_PROCESS)
    following = pl.col("host_start_ns").cum_min(reverse=True).backward_fill().over(_PROCESS)
    bordered = (
        steps.group_by(*_PROCESS, "step")
        .agg(pl.col("start_ns", "host_start_ns").min(), pl.col("host_end_ns").max())
        .sort(*_PROCESS, "start_ns", "step")
        .select(
            *_PROCESS,
            "step",
            start_ns=pl.coalesce("host_start_ns", end, -_EVER),
            end_ns=pl.coalesce("host_end_ns", following, _EVER),
        )
    )
    return _cut(bordered, _PROCESS)


def _cut(steps: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """End each step when the next one begins; drop empty steps."""
    following = pl.col("start_ns").shift(-1).over(keys)
    is_left = pl.col("start_ns") < pl.col("end_ns")
    return (
        steps.filter(is_left)
        .sort(*keys, "start_ns", "step")
        .with_columns(end_ns=pl.min_horizontal("end_ns", following))
        .filter(is_left)
    )


def _tile(steps: pl.DataFrame, spans: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Fill [first_ns, last_ns) of `spans` around disjoint steps with windows without a step."""
    placed = (
        steps.join(spans, on=keys, maintain_order="left")
        .with_columns(
            start_ns=pl.max_horizontal("start_ns", "first_ns"), end_ns=pl.min_horizontal("end_ns", "last_ns")
        )
        .filter(pl.col("start_ns") < pl.col("end_ns"))
    )
    columns = (*keys, "step", "start_ns", "end_ns")
    none = pl.lit(None, pl.Int64).alias("step")
    following = pl.col("start_ns").shift(-1).over(keys).fill_null(pl.col("last_ns"))
    after = placed.select(*keys, none, start_ns="end_ns", end_ns=following)
    first = placed.group_by(keys).agg(begun_ns=pl.col("start_ns").min())
    before = spans.join(first, on=keys, how="left").select(
        *keys, none, start_ns="first_ns", end_ns=pl.coalesce("begun_ns", "last_ns")
    )
    is_only = pl.len().over(keys) == 1
    return (
        pl.concat([placed.select(columns), before, after])
        .filter((pl.col("start_ns") < pl.col("end_ns")) | is_only)
        .sort(*keys, "start_ns")
    )


def _look_up(frame: pl.DataFrame, steps: pl.DataFrame, keys: Sequence[str], time: str) -> pl.Series:
    """Find the step around each row of `frame`; `steps` are disjoint, by keys and time."""
    groups = steps.select(keys).unique(maintain_order=True).with_row_index("group")
    of_rows, of_steps = (
        rows.select(keys).join(groups, on=keys, how="left", maintain_order="left")["group"]
        for rows in (frame, steps)
    )
    start, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    times = frame[time].cast(pl.Int64)
    now, group = times.fill_null(0).to_numpy(), of_rows.cast(pl.Int64).fill_null(-1).to_numpy()
    step_row = np.full(len(frame), -1)
    for number in range(len(groups)):
        rows, own = np.flatnonzero(group == number), np.flatnonzero(of_steps.to_numpy() == number)
        at = own[0] + np.searchsorted(start[own], now[rows], side="right") - 1
        is_within = (at >= own[0]) & (now[rows] < end[at])
        step_row[rows[is_within]] = at[is_within]
    at_row = pl.Series(step_row).set(pl.Series(step_row < 0) | times.is_null(), None)
    return steps["step"].gather(at_row).alias("step")

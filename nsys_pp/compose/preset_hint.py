"""The preset that would read the most of a report, for a hint where none is detected."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.types import Int64s
from nsys_pp.compose.report_projection import project_report
from nsys_pp.frames.report import Report


class PresetHint(Struct, frozen=True, kw_only=True):
    """Preset that would read the ranges with the most GPU time.

    Attributes:
        preset: Its name.
        range_count: Number of ranges that it would read as outermost jobs (as steps, for inference).
        gpu_ns: Time of the kernels in them, with concurrent ones once per device.
    """

    preset: str
    range_count: int
    gpu_ns: int


def find_preset_hint(report: Report, readings: Mapping[str, Int64s]) -> PresetHint | None:
    """Find the preset that would read the most GPU time, if the user asked for it.

    Args:
        report: Read with ranges and operations.
        readings: Ranges that each preset would read, from `find_preset_readings`.

    Returns:
        Of presets with equal times, the one with the most ranges, then the first. None if no preset reads GPU work.
    """
    if not readings:
        return None
    is_read = np.isin(report.ranges["range_id"].to_numpy(), np.concatenate(list(readings.values())))
    projections = project_report(
        replace(report, ranges=report.ranges[np.flatnonzero(is_read)]), ops=("kernel",), scope="auto"
    )
    busy = projections.group_by("range_id").agg(pl.col("busy_ns").sum())
    hints = [
        PresetHint(
            preset=name,
            range_count=len(ids),
            gpu_ns=int(busy.filter(pl.col("range_id").is_in(ids.tolist()))["busy_ns"].sum()),
        )
        for name, ids in readings.items()
    ]
    best = max(hints, key=lambda hint: (hint.gpu_ns, hint.range_count))  # the first of equal ones
    return best if best.gpu_ns else None

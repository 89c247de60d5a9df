"""Lanes of a run with the intervals in which their metrics are measured, and the sums of one report."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from nsys_pp.families.classify import classify_operations
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import KERNEL_KINDS, Report
from nsys_pp.frames.requested import FAMILY_TIMES
from nsys_pp.frames.sampled_metrics import SampledMetric


class LaneTimes(Struct, frozen=True, kw_only=True):
    """A lane, and the intervals in which its metrics are measured.

    Attributes:
        lane: The lane.
        process_key: Its process.
        device_id: Its CUDA ordinal there.
        gpu: "GPU 0", numbered among the GPUs of the machine.
        bus: Bus location of its GPU, in lower case; None: unknown.
        measured: `MEASURED_TIMES`, on the clock of the report with the metrics.
        families: `FAMILY_TIMES` on that clock; None: those of the kernels of that report.
    """

    lane: int
    process_key: int
    device_id: int
    gpu: str
    bus: str | None
    measured: pl.DataFrame
    families: pl.DataFrame | None = None

    def has(self, metric: SampledMetric) -> bool:
        """Return whether a metric of the machine is of the lane's GPU: by bus location, where both are known."""
        if metric.bus is not None and self.bus is not None:
            return metric.bus == self.bus
        return metric.gpu == self.gpu


class ReportSums(Struct, frozen=True):
    """Sums of the metrics of one report, and its GPUs with metrics, each by one of them, without samples."""

    sums: pl.DataFrame
    gpus: list[SampledMetric]


def list_family_times(report: Report, process_key: int, device_id: int) -> pl.DataFrame:
    """List the kernels of a device of a report with their families (`FAMILY_TIMES`).

    Args:
        report: Read with operations and names of kernels.
        process_key: The process.
        device_id: The CUDA ordinal in it.
    """
    is_own = (pl.col("process_key") == process_key) & (pl.col("device_id") == device_id)
    ops = report.gpu_ops.filter(is_own, pl.col("kind").cast(pl.String).is_in(KERNEL_KINDS))
    if len(report.op_details.row):
        full_name = report.op_details.gather("full_name", ops["op_id"])
        ops = ops.with_columns(name=pl.coalesce(full_name, "name"))
    families = classify_operations(ops.select("kind", "name", "is_communication", "start_ns", "end_ns"))
    return families.with_columns(pl.col("family").cast(pl.String)).pipe(conform, FAMILY_TIMES)

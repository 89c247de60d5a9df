"""Model FLOPs utilisation of each step."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import Column, Table, View, build_table_schema
from nsys_pp.frames.training import Training
from nsys_pp.hardware.peaks import find_peak
from nsys_pp.tables.training.lane_steps import sum_lane_steps
from nsys_pp.tables.training.step_table import build_step_table
from nsys_pp.units import NS_PER_S

_TERA = 1e12


class Work(Struct, frozen=True, kw_only=True):
    """Work of one step, and the hardware that it is compared with.

    Attributes:
        flops: FLOPs of the model in one step, over all GPUs of the run.
        formula: Source of this number.
        data_type: Data type of the peak: one of `nsys_pp.hardware.peaks.DATA_TYPES`.
        gpus: Name of the GPU of each lane, in order of the lanes; None: unknown.
        gpu_count: GPUs of the run; more than lanes where not all were recorded.
    """

    flops: float
    formula: str
    data_type: str
    gpus: tuple[str | None, ...]
    gpu_count: int


_COLUMNS = (
    Column("step", pl.Int64, "number of the step"),
    Column("span_ns", pl.Int64, "length of the step on all lanes; of its longest lane if clocks cannot be compared", display_unit="ms"),
    Column("gpu_count", pl.Int64, "GPUs of the run, recorded or not", heading="GPUs"),
    Column("model_tflops", pl.Float64, "FLOPs of the model in the step, in 10^12", heading="Model TFLOPs", decimals=1),
    Column("tflops_per_gpu_s", pl.Float64, "FLOPs of the model per GPU and second, in 10^12; null: the capture cuts every step", heading="TFLOP/s per GPU", decimals=1, null_text="unknown"),
    Column("peak_tflops_per_gpu_s", pl.Float64, "peak of a GPU, dense, mean over lanes; null: unknown for a GPU of the run", heading="Peak", decimals=1),
    Column("mfu_fraction", pl.Float64, "model FLOPs utilisation: share of the peak; null: unknown", heading="MFU", decimals=1, null_text="unknown"),
)  # fmt: skip


def build_utilisation(training: Training, work: Work) -> pl.DataFrame:
    """Build the rows of `UTILISATION_TABLE`: complete steps; all, without a utilisation, where the capture cuts every step."""
    complete = sum_lane_steps(training).filter("is_complete")
    longest = complete.group_by("step").agg(longest_ns=pl.col("span_ns").max())
    # FLOPs of a part of a step are unknown
    seconds = pl.when(~pl.col("is_partial")).then("span_ns") / NS_PER_S
    peaks = [_find_rate(gpu, work.data_type) for gpu in work.gpus]
    rates = [rate for rate in peaks if rate is not None]
    peak = sum(rates) / len(rates) if rates and len(rates) == len(peaks) else None
    return (
        build_step_table(training)
        .join(longest, on="step")
        .with_columns(
            pl.coalesce("span_ns", "longest_ns").alias("span_ns"),
            gpu_count=pl.lit(work.gpu_count),
            model_tflops=pl.lit(work.flops / _TERA),
            peak_tflops_per_gpu_s=pl.lit(None if peak is None else peak / _TERA, pl.Float64),
        )
        .with_columns(tflops_per_gpu_s=pl.col("model_tflops") / seconds / pl.col("gpu_count"))
        .with_columns(mfu_fraction=pl.col("tflops_per_gpu_s") / pl.col("peak_tflops_per_gpu_s"))
        .sort("step")
        .pipe(conform, build_table_schema(_COLUMNS))
    )


def describe_work(work: Work) -> list[str]:
    """Return sentences on the sources of the FLOPs and of the peaks, and on GPUs without a peak."""
    notes = [f"model FLOPs of a step: {work.flops:.4g}, {work.formula}"]
    for gpu in sorted({gpu or "" for gpu in work.gpus}):
        peak, rate = find_peak(gpu), _find_rate(gpu, work.data_type)
        name = f"`{gpu}`" if gpu else "a GPU without a name"
        if peak is None or rate is None:
            notes.append(f"the peak of {name} for {work.data_type} is unknown: no utilisation")
        else:
            notes.append(
                f"peak of {name}: {rate / _TERA:g} TFLOP/s of {work.data_type}, dense ({peak.source})"
            )
    if work.gpu_count > len(work.gpus):
        notes.append(
            f"{len(work.gpus)} of {work.gpu_count} GPUs were recorded; the others are assumed to have the same peak"
        )
    return notes


def _find_rate(gpu: str | None, data_type: str) -> float | None:
    peak = find_peak(gpu)
    return None if peak is None else peak.flops_per_s.get(data_type)


UTILISATION_TABLE: Table[[Training, Work]] = Table(
    name="utilisation",
    title="Model FLOPs utilisation",
    columns=_COLUMNS,
    caption=(
        "MFU: FLOPs of the model in a step / (length of the step x GPUs x peak); recomputed activations do not count;"
        " complete steps"
    ),
    build=build_utilisation,
    view=View(columns=tuple(column.name for column in _COLUMNS)),
)

"""Switches of contexts on GPUs -> ACTIVITIES.

A GPU that several contexts share saves one and restores another. nsys records each step of a switch; a context has the GPU from the start of
its restoration to the end of its saving.
"""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.activities import ACTIVITIES
from nsys_pp.frames.conform import conform
from nsys_pp.frames.ids import pid
from nsys_pp.frames.names import NAME
from nsys_pp.frames.raw import RawReport

_CONTEXT = ("gpu", "context")


def build_gpu_contexts(raw: RawReport, gpus: pl.DataFrame) -> pl.DataFrame:
    """Build the intervals in which a context has a GPU, a row of the system per GPU.

        changes    restored   saved   restored  restored  saved
        contexts   [ has the GPU )              [ has ... )

    A restoration whose next change is another restoration has an unknown end, and is left out, as is one at the end of the capture.

    Args:
        raw: The report.
        gpus: From `nsys_pp.model.devices.number_gpus`.

    Returns:
        `ACTIVITIES`, named after the process and the context.
    """
    changes = raw["gpu_contexts"]
    if changes.is_empty():
        return ACTIVITIES.to_frame()
    changes = changes.filter(pl.col("change") != "other").sort(
        *_CONTEXT, "time", "order", maintain_order=True
    )
    is_same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(-1)) for name in _CONTEXT)
    is_interval = is_same & (pl.col("change") == "restored") & (pl.col("change").shift(-1) == "saved")
    found = changes.with_columns(end=pl.col("time").shift(-1)).filter(is_interval.fill_null(value=False))
    numbers = gpus.select(gpu="id", number="number").drop_nulls("gpu").unique("gpu", keep="first")
    names = raw["processes"].select("process", "name").drop_nulls().unique("process", keep="first")
    joined = found.join(numbers, on="gpu", how="left", maintain_order="left").join(
        names, on="process", how="left", maintain_order="left"
    )
    number = pl.coalesce("number", "gpu", pl.lit(0))
    owner = pl.format("{} {}", pl.col("name").fill_null("process"), pid(pl.col("process")))
    context = pl.format("context {}", pl.col("context").fill_null(0))
    name = pl.when(pl.col("process").is_null()).then(context).otherwise(pl.format("{}, {}", owner, context))
    return joined.select(
        row=pl.format("contexts of GPU {}", number).cast(pl.Categorical()),
        start_ns="time",
        end_ns="end",
        name=name.cast(NAME),
    ).pipe(_complete)


def _complete(rows: pl.DataFrame) -> pl.DataFrame:
    return conform(pl.concat([ACTIVITIES.to_frame(), rows], how="diagonal"), ACTIVITIES)

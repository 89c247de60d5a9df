"""Which GPU is behind a CUDA ordinal -> DEVICES.

CUDA numbers devices for each process: under `CUDA_VISIBLE_DEVICES` ordinal 0 of two processes
can be two GPUs. What tells them apart, best first: the table that maps (pid, ordinal) to a GPU
and its uuid; `CUDA_VISIBLE_DEVICES` of the launched program; the ordinal that nsys itself saw.
GPUs are numbered as `nvidia-smi` does: by their place on the PCI bus, among all of the machine.
"""

from __future__ import annotations

import polars as pl

from nsys_pp.model.ids import pid
from nsys_pp.raw import RawReport
from nsys_pp.schema import DEVICES, conform

_NO_UUID = "00000000-0000-0000-0000-000000000000"


def build_devices(raw: RawReport, gpu_ops: pl.DataFrame, visible: str | None) -> pl.DataFrame:
    """Tell which GPU each process's devices are.

    Args:
        raw: The report.
        gpu_ops: `GPU_OPS`.
        visible: `CUDA_VISIBLE_DEVICES` of the launched program, where it is known.

    Returns:
        `DEVICES` by process and ordinal.
    """
    gpus = _number_gpus(raw)
    used = gpu_ops.select("process_key", "device_id").unique().drop_nulls().sort(pl.all())
    used = used.with_columns(pid=pid(pl.col("process_key")), device=pl.col("device_id"))
    mapping = raw["cuda_devices"].unique(["pid", "device"], keep="last", maintain_order=True)
    used = used.join(
        mapping.with_columns(_known_uuid()), on=["pid", "device"], how="left", maintain_order="left"
    )
    used = used.join(_ordinals(gpus, visible), on="device", how="left", maintain_order="left").with_columns(
        ordinal=pl.coalesce("ordinal", "device")
    )
    for column, by in (("gpu", "by_id"), ("uuid", "by_uuid"), ("ordinal", "by_ordinal")):
        index = gpus.select(pl.col("id").alias("gpu"), "uuid", "ordinal", pl.col("at").alias(by))
        index = index.select(column, by).drop_nulls().unique(column, keep="first", maintain_order=True)
        used = used.join(index, on=column, how="left", maintain_order="left")
    # a table that maps the device, but to a GPU that is not listed, still is not its ordinal's GPU
    is_mapped = pl.col("gpu").is_not_null() | pl.col("uuid").is_not_null()
    at = pl.coalesce("by_id", "by_uuid", pl.when(~is_mapped).then("by_ordinal"))
    known = gpus.select("at", "number", "name", "bus_location", listed_uuid="uuid")
    return (
        used.with_columns(at=at)
        .join(known, on="at", how="left", maintain_order="left")
        .with_columns(uuid=pl.coalesce("uuid", "listed_uuid"))
        .pipe(_label)
        .pipe(conform, DEVICES)
    )


def _number_gpus(raw: RawReport) -> pl.DataFrame:
    """List the machine's GPUs with the ordinals that nsys saw, numbered along the PCI bus."""
    gpus = raw["gpus"].with_columns(_known_uuid()).unique(maintain_order=True)
    if gpus["ordinal"].is_null().all():
        # of 2019, which had them in a table of their own; or made by a tool that has just ids
        seen = raw["cuda_gpus"].select("bus_location", seen="ordinal").drop_nulls().unique("bus_location")
        gpus = gpus.join(seen, on="bus_location", how="left", maintain_order="left")
        gpus = gpus.with_columns(ordinal=pl.coalesce("seen", "id"))
    place = pl.col("bus_location").str.to_lowercase().rank("dense") - 1
    on_bus = gpus["bus_location"].is_not_null()
    # integrated graphics of a laptop are listed as well, without a place
    number = pl.when(pl.lit(on_bus.any())).then(place).otherwise(pl.col("id"))
    return gpus.with_columns(number=number.cast(pl.Int64)).with_row_index("at")


def _known_uuid() -> pl.Expr:
    uuid = pl.col("uuid").str.strip_prefix("GPU-").str.to_lowercase()
    return pl.when(uuid != _NO_UUID).then(uuid).alias("uuid")


def _ordinals(gpus: pl.DataFrame, visible: str | None) -> pl.DataFrame:
    """Map a process's ordinals to those that nsys saw, by the list of visible devices.

    The list is followed only where nsys itself saw all of its devices: else nsys was under the
    same list, and its ordinals are the process's.
    """
    listed = [int(part) for part in (visible or "").split(",") if part.strip().isdecimal()]
    if not set(listed) <= set(gpus["ordinal"].drop_nulls()):
        listed = []
    return pl.DataFrame(
        {"device": range(len(listed)), "ordinal": listed}, schema={"device": pl.Int32, "ordinal": pl.Int64}
    )


def _label(used: pl.DataFrame) -> pl.DataFrame:
    """Name each physical GPU; those that are not listed by id, else by uuid, else by ordinal."""
    used = used.with_columns(
        key=pl.coalesce(
            pl.lit(f"{column} ") + pl.col(column).cast(pl.String)
            for column in ("at", "uuid", "gpu", "device")
        ),
        wished=pl.coalesce("number", "gpu", "device").cast(pl.Int64),
    )
    physical = used.group_by("key").agg(pl.col("wished").min()).sort("wished", "key").with_row_index("index")
    number = "index" if physical["wished"].is_duplicated().any() else "wished"
    labels = physical.select("key", gpu=pl.lit("GPU ") + pl.col(number).cast(pl.String))
    return used.drop("gpu").join(labels, on="key", how="left", maintain_order="left")

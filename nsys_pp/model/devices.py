"""GPUs of a report -> GPUS, and the GPU of each CUDA ordinal -> DEVICES.

CUDA numbers devices in each process: with `CUDA_VISIBLE_DEVICES`, ordinal 0 of two processes can be two GPUs.
Sources, best first: the table from (pid, ordinal) to a GPU and its uuid; `CUDA_VISIBLE_DEVICES` of the launched
program; the ordinal in the process of nsys. GPUs are numbered as in `nvidia-smi`: by bus location, among all of the
machine. A partitioned GPU (MIG) is several devices at one bus location, each with its own uuid.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from nsys_pp.arrays.columns import numbers, pack
from nsys_pp.arrays.search import find_first_rows
from nsys_pp.frames.conform import conform
from nsys_pp.frames.ids import build_process_key, pid, strip_uuid
from nsys_pp.frames.launcher_variables import list_visible
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import DEVICES, GPUS

_NO_UUID = "00000000-0000-0000-0000-000000000000"
_PREFIX = r"^(?i:MIG-GPU-|MIG-|GPU-)"
_UUID_LENGTH = len(_NO_UUID)


def build_gpus(raw: RawReport, listed: pl.DataFrame) -> pl.DataFrame:
    """List the GPUs of the report, used or not.

    Args:
        raw: The report.
        listed: From `number_gpus`.

    Returns:
        `GPUS` along the bus.
    """
    gpus = listed[GPUS.names()]
    if not raw["cuda_devices"].is_empty():
        used = raw["cuda_devices"].select(_clean_uuid()).drop_nulls().unique()
        used = used.filter(~pl.col("uuid").is_in(gpus["uuid"].drop_nulls().implode()))
        gpus = pl.concat([gpus, used], how="diagonal")
    gpus = conform(gpus, GPUS)
    known = pl.any_horizontal(pl.col("uuid", "bus_location").is_not_null())
    return gpus.filter(known).unique().sort("bus_location", "uuid", nulls_last=True)


def build_devices(
    raw: RawReport,
    gpus: pl.DataFrame,
    gpu_ops: pl.DataFrame,
    launcher: Mapping[str, str],
    ranks: pl.DataFrame,
) -> pl.DataFrame:
    """Find the GPU of each device of each process.

    Args:
        raw: The report.
        gpus: From `number_gpus`.
        gpu_ops: `GPU_OPS`.
        launcher: Variables of the launched program.
        ranks: `RANKS`: different ranks do not share a GPU if only the ordinal is known.

    Returns:
        `DEVICES` by process and ordinal: devices with operations or, if operations were not read, devices with
        CUDA contexts.
    """
    used = gpu_ops[["process_key", "device_id"]] if "ops" in raw.groups else _find_contexts(raw)
    first = find_first_rows(pack(*(numbers(used[key]) for key in used.columns)))
    used = used[first].drop_nulls().sort(pl.all())
    used = used.with_columns(pid=pid(pl.col("process_key")), device=pl.col("device_id"))
    mapping = raw["cuda_devices"].unique(["pid", "device"], keep="last", maintain_order=True)
    used = used.join(
        mapping.with_columns(_clean_uuid()), on=["pid", "device"], how="left", maintain_order="left"
    )
    visible = _ordinals(gpus, list_visible(launcher)).with_columns(is_visible=pl.lit(value=True))
    used = used.join(visible, on="device", how="left", maintain_order="left")
    # a device that is mapped to an unlisted GPU is not the GPU with its ordinal
    is_mapped = pl.col("gpu").is_not_null() | pl.col("uuid").is_not_null()
    used = used.with_columns(
        is_mapped=is_mapped,
        ordinal=pl.coalesce("ordinal", "device"),
        uuid=pl.when(is_mapped).then("uuid").otherwise("visible_uuid"),
    )
    used = used.hstack(
        [
            _find(used["gpu"], gpus["id"]).alias("by_id"),
            _find(used["uuid"], gpus["uuid"]).alias("by_uuid"),
            _find(used["ordinal"], gpus["ordinal"]).alias("by_ordinal"),
        ]
    )
    is_identified = pl.col("is_mapped") | pl.col("uuid").is_not_null()
    is_only = gpus["bus_location"].is_not_null().sum() == 1
    is_recorded = is_identified | pl.col("is_visible").is_not_null() | pl.lit(is_only)
    at = pl.coalesce("by_id", "by_uuid", "visible_at", pl.when(~is_identified).then("by_ordinal"))
    known = gpus.select("at", "number", "name", "bus_location", listed_uuid="uuid")
    return (
        used.with_columns(is_recorded=is_recorded, at=at)
        .join(known, on="at", how="left", maintain_order="left")
        .with_columns(uuid=pl.coalesce("uuid", "listed_uuid"))
        .pipe(_contest, ranks)
        .pipe(_label)
        .pipe(conform, DEVICES)
    )


def _find_contexts(raw: RawReport) -> pl.DataFrame:
    owner = build_process_key(pl.col("host").fill_null(0), pl.col("vm").fill_null(1), pl.col("pid"))
    return raw["contexts"].select(process_key=owner, device_id="device")


def number_gpus(raw: RawReport) -> pl.DataFrame:
    """List the GPUs of the machine with their ordinals in nsys, numbered along the PCI bus."""
    gpus = raw["gpus"].with_columns(_clean_uuid()).unique(maintain_order=True)
    if gpus["ordinal"].is_null().all():
        # of 2019, with ordinals in another table; or of a tool that writes only ids
        cuda_gpus = (
            raw["cuda_gpus"].select("bus_location", of_cuda="ordinal").drop_nulls().unique("bus_location")
        )
        gpus = gpus.join(cuda_gpus, on="bus_location", how="left", maintain_order="left")
        gpus = gpus.with_columns(ordinal=pl.coalesce("of_cuda", "id"))
    position = pl.col("bus_location").str.to_lowercase().rank("dense") - 1
    on_bus = gpus["bus_location"].is_not_null()
    # integrated graphics are listed as well, without a bus location
    number = pl.when(pl.lit(on_bus.any())).then(position).otherwise(pl.col("id"))
    return gpus.with_columns(number=number.cast(pl.Int64)).with_row_index("at")


def _find(values: pl.Series, listed: pl.Series) -> pl.Series:
    """Find the first row of each value; a machine has few GPUs."""
    first: dict[object, int] = {}
    for row, value in enumerate(listed):
        if value is not None:
            first.setdefault(value, row)
    return pl.Series([first.get(value) for value in values], dtype=pl.UInt32)


def _clean_uuid() -> pl.Expr:
    uuid = pl.col("uuid").str.replace(_PREFIX, "").str.to_lowercase()
    return pl.when(uuid != _NO_UUID).then(uuid).alias("uuid")


def _ordinals(gpus: pl.DataFrame, visible: list[str]) -> pl.DataFrame:
    """Map the ordinals of a process by the list of visible devices.

    Numbers in the list are ordinals of nsys only if nsys lists all of these devices: else the same list applied to
    nsys, and its ordinals are those of the process. If nsys has several GPUs with one ordinal (unusable ones are 0),
    numbers are those of `nvidia-smi`. Ids may be abbreviated.

    Returns:
        Columns `device`, `ordinal`, `visible_at` (row of `gpus`) and `visible_uuid`.
    """
    schema = {"device": pl.Int32, "ordinal": pl.Int64, "visible_at": pl.UInt32, "visible_uuid": pl.String}
    on_bus = gpus.filter(pl.col("bus_location").is_not_null())
    rows: list[tuple[int, int | None, int | None, str | None]] = []
    for device, entry in enumerate(visible):
        if not entry.isdecimal():
            matches = on_bus.filter(pl.col("uuid").str.starts_with(strip_uuid(entry)))
            whole = strip_uuid(entry) if len(strip_uuid(entry)) >= _UUID_LENGTH else None
            if matches.height == 1:
                rows.append((device, None, matches["at"][0], matches["uuid"][0]))
            elif whole is not None:  # a part of a GPU, or no GPU is listed
                rows.append((device, None, None, whole))
        elif on_bus["ordinal"].is_duplicated().any():
            matches = on_bus.filter(pl.col("number") == int(entry))
            rows.append((device, None, matches["at"][0] if matches.height == 1 else None, None))
        elif gpus.is_empty() or {int(number) for number in visible} <= set(gpus["ordinal"].drop_nulls()):
            rows.append((device, int(entry), None, None))
    return pl.DataFrame(rows, schema=schema, orient="row")


def _contest(used: pl.DataFrame, ranks: pl.DataFrame) -> pl.DataFrame:
    """Remove the GPU of devices with a known ordinal only, if processes of different ranks share it."""
    ranked = ranks.select("process_key", "rank").unique("process_key", keep="first", maintain_order=True)
    used = used.join(ranked, on="process_key", how="left", maintain_order="left")
    if used["is_recorded"].all():
        return used.with_columns(is_contested=pl.lit(value=False))
    guessed = pl.when(~pl.col("is_recorded")).then("rank")
    is_contested = ~pl.col("is_recorded") & (guessed.drop_nulls().n_unique().over("at", "ordinal") > 1)
    removed = [
        pl.when(~is_contested).then(name).alias(name) for name in ("at", "number", "uuid", "bus_location")
    ]
    return used.with_columns(*removed, is_contested=is_contested)


def _label(used: pl.DataFrame) -> pl.DataFrame:
    """Label each physical GPU; unlisted ones are distinguished by uuid, else by id, else by ordinal."""
    is_split = pl.col("at").is_not_null() & (pl.col("uuid").n_unique().over("at") > 1)
    used = used.with_columns(
        key=pl.coalesce(
            pl.when(is_split).then(pl.lit("part ") + pl.col("uuid")),
            pl.when("is_contested").then(pl.format("rank {} {}", pl.col("rank").fill_null(-1), "ordinal")),
            *(
                pl.lit(f"{column} ") + pl.col(column).cast(pl.String)
                for column in ("at", "uuid", "gpu", "ordinal")
            ),
        ),
        is_split=is_split,
        preferred=pl.coalesce("number", "gpu", "ordinal").cast(pl.Int64),
    )
    physical = used.group_by("key").agg(pl.col("preferred", "rank").min(), pl.col("is_split").any())
    physical = physical.sort("preferred", "rank", "key", nulls_last=True).with_row_index("index")
    whole = (
        physical.unique("preferred") if physical["is_split"].all() else physical.filter(~pl.col("is_split"))
    )
    number = "index" if whole["preferred"].is_duplicated().any() else "preferred"
    part = pl.lit(" MIG ") + pl.int_range(pl.len()).over("preferred").cast(pl.String)
    labels = physical.select(
        "key",
        gpu=pl.lit("GPU ")
        + pl.col(number).cast(pl.String)
        + pl.when("is_split").then(part).otherwise(pl.lit("")),
    )
    return used.drop("gpu").join(labels, on="key", how="left", maintain_order="left")

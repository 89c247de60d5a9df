"""GPUs of a report -> GPUS, and the GPU of each CUDA ordinal -> DEVICES.

CUDA numbers devices in each process: with `CUDA_VISIBLE_DEVICES`, ordinal 0 of two processes can be two GPUs.
Sources, best first: the table from (pid, ordinal) to a GPU and its uuid; `CUDA_VISIBLE_DEVICES` of the launched
program; the ordinal in the process of nsys. GPUs are numbered as in `nvidia-smi`: by bus location, among all of the
machine. A partitioned GPU (MIG) is several devices at one bus location, each with its own uuid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import index_column, numbers, pack
from nsys_pp.arrays.search import find_first_rows
from nsys_pp.frames.conform import conform
from nsys_pp.frames.ids import list_process_keys, pid, strip_uuid
from nsys_pp.frames.launcher_variables import list_visible
from nsys_pp.frames.raw import SCHEMAS, RawReport
from nsys_pp.frames.report import DEVICES, GPUS

Row = tuple[Any, ...]
_NO_UUID = "00000000-0000-0000-0000-000000000000"
_PREFIX = r"^(?i:MIG-GPU-|MIG-|GPU-)"
_MOST_MACHINES = 64  # whose GPUs are kept
_UUID_LENGTH = len(_NO_UUID)


def build_gpus(raw: RawReport, listed: pl.DataFrame) -> pl.DataFrame:
    """List the GPUs of the report, used or not.

    Args:
        raw: The report.
        listed: From `number_gpus`.

    Returns:
        `GPUS` along the bus.
    """
    if listed.is_empty() and raw["cuda_devices"].is_empty():
        return GPUS.to_frame()
    uuids = dict.fromkeys(raw["cuda_devices"]["uuid"].to_list())
    return _build_gpus(tuple(listed[GPUS.names()].rows()), tuple(uuids)).clone()


@lru_cache(_MOST_MACHINES)
def _build_gpus(listed: tuple[Row, ...], uuids: tuple[str | None, ...]) -> pl.DataFrame:
    gpus = pl.DataFrame(listed, schema=GPUS, orient="row")
    if uuids:
        used = pl.DataFrame({"uuid": uuids}, schema={"uuid": pl.String}).select(_clean_uuid())
        used = used.drop_nulls().unique()
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
    rows = [_Device(process_key=key, device=device) for key, device in _list_used(raw, gpu_ops)]
    if not rows:
        return DEVICES.to_frame()
    _identify(rows, raw["cuda_devices"], gpus, _ordinals(gpus, list_visible(launcher)))
    _contest(rows, ranks)
    _label(rows)
    described = [
        (
            *(row.process_key, row.device, row.label, row.name),
            *(row.uuid, row.bus_location, row.is_recorded),
        )
        for row in rows
    ]
    return pl.DataFrame(described, schema=DEVICES, orient="row")


class _Device(Struct, kw_only=True):
    """A device of a process, as it becomes known; a machine has few."""

    process_key: int
    device: int
    gpu: int | None = None  # id of the GPU that the device is mapped to
    uuid: str | None = None
    ordinal: int = -1  # of nsys
    at: int | None = None  # row of `number_gpus`
    number: int | None = None
    name: str | None = None
    bus_location: str | None = None
    rank: int | None = None
    is_recorded: bool = False
    is_contested: bool = False
    label: str = ""


def _list_used(raw: RawReport, gpu_ops: pl.DataFrame) -> list[tuple[int, int]]:
    """List the processes and ordinals with operations or, if these were not read, with contexts; ascending."""
    if "ops" in raw.groups:
        process, device = gpu_ops["process_key"], gpu_ops["device_id"]
    else:
        process, device = list_process_keys(raw["contexts"]), raw["contexts"]["device"]
    first = find_first_rows(pack(numbers(process), numbers(device)))
    pairs = zip(index_column(process, first).to_list(), index_column(device, first).to_list(), strict=True)
    return sorted(pair for pair in pairs if None not in pair)


def _identify(
    rows: Sequence[_Device], mapping: pl.DataFrame, gpus: pl.DataFrame, visible: pl.DataFrame
) -> None:
    """Find the GPU of each device by the best source."""
    keys = zip(mapping["pid"].to_list(), mapping["device"].to_list(), strict=True)
    uuids = mapping["uuid"] if mapping.is_empty() else mapping.select(_clean_uuid()).to_series()
    mapped = dict(zip(keys, zip(mapping["gpu"], uuids, strict=True), strict=True))  # the last of a key
    visible_of = {device: values for device, *values in visible.iter_rows()}
    by_id, by_uuid, by_ordinal = (_first_rows(gpus[name]) for name in ("id", "uuid", "ordinal"))
    listed = gpus[["number", "name", "bus_location", "uuid"]].rows()
    is_only = gpus.height - gpus["bus_location"].null_count() == 1
    for row in rows:
        row.gpu, row.uuid = mapped.get((pid(row.process_key), row.device), (None, None))
        # a device that is mapped to an unlisted GPU is not the GPU with its ordinal
        is_mapped = row.gpu is not None or row.uuid is not None
        ordinal, visible_at, visible_uuid = visible_of.get(row.device, (None, None, None))
        row.ordinal = row.device if ordinal is None else ordinal
        row.uuid = row.uuid if is_mapped else visible_uuid
        is_identified = is_mapped or row.uuid is not None
        row.is_recorded = is_identified or row.device in visible_of or is_only
        candidates = (
            by_id.get(row.gpu),
            by_uuid.get(row.uuid),
            visible_at,
            None if is_identified else by_ordinal.get(row.ordinal),
        )
        row.at = next((at for at in candidates if at is not None), None)
        if row.at is not None:
            row.number, row.name, row.bus_location, uuid = listed[row.at]
            row.uuid = uuid if row.uuid is None else row.uuid


def number_gpus(raw: RawReport) -> pl.DataFrame:
    """List the GPUs of the machine with their ordinals in nsys, numbered along the PCI bus."""
    return _number_gpus(*(tuple(raw[name].rows()) for name in ("gpus", "cuda_gpus"))).clone()


@lru_cache(_MOST_MACHINES)  # all reports of a machine list the same
def _number_gpus(listed: tuple[Row, ...], of_cuda: tuple[Row, ...]) -> pl.DataFrame:
    gpus, cuda_gpus = (
        pl.DataFrame(rows, schema=SCHEMAS[name], orient="row")
        for name, rows in (("gpus", listed), ("cuda_gpus", of_cuda))
    )
    gpus = gpus.with_columns(_clean_uuid()).unique(maintain_order=True)
    if gpus["ordinal"].is_null().all():
        # of 2019, with ordinals in another table; or of a tool that writes only ids
        cuda_gpus = cuda_gpus.select("bus_location", of_cuda="ordinal").drop_nulls().unique("bus_location")
        gpus = gpus.join(cuda_gpus, on="bus_location", how="left", maintain_order="left")
        gpus = gpus.with_columns(ordinal=pl.coalesce("of_cuda", "id"))
    position = pl.col("bus_location").str.to_lowercase().rank("dense") - 1
    on_bus = gpus["bus_location"].is_not_null()
    # integrated graphics are listed as well, without a bus location
    number = pl.when(pl.lit(on_bus.any())).then(position).otherwise(pl.col("id"))
    return gpus.with_columns(number=number.cast(pl.Int64)).with_row_index("at")


def _first_rows(listed: pl.Series) -> dict[object, int]:
    """Map each value to its first row; null has none."""
    first: dict[object, int] = {}
    for row, value in enumerate(listed.to_list()):
        if value is not None:
            first.setdefault(value, row)
    return first


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
    if not visible:
        return pl.DataFrame(schema=schema)
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


def _contest(rows: Sequence[_Device], ranks: pl.DataFrame) -> None:
    """Remove the GPU of devices with a known ordinal only, if processes of different ranks share it."""
    rank_of: dict[int, int] = {}
    for key, rank in zip(ranks["process_key"].to_list(), ranks["rank"].to_list(), strict=True):
        rank_of.setdefault(key, rank)
    guessed: dict[tuple[int | None, int], set[int]] = {}
    for row in rows:
        row.rank = rank_of.get(row.process_key)
        if not row.is_recorded and row.rank is not None:
            guessed.setdefault((row.at, row.ordinal), set()).add(row.rank)
    for row in rows:
        if not row.is_recorded and len(guessed.get((row.at, row.ordinal), ())) > 1:
            row.is_contested = True
            row.at = row.number = row.uuid = row.bus_location = None


def _label(rows: Sequence[_Device]) -> None:
    """Label each physical GPU; unlisted ones are distinguished by uuid, else by id, else by ordinal."""
    uuids: dict[int | None, set[str | None]] = {}
    for row in rows:
        uuids.setdefault(row.at, set()).add(row.uuid)
    physical: dict[str, _Physical] = {}
    of_row = []
    for row in rows:
        is_split = row.at is not None and len(uuids[row.at]) > 1
        preferred = next(number for number in (row.number, row.gpu, row.ordinal) if number is not None)
        gpu = physical.setdefault(_name_physical(row, is_split=is_split), _Physical(preferred=preferred))
        gpu.preferred = min(gpu.preferred, preferred)
        gpu.rank = min((rank for rank in (gpu.rank, row.rank) if rank is not None), default=None)
        gpu.is_split |= is_split
        of_row.append(gpu)
    ordered = sorted(
        physical.items(),
        key=lambda item: (item[1].preferred, item[1].rank is None, item[1].rank or 0, item[0]),
    )
    whole = [gpu.preferred for gpu in physical.values() if not gpu.is_split]
    is_repeated = len({*whole}) < len(whole)
    parts: dict[int, int] = {}
    for index, (_, gpu) in enumerate(ordered):
        part = parts[gpu.preferred] = parts.get(gpu.preferred, -1) + 1
        gpu.label = f"GPU {index if is_repeated else gpu.preferred}" + (
            f" MIG {part}" if gpu.is_split else ""
        )
    for row, gpu in zip(rows, of_row, strict=True):
        row.label = gpu.label


class _Physical(Struct, kw_only=True):
    """A physical GPU, or a part of one."""

    preferred: int  # its number, if no other GPU has it
    rank: int | None = None  # the lowest
    is_split: bool = False
    label: str = ""


def _name_physical(row: _Device, *, is_split: bool) -> str:
    """Return the best identity of the physical GPU of a device."""
    if is_split and row.uuid is not None:
        return f"part {row.uuid}"
    if row.is_contested:
        return f"rank {-1 if row.rank is None else row.rank} {row.ordinal}"
    for column, value in (("at", row.at), ("uuid", row.uuid), ("gpu", row.gpu)):
        if value is not None:
            return f"{column} {value}"
    return f"ordinal {row.ordinal}"

"""Identity of a recording: Session, PROCESSES, THREADS, STREAMS, RANKS, GPUS, DEVICES, and its fingerprint.

CUDA numbers devices in each process: with `CUDA_VISIBLE_DEVICES`, ordinal 0 of two processes can be two GPUs.
Sources, best first: the table from (pid, ordinal) to a GPU and its uuid; `CUDA_VISIBLE_DEVICES` of the
launched program; the ordinal in the process of nsys. GPUs are numbered as in `nvidia-smi`: by bus location,
among all of the machine. A partitioned GPU (MIG) is several devices at one bus location, each with its own
uuid.

Sources of ranks, best first: MPI; NCCL, in the communicator of all ranks; launcher variables; names of XLA's
threads. `nsys_pp.roster` also uses names of files, with all reports.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import gather, list_distinct, numbers, pack
from nsys_pp.arrays.search import group_pairs, number_keys
from nsys_pp.errors import describe_path
from nsys_pp.frames.conform import build_frame, conform
from nsys_pp.frames.ids import (
    find_machine_folder,
    list_process_keys,
    pid,
    process_key,
    strip_uuid,
    tid,
)
from nsys_pp.frames.launchers import find_rank, list_visible
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import DEVICES, GPUS, PROCESSES, RANKS, STREAMS, THREADS, Session
from nsys_pp.frames.roster import MOST_RANKS
from nsys_pp.model.names import resolve

_MOST_SHIFT_NS = 1 << 62


def build_session(raw: RawReport, launcher: dict[str, str], ranks: pl.DataFrame) -> Session:
    """Build the session.

    Args:
        raw: The report.
        launcher: Its variables; the first value of each.
        ranks: `RANKS`.
    """
    facts = first_values(raw["facts"])
    # on Linux nsys writes the pid namespace as id of the system, which does not identify a machine
    system_id = facts.get("system_id", "")
    own_id = system_id if system_id and not system_id.startswith("pid:") else None
    hostname, hardware_id = facts.get("hostname"), facts.get("hardware_id", own_id)
    machine, machine_source = _name_machine(hostname, hardware_id, Path(describe_path(raw.path)))
    shift = read_time_shift(raw)
    duration = raw["capture"]["duration"].max()
    epoch, start = (
        find_first(raw[frame][column])
        for frame, column in (("session", "utc_epoch"), ("capture", "session_start"))
    )
    # the exporter shifts events and the start, neither the epoch nor the duration
    origin = None if epoch is None or start is None else epoch - (start - shift)
    is_only = ranks["rank"].n_unique() == 1  # of a report of several ranks, none is the report's
    rank, rank_source = ranks.select("rank", "rank_source").row(0) if is_only else (None, None)
    return Session(
        nsys_version=facts.get("nsys_version"),
        schema_version=facts.get("schema_version"),
        driver_version=facts.get("driver_version"),
        cuda_version=_format_cuda_version(facts.get("cuda_driver_version")),
        hostname=hostname,
        hardware_id=hardware_id,
        machine=machine,
        machine_source=machine_source,
        utc_epoch_ns=epoch,
        system_clock_ns=find_first(raw["session"]["system_clock"]),
        origin_ns=origin if origin is not None and abs(origin) < _MOST_SHIFT_NS else None,
        time_shift_ns=shift,
        capture_end_ns=duration + shift if isinstance(duration, int) else None,
        graph_mode=facts.get("graph_mode"),
        launcher=launcher,
        rank=rank,
        rank_source=rank_source,
    )


def read_time_shift(raw: RawReport) -> int:
    """Read the nanoseconds that the exporter added to all times; 0 where they are unknown or damaged."""
    try:
        shift = int(first_values(raw["facts"]).get("time_shift_ns", "0"))
    except ValueError:
        return 0
    return shift if abs(shift) < _MOST_SHIFT_NS else 0


def find_first(values: pl.Series) -> int | None:
    """Return the first value that is not null; None without any."""
    return next((int(value) for value in values.to_list() if value is not None), None)


def first_values(facts: pl.DataFrame) -> dict[str, str]:
    """Return the first value of each name."""
    return dict(facts.drop_nulls().unique("name", keep="first", maintain_order=True).iter_rows())


def _name_machine(hostname: str | None, hardware_id: str | None, path: Path) -> tuple[str, str]:
    if hostname:
        return hostname, "hostname"
    if hardware_id:
        return hardware_id, "hardware id"
    folder = find_machine_folder(path)
    return (folder, "folder") if folder else (path.stem, "file name")


def _format_cuda_version(text: str | None) -> str | None:
    """Format a version of CUDA, which is 1000 * major + 10 * minor (CUDA_VERSION of cuda.h).

    >>> _format_cuda_version("12040"), _format_cuda_version("unknown"), _format_cuda_version(None)
    ('12.4', 'unknown', None)
    """
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 6:
        return text
    return f"{int(text) // 1000}.{int(text) % 1000 // 10}"


_UINT32 = 1 << 32


def build_threads(raw: RawReport, events: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """List the threads with events; nsys records all threads of the machine, and its own.

    Args:
        raw: The report.
        events: Frames with a `thread_key`.

    Returns:
        `THREADS` by `thread_key`.
    """
    # the last name of a thread: it may rename itself
    listed = _name_keys("thread_key", events, dict(name_threads(raw).iter_rows()))
    keys = listed["thread_key"]
    return conform(listed.hstack([process_key(keys).alias("process_key"), tid(keys).alias("tid")]), THREADS)


def name_threads(raw: RawReport) -> pl.DataFrame:
    """List the names of threads, with their `thread_key`, in the order of the export."""
    threads = raw["thread_names"]
    names = resolve(threads["name_id"], raw["strings"], dtype=pl.String())
    named = build_frame([threads["thread"].alias("thread_key"), names.alias("name")])
    return named.drop_nulls("name") if names.null_count() else named


def build_processes(raw: RawReport, events: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """List the processes with events.

    Args:
        raw: The report.
        events: Frames with a `process_key`.

    Returns:
        `PROCESSES` by `process_key`.
    """
    listed = _name_keys("process_key", events, dict(raw["processes"].select("process", "name").iter_rows()))
    return conform(listed.hstack([pl.Series("pid", pid(listed["process_key"].to_numpy()))]), PROCESSES)


def build_streams(raw: RawReport, processes: pl.DataFrame) -> pl.DataFrame:
    """List the known streams of processes with events.

    Returns:
        `STREAMS` by process, context and stream.
    """
    streams = raw["streams"]
    kind_of = dict(zip(_list_streams(streams), streams.select("priority", "kind").iter_rows(), strict=True))
    name_of = dict(zip(_list_streams(raw["stream_names"]), raw["stream_names"]["name"], strict=True))
    default = {*_list_streams(raw["contexts"], "default_stream")}
    known = {*processes["process_key"].to_list()}
    rows = []
    for key in sorted(key for key in {*kind_of, *name_of, *default} if None not in key and key[0] in known):
        priority, kind = kind_of.get(key, (None, None))
        if priority is not None and priority >= _UINT32 // 2:  # a negative one, as 32 unsigned bits
            priority -= _UINT32
        rows.append((*key, name_of.get(key), priority, kind == "default" or key in default))
    return pl.DataFrame(rows, schema=STREAMS, orient="row")


def _name_keys(column: str, events: Iterable[pl.DataFrame], name_of: Mapping[int, str]) -> pl.DataFrame:
    parts = [
        np.zeros(0, dtype=np.int64),
        *(frame[column].unique().drop_nulls().to_numpy() for frame in events),
    ]
    keys = list_distinct(np.concatenate(parts))
    names = pl.Series("name", [*map(name_of.get, keys.tolist())], dtype=pl.String)
    return build_frame([pl.Series(column, keys), names])


def _list_streams(frame: pl.DataFrame, column: str = "stream") -> Iterator[tuple[int | None, ...]]:
    return zip(
        list_process_keys(frame).to_list(), frame["context"].to_list(), frame[column].to_list(), strict=True
    )


_KEYS = ["process_key", "device_id"]
_XLA_PREFIX = "XlaLauncher:#"
RANK_THREAD = r"^XlaLauncher:#global=(?<rank>\d{1,9}),local=(?<device_id>\d{1,9}),process=\d"


def build_ranks(
    raw: RawReport, gpu_ops: pl.DataFrame, nccl_events: pl.DataFrame, launcher: Mapping[str, str]
) -> pl.DataFrame:
    """Find the ranks of processes.

    Args:
        raw: The report.
        gpu_ops: `GPU_OPS`.
        nccl_events: From `read_nccl_events`; empty if they were not read, and then without ranks of NCCL.
        launcher: Allow-listed variables of the launched program.

    Returns:
        `RANKS`; each process by its best source.
    """
    # processes with CUDA, by tables that are always read
    owners = pl.concat([list_process_keys(raw[table]) for table in ("contexts", "streams")]).drop_nulls()
    owners = gpu_ops["process_key"] if owners.is_empty() else owners
    of_launcher = _from_launcher(owners.unique().drop_nulls().to_list(), launcher)
    ranks = RANKS.to_frame()
    for source in (
        _from_mpi(raw, of_launcher["world_size"]),
        _from_nccl(nccl_events, of_launcher["world_size"]),
        of_launcher,
        _from_xla(raw),
    ):
        added = source.join(ranks, on="process_key", how="anti", nulls_equal=True, maintain_order="left")
        ranks = pl.concat([ranks, added])
    is_possible = pl.col("rank").is_between(0, MOST_RANKS - 1)  # missing ranks are listed up to the last one
    for rank, source in ranks.filter(~is_possible).select("rank", "rank_source").head(1).rows():
        warnings.warn(
            f"`{raw.path}`: rank {rank} of {source} is ignored; expected 0 to {MOST_RANKS - 1:,}",
            stacklevel=4,
        )
    size = pl.col("world_size")
    ranks = ranks.filter(is_possible).with_columns(pl.when(size.is_between(1, MOST_RANKS)).then(size))
    named = ranks.drop_nulls("process_key")  # null: the only process, already ranked by another source
    return (ranks if named.is_empty() else named).sort(_KEYS, nulls_last=True)


def pick_world(nccl_events: pl.DataFrame, world_size: int | None) -> pl.DataFrame:
    """Find the ranks in the communicator of all ranks, by NCCL's creation of communicators.

    It is the largest communicator, unless the number of ranks is known and differs, or two processes have the
    same rank in it: then it is one of several groups.

    Args:
        nccl_events: Columns of `read_nccl_events`.
        world_size: Number of ranks; None: unknown.

    Returns:
        Columns `process_key`, `device_id`, `rank`, `rank_count`; one row per process and device.
    """
    created = nccl_events.drop_nulls(["process_key", "rank", "rank_count"]).sort("range_id")
    size = created["rank_count"].max()
    is_alone = size == 1 and world_size != 1
    if size is None or is_alone or (world_size is not None and size != world_size):
        return created.clear()
    world = created.filter(pl.col("rank_count") == size).unique(_KEYS, keep="first", maintain_order=True)
    return world.clear() if world["rank"].is_duplicated().any() else world


def _from_mpi(raw: RawReport, world_size: pl.Series) -> pl.DataFrame:
    ranks = raw["ranks"].select("rank", process_key=process_key(pl.col("thread"))).unique()
    size = raw["mpi_communicators"]["size"].max() or world_size.max()
    return _conform(ranks.filter(pl.len().over("process_key") == 1), "MPI", world_size=size)


def _from_nccl(nccl_events: pl.DataFrame, world_size: pl.Series) -> pl.DataFrame:
    size = world_size.max()
    world = pick_world(nccl_events, size if isinstance(size, int) else None)
    return _conform(world, "NCCL", world_size=world["rank_count"].max())


def _from_launcher(processes: Sequence[int], launcher: Mapping[str, str]) -> pl.DataFrame:
    """Read the rank of the launcher if nsys launched one process: else the variables describe the node."""
    launched = find_rank(launcher)
    if launched is None or len(processes) > 1:
        return RANKS.to_frame()
    row = (processes[0] if processes else None, None, launched.rank, launched.source, launched.world_size)
    return pl.DataFrame([row], schema=RANKS, orient="row")


def rank_main_process(
    devices: pl.DataFrame, gpu_ops: pl.DataFrame, launcher: Mapping[str, str]
) -> pl.DataFrame:
    """Give the rank of the launcher to one of several processes on one GPU: that with the most operations.

    Others are programs that it started, as an evaluation. Processes on several GPUs are the ranks of a node.

    Args:
        devices: `DEVICES`.
        gpu_ops: `GPU_OPS`.
        launcher: Variables of the launched program.

    Returns:
        `RANKS`.
    """
    is_of_one = devices["is_recorded"].all() or "LOCAL_RANK" in launcher  # else each may see its own GPU
    if devices["gpu"].n_unique() != 1 or not is_of_one:
        return RANKS.to_frame()
    counts = gpu_ops["process_key"].drop_nulls().value_counts(sort=True)
    return _from_launcher(counts["process_key"].to_list()[:1], launcher)


def _from_xla(raw: RawReport) -> pl.DataFrame:
    """Read the names of XLA's threads, one per device: its number among all devices, and in its process."""
    threads = name_threads(raw)
    if not any(name.startswith(_XLA_PREFIX) for name in threads["name"]):
        return RANKS.to_frame()
    threads = threads.filter(pl.col("name").str.starts_with(_XLA_PREFIX))
    numbers = pl.col("name").str.extract_groups(RANK_THREAD).struct.unnest().cast(pl.Int64)
    threads = (
        threads.select(numbers, process_key=process_key(pl.col("thread_key")))
        .drop_nulls(["rank", "device_id"])
        .unique()
    )
    return _conform(threads.filter(pl.len().over(_KEYS) == 1), "XLA", world_size=None)


def _conform(ranks: pl.DataFrame, source: str, *, world_size: object) -> pl.DataFrame:
    if "device_id" not in ranks.columns:
        ranks = ranks.with_columns(device_id=pl.lit(None, dtype=pl.Int32))
    size = pl.lit(world_size if isinstance(world_size, int) else None, dtype=pl.Int64)
    return conform(ranks.with_columns(rank_source=pl.lit(source), world_size=size), RANKS)


_NO_UUID = "00000000-0000-0000-0000-000000000000"


def build_gpus(raw: RawReport, listed: pl.DataFrame) -> pl.DataFrame:
    """List the GPUs of the report, used or not.

    Args:
        raw: The report.
        listed: From `number_gpus`.

    Returns:
        `GPUS` along the bus.
    """
    used = (
        raw["cuda_devices"]
        .select(_clean_uuid())
        .drop_nulls()
        .unique()
        .filter(~pl.col("uuid").is_in(listed["uuid"].drop_nulls().implode()))
    )
    gpus = pl.concat([conform(listed, GPUS), used], how="diagonal").pipe(conform, GPUS)
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
        `DEVICES` by process and ordinal: devices with operations or, if operations were not read, devices
            with
        CUDA contexts.
    """
    rows = [_Device(process_key=key, device=device) for key, device in _list_used(raw, gpu_ops)]
    _identify(rows, raw["cuda_devices"], gpus, _ordinals(gpus, list_visible(launcher)))
    _contest(rows, ranks)
    _label(rows)
    return pl.DataFrame(
        [
            (
                *(row.process_key, row.device, row.label, row.name),
                *(row.uuid, row.bus_location, row.is_recorded),
            )
            for row in rows
        ],
        schema=DEVICES,
        orient="row",
    )


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

    @property
    def preferred(self) -> int:
        """The number of its GPU, if no other GPU has it."""
        return next(number for number in (self.number, self.gpu, self.ordinal) if number is not None)


def _list_used(raw: RawReport, gpu_ops: pl.DataFrame) -> list[tuple[int, int]]:
    """List the processes and ordinals with operations or, if these were not read, with contexts.

    Ascending.
    """
    if "ops" in raw.groups:
        process, device = gpu_ops["process_key"], gpu_ops["device_id"]
    else:
        process, device = list_process_keys(raw["contexts"]), raw["contexts"]["device"]
    first = number_keys(pack(numbers(process), numbers(device)))[0]
    pairs = zip(gather(process, first).to_list(), gather(device, first).to_list(), strict=True)
    return sorted(pair for pair in pairs if None not in pair)


def _identify(
    rows: Sequence[_Device], mapping: pl.DataFrame, gpus: pl.DataFrame, visible: Mapping[int, _Visible]
) -> None:
    # by the best source
    keys = zip(mapping["pid"].to_list(), mapping["device"].to_list(), strict=True)
    uuids = mapping.select(_clean_uuid()).to_series()
    mapped = dict(zip(keys, zip(mapping["gpu"], uuids, strict=True), strict=True))  # the last of a key
    by_id, by_uuid, by_ordinal = (  # reversed: the first row of a value stays
        {value: row for row, value in reversed([*enumerate(gpus[name].to_list())]) if value is not None}
        for name in ("id", "uuid", "ordinal")
    )
    listed = gpus[["number", "name", "bus_location", "uuid"]].rows()
    is_only = gpus.height - gpus["bus_location"].null_count() == 1
    for row in rows:
        row.gpu, row.uuid = mapped.get((pid(row.process_key), row.device), (None, None))
        # a device that is mapped to an unlisted GPU is not the GPU with its ordinal
        is_mapped = row.gpu is not None or row.uuid is not None
        ordinal, visible_at, visible_uuid = visible.get(row.device, (None, None, None))
        row.ordinal = row.device if ordinal is None else ordinal
        row.uuid = row.uuid if is_mapped else visible_uuid
        is_identified = is_mapped or row.uuid is not None
        row.is_recorded = is_identified or row.device in visible or is_only
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
    gpus, cuda_gpus = raw["gpus"], raw["cuda_gpus"]
    # of GPUs with one ordinal, the first one counts; ids are in the order of CUDA, and rows in none
    gpus = gpus.with_columns(_clean_uuid()).unique().sort("id", "bus_location", "uuid", nulls_last=True)
    if gpus["ordinal"].is_null().all():
        # of 2019, with ordinals in another table; or of a tool that writes only ids
        cuda_gpus = cuda_gpus.select("bus_location", of_cuda="ordinal").drop_nulls().unique("bus_location")
        gpus = gpus.join(cuda_gpus, on="bus_location", how="left", maintain_order="left").with_columns(
            ordinal=pl.coalesce("of_cuda", "id")
        )
    position = pl.col("bus_location").str.to_lowercase().rank("dense") - 1
    on_bus = gpus["bus_location"].is_not_null()
    # integrated graphics are listed as well, without a bus location
    number = pl.when(pl.lit(on_bus.any())).then(position).otherwise(pl.col("id"))
    return gpus.with_columns(number=number.cast(pl.Int64)).with_row_index("at")


def _clean_uuid() -> pl.Expr:
    uuid = pl.col("uuid").str.replace(r"^(?i:MIG-GPU-|MIG-|GPU-)", "").str.to_lowercase()
    return pl.when(uuid != _NO_UUID).then(uuid).alias("uuid")


_Visible = tuple[int | None, int | None, str | None]  # ordinal of nsys, row of `number_gpus`, and uuid


def _ordinals(gpus: pl.DataFrame, visible: list[str]) -> dict[int, _Visible]:
    """Map the ordinals of a process by the list of visible devices.

    Numbers in the list are ordinals of nsys only if nsys lists all of these devices: else the same list
    applied to nsys, and its ordinals are those of the process. If nsys has several GPUs with one ordinal
    (unusable ones are 0), numbers are those of `nvidia-smi`. Ids may be abbreviated.
    """
    on_bus = gpus.filter(pl.col("bus_location").is_not_null())
    found: dict[int, _Visible] = {}
    for device, entry in enumerate(visible):
        if not entry.isdecimal():
            matches = on_bus.filter(pl.col("uuid").str.starts_with(strip_uuid(entry)))
            whole = strip_uuid(entry) if len(strip_uuid(entry)) >= len(_NO_UUID) else None
            if matches.height == 1:
                found[device] = None, matches["at"][0], matches["uuid"][0]
            elif whole is not None:  # a part of a GPU, or no GPU is listed
                found[device] = None, None, whole
        elif on_bus["ordinal"].is_duplicated().any():
            matches = on_bus.filter(pl.col("number") == int(entry))
            found[device] = None, matches["at"][0] if matches.height == 1 else None, None
        elif gpus.is_empty() or {int(number) for number in visible} <= set(gpus["ordinal"].drop_nulls()):
            found[device] = int(entry), None, None
    return found


def _contest(rows: Sequence[_Device], ranks: pl.DataFrame) -> None:
    """Remove the GPU of devices with a known ordinal only, if processes of different ranks share it."""
    rank_of = dict(ranks.select("process_key", "rank").reverse().iter_rows())  # the first one of a process
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
    split = {at for at, own in uuids.items() if at is not None and len(own) > 1}
    physical = group_pairs((_name_physical(row, is_split=row.at in split), row) for row in rows)
    preferred = {name: min(row.preferred for row in own) for name, own in physical.items()}
    ranks = {name: [row.rank for row in own if row.rank is not None] for name, own in physical.items()}
    ordered = sorted(
        physical, key=lambda name: (preferred[name], not ranks[name], min(ranks[name], default=0), name)
    )
    parts = {name for name, own in physical.items() if any(row.at in split for row in own)}
    whole = [number for name, number in preferred.items() if name not in parts]
    is_repeated = len({*whole}) < len(whole)
    part_of: dict[int, int] = {}
    for index, name in enumerate(ordered):
        part = part_of[preferred[name]] = part_of.get(preferred[name], -1) + 1
        label = f"GPU {index if is_repeated else preferred[name]}"
        for row in physical[name]:
            row.label = f"{label} MIG {part}" if name in parts else label


def _name_physical(row: _Device, *, is_split: bool) -> str:
    if is_split and row.uuid is not None:
        return f"part {row.uuid}"
    if row.is_contested:
        return f"rank {-1 if row.rank is None else row.rank} {row.ordinal}"
    for column, value in (("at", row.at), ("uuid", row.uuid), ("gpu", row.gpu)):
        if value is not None:
            return f"{column} {value}"
    return f"ordinal {row.ordinal}"


_TABLES = {  # whole rows of tables that are always read
    "session": ("utc_epoch", "system_clock"),
    "capture": ("duration",),
    "launcher": ("name", "value"),
    "gpus": ("uuid", "bus_location"),
    "contexts": ("host", "vm", "pid", "device", "context"),
    "streams": ("host", "vm", "pid", "context", "stream"),
    "processes": ("process",),
    "thread_names": ("thread",),
    "ranks": ("thread", "rank"),
}


def compute_fingerprint(raw: RawReport) -> int:
    """Hash the facts that identify a recording.

    These are its start and duration, machine, processes, threads, GPUs, contexts, streams, launcher
    variables, and the numbers of calls and operations. They depend neither on the time shift of an export and
    the name of the file nor on the groups that were read.

    Returns:
        64 bits, unsigned: equal for two exports of one recording, different for two recordings.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in _list_facts(raw):
        digest.update(part.encode("utf-8", "surrogateescape") + b"\0")
    return int.from_bytes(digest.digest(), "big")


def _list_facts(raw: RawReport) -> Iterator[str]:
    is_of_machine = raw["facts"]["name"].is_in(["hostname", "hardware_id", "system_id"])
    yield from _format_rows("facts", raw["facts"].filter(is_of_machine).rows())
    for table, columns in _TABLES.items():
        yield from _format_rows(table, raw[table].select(columns).rows())
    yield from (f"{table} {raw.recorded.get(table) or 0}" for table in ("calls", "kernels", "copies", "sets"))


def _format_rows(table: str, rows: Iterable[tuple[str | int | None, ...]]) -> Iterator[str]:
    """Format each distinct row, in an order that does not depend on the export."""
    yield f"{table}:"
    lines = {"\t".join("" if value is None else str(value) for value in row) for row in rows}
    yield from sorted(lines, key=lambda line: line.encode("utf-8", "surrogateescape"))

"""Which rank each process is, as far as its own report says -> RANKS.

Best first: MPI; the rank that NCCL was given in the communicator of all; the launcher's variables;
the names that XLA gives its threads. What file names say is asked where all reports are at hand:
`nsys_pp.roster.roster`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.ids import build_process_key, process_key
from nsys_pp.frames.launcher import find_rank
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import RANKS
from nsys_pp.model.processes import name_threads

_KEYS = ["process_key", "device_id"]
_XLA_PREFIX = "XlaLauncher:#"
_XLA_THREAD = r"^XlaLauncher:#global=(?<rank>\d{1,9}),local=(?<device_id>\d{1,9}),process=\d"


def build_ranks(
    raw: RawReport, gpu_ops: pl.DataFrame, nccl_events: pl.DataFrame, launcher: Mapping[str, str]
) -> pl.DataFrame:
    """Find the rank of every process that has one.

    Args:
        raw: The report.
        gpu_ops: `GPU_OPS`.
        nccl_events: From `read_nccl_events`; empty where they were not read, and then NCCL tells nothing.
        launcher: The allow-listed variables of what nsys launched.

    Returns:
        `RANKS`; of each process only what its best source says.
    """
    launched = _from_launcher(list_gpu_processes(raw, gpu_ops), launcher)
    ranks = RANKS.to_frame()
    for source in (
        _from_mpi(raw, launched["world_size"]),
        _from_nccl(nccl_events, launched["world_size"]),
        launched,
        _from_xla(raw),
    ):
        if source.is_empty():
            continue
        known = source.join(ranks, on="process_key", how="anti", nulls_equal=True, maintain_order="left")
        ranks = pl.concat([ranks, known])
    named = ranks.drop_nulls("process_key")  # the one process that there is: named by another source
    return (ranks if named.is_empty() else named).sort(_KEYS, nulls_last=True)


def list_gpu_processes(raw: RawReport, gpu_ops: pl.DataFrame) -> list[int]:
    """List the processes that used CUDA, by tables that are always read where they are there."""
    owners = pl.concat([raw[table][["host", "vm", "pid"]] for table in ("contexts", "streams")])
    keys = build_process_key(pl.col("host").fill_null(0), pl.col("vm").fill_null(1), pl.col("pid"))
    found = owners.select(keys.drop_nulls().unique().sort()).to_series()
    return (gpu_ops["process_key"].unique().drop_nulls().sort() if found.is_empty() else found).to_list()


def only_rank(ranks: pl.DataFrame) -> tuple[int | None, str | None]:
    """Give the rank of a report of one rank, and its source; a report of several has none of its own."""
    if ranks["rank"].n_unique() != 1:
        return None, None
    return ranks["rank"][0], ranks["rank_source"][0]


def pick_world(nccl_events: pl.DataFrame, world_size: int | None) -> pl.DataFrame:
    """Find the ranks among all in what NCCL was told when communicators were made.

    The largest communicator is taken for that of all, unless the number of ranks is known and
    differs, or two processes say that they are the same rank of it: then it is one of several groups.

    Args:
        nccl_events: Columns of `read_nccl_events`.
        world_size: How many ranks there are, where that is known.

    Returns:
        Columns `process_key`, `device_id`, `rank`, `rank_count`; one row per process and device.
    """
    made = nccl_events.drop_nulls(["process_key", "rank", "rank_count"]).sort("range_id")
    size = made["rank_count"].max()
    is_alone = size == 1 and world_size != 1
    if size is None or is_alone or (world_size is not None and size != world_size):
        return made.clear()
    world = made.filter(pl.col("rank_count") == size).unique(_KEYS, keep="first", maintain_order=True)
    return world.clear() if world["rank"].is_duplicated().any() else world


def _from_mpi(raw: RawReport, launched: pl.Series) -> pl.DataFrame:
    if raw["ranks"].is_empty():
        return RANKS.to_frame()
    ranks = raw["ranks"].drop_nulls().select("rank", process_key=process_key(pl.col("thread"))).unique()
    size = raw["mpi_communicators"]["size"].max() or launched.max()
    return _conform(ranks.filter(pl.len().over("process_key") == 1), "MPI", world_size=size)


def _from_nccl(nccl_events: pl.DataFrame, launched: pl.Series) -> pl.DataFrame:
    if nccl_events.is_empty():
        return RANKS.to_frame()
    size = launched.max()
    world = pick_world(nccl_events, size if isinstance(size, int) else None)
    return _conform(world, "NCCL", world_size=world["rank_count"].max())


def _from_launcher(processes: Sequence[int], launcher: Mapping[str, str]) -> pl.DataFrame:
    """Take the launcher's word where nsys launched one process: else its variables are those of the node."""
    told = find_rank(launcher)
    if told is None or len(processes) > 1:
        return RANKS.to_frame()
    key = processes[0] if processes else None
    row = (key, None, told.rank, told.source, told.world_size)
    return pl.DataFrame([row], schema=RANKS, orient="row")


def _from_xla(raw: RawReport) -> pl.DataFrame:
    """Read the threads that XLA starts, one per device: its number among all, and in its process."""
    threads = name_threads(raw).filter(pl.col("name").str.starts_with(_XLA_PREFIX))
    if threads.is_empty():
        return RANKS.to_frame()
    told = pl.col("name").str.extract_groups(_XLA_THREAD).struct.unnest().cast(pl.Int64)
    threads = threads.select(told, process_key=process_key(pl.col("thread_key")))
    threads = threads.drop_nulls(["rank", "device_id"]).unique()
    return _conform(threads.filter(pl.len().over(_KEYS) == 1), "XLA", world_size=None)


def _conform(ranks: pl.DataFrame, source: str, *, world_size: object) -> pl.DataFrame:
    if "device_id" not in ranks.columns:
        ranks = ranks.with_columns(device_id=pl.lit(None, dtype=pl.Int32))
    size = pl.lit(world_size if isinstance(world_size, int) else None, dtype=pl.Int64)
    return conform(ranks.with_columns(rank_source=pl.lit(source), world_size=size), RANKS)

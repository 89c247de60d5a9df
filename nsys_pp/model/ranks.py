"""Ranks of processes in their own report -> RANKS.

Sources, best first: MPI; NCCL, in the communicator of all ranks; launcher variables; names of XLA's threads.
`nsys_pp.roster.rank_sources` also uses names of files, with all reports.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.ids import list_process_keys, process_key
from nsys_pp.frames.launcher_variables import find_rank
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import RANKS
from nsys_pp.frames.roster import MOST_RANKS
from nsys_pp.model.processes import name_threads

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
    of_launcher = _from_launcher(list_gpu_processes(raw, gpu_ops), launcher)
    ranks = RANKS.to_frame()
    for source in (
        _from_mpi(raw, of_launcher["world_size"]),
        _from_nccl(nccl_events, of_launcher["world_size"]),
        of_launcher,
        _from_xla(raw),
    ):
        if source.is_empty():
            continue
        if ranks.is_empty():
            ranks = source
            continue
        added = source.join(ranks, on="process_key", how="anti", nulls_equal=True, maintain_order="left")
        ranks = pl.concat([ranks, added])
    if ranks.is_empty():
        return ranks
    ranks = _drop_impossible(ranks, raw.path)
    if ranks.height < 2:
        return ranks
    named = ranks.drop_nulls("process_key")  # null: the only process, already ranked by another source
    return (ranks if named.is_empty() else named).sort(_KEYS, nulls_last=True)


def _drop_impossible(ranks: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Drop ranks that no run has, with a warning: missing ranks are listed up to the last one."""
    pairs = zip(ranks["rank"].to_list(), ranks["world_size"].to_list(), strict=True)
    if all(
        rank is not None and 0 <= rank < MOST_RANKS and (size is None or 1 <= size <= MOST_RANKS)
        for rank, size in pairs
    ):
        return ranks
    is_possible = pl.col("rank").is_between(0, MOST_RANKS - 1)
    for rank, source in ranks.filter(~is_possible).select("rank", "rank_source").head(1).rows():
        warnings.warn(
            f"`{path}`: rank {rank} of {source} is ignored; expected 0 to {MOST_RANKS - 1:,}", stacklevel=5
        )
    size = pl.col("world_size")
    return ranks.filter(is_possible).with_columns(pl.when(size.is_between(1, MOST_RANKS)).then(size))


def list_gpu_processes(raw: RawReport, gpu_ops: pl.DataFrame) -> list[int]:
    """List the processes with CUDA, by tables that are always read."""
    owners = (key for table in ("contexts", "streams") for key in list_process_keys(raw[table]).to_list())
    processes = sorted({key for key in owners if key is not None})
    return processes or gpu_ops["process_key"].unique().drop_nulls().sort().to_list()


def only_rank(ranks: pl.DataFrame) -> tuple[int | None, str | None]:
    """Return the rank of a report and its source; None for a report of several ranks."""
    if ranks["rank"].n_unique() != 1:
        return None, None
    return ranks["rank"][0], ranks["rank_source"][0]


def pick_world(nccl_events: pl.DataFrame, world_size: int | None) -> pl.DataFrame:
    """Find the ranks in the communicator of all ranks, by NCCL's creation of communicators.

    It is the largest communicator, unless the number of ranks is known and differs, or two processes have the same
    rank in it: then it is one of several groups.

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
    if raw["ranks"].is_empty():
        return RANKS.to_frame()
    ranks = raw["ranks"].select("rank", process_key=process_key(pl.col("thread"))).unique()
    size = raw["mpi_communicators"]["size"].max() or world_size.max()
    return _conform(ranks.filter(pl.len().over("process_key") == 1), "MPI", world_size=size)


def _from_nccl(nccl_events: pl.DataFrame, world_size: pl.Series) -> pl.DataFrame:
    if nccl_events.is_empty():
        return RANKS.to_frame()
    size = world_size.max()
    world = pick_world(nccl_events, size if isinstance(size, int) else None)
    return _conform(world, "NCCL", world_size=world["rank_count"].max())


def _from_launcher(processes: Sequence[int], launcher: Mapping[str, str]) -> pl.DataFrame:
    """Read the rank of the launcher if nsys launched one process: else the variables describe the node."""
    launched = find_rank(launcher)
    if launched is None or len(processes) > 1:
        return RANKS.to_frame()
    key = processes[0] if processes else None
    row = (key, None, launched.rank, launched.source, launched.world_size)
    return pl.DataFrame([row], schema=RANKS, orient="row")


def _from_xla(raw: RawReport) -> pl.DataFrame:
    """Read the names of XLA's threads, one per device: its number among all devices, and in its process."""
    threads = name_threads(raw)
    if not any(name.startswith(_XLA_PREFIX) for name in threads["name"]):
        return RANKS.to_frame()
    threads = threads.filter(pl.col("name").str.starts_with(_XLA_PREFIX))
    numbers = pl.col("name").str.extract_groups(RANK_THREAD).struct.unnest().cast(pl.Int64)
    threads = threads.select(numbers, process_key=process_key(pl.col("thread_key")))
    threads = threads.drop_nulls(["rank", "device_id"]).unique()
    return _conform(threads.filter(pl.len().over(_KEYS) == 1), "XLA", world_size=None)


def _conform(ranks: pl.DataFrame, source: str, *, world_size: object) -> pl.DataFrame:
    if "device_id" not in ranks.columns:
        ranks = ranks.with_columns(device_id=pl.lit(None, dtype=pl.Int32))
    size = pl.lit(world_size if isinstance(world_size, int) else None, dtype=pl.Int64)
    return conform(ranks.with_columns(rank_source=pl.lit(source), world_size=size), RANKS)

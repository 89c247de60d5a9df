"""Facts about one recording -> Session."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from nsys_pp.model.report import Session
from nsys_pp.raw import RawReport

# Which launcher says the rank, most telling first.
_RANK_VARIABLES = (
    *("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "PADDLE_TRAINER_ID"),
)
_MACHINE_FOLDER = "machine"


def build_session(raw: RawReport, gpu_ops: pl.DataFrame) -> Session:
    """Gather who recorded what, where and when."""
    facts = _first_values(raw["facts"])
    launcher = _first_values(raw["launcher"])
    hostname, hardware_id = facts.get("hostname"), _hardware_id(facts)
    machine, machine_source = _name_machine(hostname, hardware_id, raw.path)
    shift = _as_int(facts.get("time_shift_ns")) or 0
    duration = raw["capture"]["duration"].max()
    rank, rank_source = _find_rank(raw["ranks"], launcher, _count_gpu_processes(raw, gpu_ops))
    return Session(
        nsys_version=facts.get("nsys_version"),
        schema_version=facts.get("schema_version"),
        hostname=hostname,
        hardware_id=hardware_id,
        machine=machine,
        machine_source=machine_source,
        utc_epoch_ns=_first(raw["session"]["utc_epoch"]),
        system_clock_ns=_first(raw["session"]["system_clock"]),
        time_shift_ns=shift,
        # the exporter shifts events, not the duration
        capture_end_ns=duration + shift if isinstance(duration, int) else None,
        graph_mode=facts.get("graph_mode"),
        launcher=launcher,
        rank=rank,
        rank_source=rank_source,
    )


def _first(values: pl.Series) -> int | None:
    known = values.drop_nulls()
    return None if known.is_empty() else int(known[0])


def _first_values(facts: pl.DataFrame) -> dict[str, str]:
    known = facts.drop_nulls().unique("name", keep="first", maintain_order=True)
    return dict(known.select("name", "value").rows())


def _hardware_id(facts: dict[str, str]) -> str | None:
    if "hardware_id" in facts:
        return facts["hardware_id"]
    # on Linux nsys writes the pid namespace there, which tells no machine
    system_id = facts.get("system_id", "")
    return system_id if system_id and not system_id.startswith("pid:") else None


def _name_machine(hostname: str | None, hardware_id: str | None, path: Path) -> tuple[str, str]:
    if hostname:
        return hostname, "hostname"
    if hardware_id:
        return hardware_id, "hardware id"
    for folder in path.absolute().parents:
        if folder.name.lower().startswith(_MACHINE_FOLDER):
            return folder.name, "folder"
    return path.stem, "file name"


def _count_gpu_processes(raw: RawReport, gpu_ops: pl.DataFrame) -> int:
    """Count the processes that used CUDA, by tables that are always read, where they are there."""
    pids = pl.concat([raw["contexts"]["pid"], raw["streams"]["pid"]]).n_unique()
    return pids or gpu_ops["process_key"].n_unique()


def _find_rank(
    ranks: pl.DataFrame, launcher: dict[str, str], gpu_processes: int
) -> tuple[int | None, str | None]:
    """Find the one rank of the report; a report of several ranks has none of its own."""
    recorded = ranks["rank"].drop_nulls().unique()
    if len(recorded) == 1:
        return int(recorded.item()), "MPI"
    # what nsys launched may itself launch: then its variables are those of the node
    if len(recorded) > 1 or gpu_processes > 1:
        return None, None
    for variable in _RANK_VARIABLES:
        rank = _as_int(launcher.get(variable))
        if rank is not None and rank >= 0:
            return rank, variable
    return None, None


def _as_int(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None

"""Facts of a recording -> Session."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from nsys_pp.frames.ids import find_machine_folder
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import Session
from nsys_pp.model.ranks import only_rank

_MOST_SHIFT_NS = 1 << 62


def build_session(raw: RawReport, launcher: dict[str, str], ranks: pl.DataFrame) -> Session:
    """Build the session.

    Args:
        raw: The report.
        launcher: From `read_launcher`.
        ranks: `RANKS`.
    """
    facts = _first_values(raw["facts"])
    hostname, hardware_id = facts.get("hostname"), _hardware_id(facts)
    machine, machine_source = _name_machine(hostname, hardware_id, raw.path)
    shift = read_time_shift(raw)
    duration = raw["capture"]["duration"].max()
    epoch, start = (
        find_first(raw[frame][column])
        for frame, column in (("session", "utc_epoch"), ("capture", "session_start"))
    )
    rank, rank_source = only_rank(ranks)
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
        # the exporter shifts events and the start, neither the epoch nor the duration
        origin_ns=_subtract(epoch, start, shift),
        time_shift_ns=shift,
        capture_end_ns=duration + shift if isinstance(duration, int) else None,
        graph_mode=facts.get("graph_mode"),
        launcher=launcher,
        rank=rank,
        rank_source=rank_source,
    )


def _subtract(epoch: int | None, start: int | None, shift: int) -> int | None:
    """Return the UTC of the origin of nsys' clock; None where it is unknown, or no time."""
    if epoch is None or start is None:
        return None
    origin = epoch - (start - shift)
    return origin if abs(origin) < _MOST_SHIFT_NS else None


def read_launcher(raw: RawReport) -> dict[str, str]:
    """Read the launcher variables; the first value of each."""
    return _first_values(raw["launcher"])


def read_time_shift(raw: RawReport) -> int:
    """Read the nanoseconds that the exporter added to all times; 0 where they are unknown or damaged."""
    return _as_int(_first_values(raw["facts"]).get("time_shift_ns")) or 0


def find_first(values: pl.Series) -> int | None:
    """Return the first value that is not null; None without any."""
    return next((int(value) for value in values.to_list() if value is not None), None)


def _first_values(facts: pl.DataFrame) -> dict[str, str]:
    first: dict[str, str] = {}
    for name, value in facts.rows():
        if name is not None and value is not None:
            first.setdefault(name, value)
    return first


def _hardware_id(facts: dict[str, str]) -> str | None:
    if "hardware_id" in facts:
        return facts["hardware_id"]
    # on Linux nsys writes the pid namespace, which does not identify a machine
    system_id = facts.get("system_id", "")
    return system_id if system_id and not system_id.startswith("pid:") else None


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


def _as_int(text: str | None) -> int | None:
    try:
        value = None if text is None else int(text)
        return value if value is None or abs(value) < _MOST_SHIFT_NS else None
    except ValueError:
        return None

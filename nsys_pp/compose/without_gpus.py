"""Content that is drawn of reports without GPU operations, where the user chose none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nsys_pp.frames.choices import SHOW_KINDS
from nsys_pp.frames.part import PartOptions

_OF_HOSTS = ("mpi", "ucx")
# texts of the profiler and of unknown tables are drawn only if asked for: they may have secrets
OF_RUN = tuple(kind for kind in SHOW_KINDS if kind not in ("profiler", "other"))
"""Kinds of data on request that are drawn where no report of a run has GPU operations."""
_CONTENT = ("detail", "show", "flows")


def is_content_open(asked: Mapping[str, Any]) -> bool:
    """Return whether no level of detail and no kind of data is chosen; `asked` has fields of `PartOptions`, None where open."""
    return all(asked.get(name) is None for name in _CONTENT)


def is_usual(options: PartOptions) -> bool:
    """Return whether parts with these options have the content that is drawn where none is chosen."""
    usual = PartOptions()
    return all(getattr(options, name) == getattr(usual, name) for name in _CONTENT)


def draw_run(options: PartOptions) -> PartOptions:
    """Return the options of reports of a run without GPU operations."""
    return replace(options, detail="cpu", show=OF_RUN)


def draw_host(options: PartOptions) -> PartOptions:
    """Return the options of a report without GPU operations, in a run with some."""
    return replace(options, detail="cpu", show=_OF_HOSTS)


def describe_hosts(paths: Sequence[Path], *, has_rows: bool) -> str:
    """Describe the content that is drawn of reports without GPU operations; nothing without rows."""
    is_one = len(paths) == 1
    named = f"`{paths[0]}` has" if is_one else f"{len(paths):,} reports (`{paths[0]}` and others) have"
    what = f"{'its' if is_one else 'their'} CPU ranges, and calls of CUDA, MPI and UCX, are drawn"
    if not has_rows:
        what = "nothing else that a trace has by default was recorded"
    return f"{named} no GPU operations: {what} (`--show all` draws all else that reports hold)"

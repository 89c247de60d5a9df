"""Kinds of data in a report, and the options of `nsys profile` that record missing kinds."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import polars as pl
from msgspec import Struct

from nsys_pp.frames.conform import build_schema

RECORDED = build_schema(
    {  # one row per kind of data with rows
        "kind": pl.String,  # stable name
        "title": pl.String,
        "row_count": pl.Int64,
    },
    name="RECORDED",
)

MISSING = build_schema(
    {  # one row per kind of data without rows
        "kind": pl.String,
        "title": pl.String,
        "option": pl.String,  # of `nsys profile`
    },
    name="MISSING",
)

_WITH_CUDA = ("copies", "sets", "graphs", "synchronizations", "cuda_events")
_PLURAL_DEVICES_SINCE = (2024, 5)  # before, the option of the GPU metrics was in the singular
_NCCL_TRACE_SINCE = (2025, 6)


class _DataKind(Struct, frozen=True, kw_only=True):
    kind: str
    title: str
    tables: tuple[str, ...]  # names in the counts
    option: str | None = None  # None: never reported as missing


_KINDS = (
    _DataKind(kind="ranges", title="NVTX ranges", tables=("ranges",), option="--trace=nvtx"),
    _DataKind(kind="marks", title="NVTX marks", tables=("marks",)),
    _DataKind(kind="api_calls", title="CUDA calls", tables=("calls",), option="--trace=cuda"),
    _DataKind(kind="kernels", title="kernels", tables=("kernel",), option="--trace=cuda"),
    _DataKind(kind="copies", title="copies", tables=("memcpy",)),
    _DataKind(kind="sets", title="memory sets", tables=("memset",)),
    _DataKind(kind="graphs", title="whole CUDA graphs", tables=("graph",)),
    _DataKind(
        kind="graph_nodes",
        title="CUDA graph nodes",
        tables=("graph_nodes",),
        option="--cuda-graph-trace=node",
    ),
    _DataKind(kind="synchronizations", title="synchronizations", tables=("synchronizations",)),
    _DataKind(kind="cuda_events", title="CUDA events", tables=("cuda_events",)),
    _DataKind(kind="nccl_calls", title="NCCL calls", tables=("nccl_calls",), option="--trace=nccl"),
    _DataKind(
        kind="mpi_calls",
        title="MPI calls",
        tables=("mpi_messages", "mpi_collectives", "mpi_other"),
        option="--trace=mpi",
    ),
    _DataKind(kind="ucx_calls", title="UCX calls", tables=("ucx_calls",), option="--trace=ucx"),
    _DataKind(kind="cublas_calls", title="cuBLAS calls", tables=("cublas_calls",), option="--trace=cublas"),
    _DataKind(kind="cudnn_calls", title="cuDNN calls", tables=("cudnn_calls",), option="--trace=cudnn"),
    _DataKind(kind="os_calls", title="OS calls", tables=("os_calls",), option="--trace=osrt"),
    _DataKind(
        kind="cpu_samples", title="CPU samples", tables=("cpu_samples",), option="--sample=process-tree"
    ),
    _DataKind(
        kind="thread_switches",
        title="thread switches",
        tables=("thread_switches",),
        option="--cpuctxsw=process-tree",
    ),
    _DataKind(
        kind="gpu_memory", title="GPU memory use", tables=("cuda_memory",), option="--cuda-memory-usage=true"
    ),
    _DataKind(
        kind="gpu_metrics", title="GPU metrics", tables=("gpu_metrics",), option="--gpu-metrics-devices=all"
    ),
    _DataKind(
        kind="gpu_context_switches",
        title="GPU context switches",
        tables=("gpu_context_switches",),
        option="--gpuctxsw=true",
    ),
    _DataKind(
        kind="nic_metrics", title="network metrics", tables=("nic_metrics",), option="--nic-metrics=true"
    ),
)


def list_recorded(counts: Mapping[str, int]) -> pl.DataFrame:
    """List the kinds of data with rows.

    Args:
        counts: Rows of each table, and of ranges, marks, calls and each kind of GPU operation.

    Returns:
        `RECORDED`, the most important kind first.
    """
    rows = [(kind.kind, kind.title, _count(kind, counts)) for kind in _KINDS]
    return pl.DataFrame([row for row in rows if row[2]], schema=RECORDED, orient="row")


def name_titles(recorded: Collection[str]) -> list[str]:
    """Return the titles of kinds of data, the most important first, from their names (`name_recorded`).

    >>> name_titles({"kernels", "ranges"})
    ['NVTX ranges', 'kernels']
    """
    return [kind.title for kind in _KINDS if kind.kind in recorded]


def list_missing(counts: Mapping[str, int], *, nsys_version: str | None, has_graphs: bool) -> pl.DataFrame:
    """List the kinds of data without rows, with the options that record them.

    nsys writes no table without rows, so tracing may have been enabled without any event. Nodes of CUDA graphs are
    missing only if graphs were launched, calls of NCCL only if its kernels were recorded.

    Args:
        counts: As for `list_recorded`.
        nsys_version: Of the nsys whose options are named; the newest if None.
        has_graphs: Whether CUDA graphs were launched.

    Returns:
        `MISSING`, the most important kind first.
    """
    version = _parse_version(nsys_version)
    is_missing = {
        "graph_nodes": (has_graphs or "graph" in counts) and not counts.get("kernel_in_graph", 0),
        "nccl_calls": counts.get("communication", 0) > 0 and version >= _NCCL_TRACE_SINCE,
    }
    rows = [
        (kind.kind, kind.title, _spell_option(kind.option, version))
        for kind in _KINDS
        if kind.option is not None and not _count(kind, counts) and is_missing.get(kind.kind, True)
    ]
    return pl.DataFrame(rows, schema=MISSING, orient="row")


def name_option(kind: str, *, nsys_version: str | None) -> str:
    """Return the option of `nsys profile` that records a kind of data, as a version of nsys spells it.

    >>> name_option("gpu_metrics", nsys_version="2024.2.3.38"), name_option("gpu_metrics", nsys_version=None)
    ('--gpu-metrics-device=all', '--gpu-metrics-devices=all')
    """
    option = next(data.option for data in _KINDS if data.kind == kind)
    return _spell_option(option or "", _parse_version(nsys_version))


def list_missing_of(
    recorded: Collection[str], *, nsys_version: str | None, has_communication: bool
) -> pl.DataFrame:
    """List the kinds of data without rows, from the names of those with rows (`name_recorded`).

    Nodes of CUDA graphs are missing if graphs were traced as a whole.

    Args:
        recorded: Names of the kinds with rows.
        nsys_version: As for `list_missing`.
        has_communication: Whether there are kernels of NCCL.

    Returns:
        `MISSING`, the most important kind first.
    """
    counts = {table: 1 for kind in _KINDS if kind.kind in recorded for table in kind.tables}
    counts["communication"] = int(has_communication)
    return list_missing(counts, nsys_version=nsys_version, has_graphs=False)


def name_recorded(counts: Mapping[str, int]) -> list[str]:
    """List the names of the kinds of data with rows; counts as for `list_recorded`."""
    return [kind.kind for kind in _KINDS if _count(kind, counts)]


def explain_absence(needs: Collection[str], recorded: Collection[str]) -> str:
    """Explain why a report has no data of several kinds: tracing was not enabled, or there was no event.

    Args:
        needs: Names of the kinds without rows.
        recorded: Names of the kinds with rows; kinds with the same option were traced, too.

    >>> explain_absence(["os_calls"], ["kernels"])
    'not recorded: profile with `--trace=osrt`'
    >>> explain_absence(["copies", "sets"], ["kernels"]), explain_absence(["copies"], ["ranges"])
    ('none: there are no copies and no memory sets', 'not recorded: profile with `--trace=cuda`')
    """
    kinds = [kind for kind in _KINDS if kind.kind in needs]
    traced = {_traced_by(kind) for kind in _KINDS if kind.kind in recorded} - {None}
    missed = dict.fromkeys(option for kind in kinds if (option := _traced_by(kind)) and option not in traced)
    if missed:
        return f"not recorded: profile with {' or '.join(f'`{option}`' for option in missed)}"
    return "none: there are " + " and ".join(f"no {kind.title}" for kind in kinds)


def _traced_by(kind: _DataKind) -> str | None:
    """Return the option that records a kind, also for kinds that are never missing but come with CUDA."""
    return "--trace=cuda" if kind.kind in _WITH_CUDA else kind.option


def _count(kind: _DataKind, counts: Mapping[str, int]) -> int:
    return sum(counts.get(table, 0) for table in kind.tables)


def _spell_option(option: str, version: tuple[int, ...]) -> str:
    if version < _PLURAL_DEVICES_SINCE:
        return option.replace("--gpu-metrics-devices", "--gpu-metrics-device")
    return option


def _parse_version(text: str | None) -> tuple[int, ...]:
    """Parse the year and the number of a version; an unknown version counts as new.

    >>> _parse_version("2023.4.4.54"), _parse_version(None)
    ((2023, 4), (9999,))
    """
    match = re.match(r"(\d+)\.(\d+)", text or "")
    return (int(match[1]), int(match[2])) if match else (9999,)

"""What a report holds rows of, and which option of `nsys profile` records what it has none of."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import polars as pl

from nsys_pp.frames.conform import build_schema

RECORDED = build_schema(
    {  # one row per kind of data that the report has
        "what": pl.String,  # a stable word
        "title": pl.String,
        "row_count": pl.Int64,
    },
    name="RECORDED",
)

MISSING = build_schema(
    {  # one row per kind of data that the report has nothing of
        "what": pl.String,
        "title": pl.String,
        "option": pl.String,  # of `nsys profile`
    },
    name="MISSING",
)

_WITH_CUDA = ("copies", "sets", "graphs", "synchronizations", "cuda_events")
_PLURAL_DEVICES_SINCE = (2024, 5)  # before, the option of the GPU metrics was in the singular
_NCCL_TRACE_SINCE = (2025, 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    what: str
    title: str
    tables: tuple[str, ...]  # its names in the counts
    option: str | None = None  # None: nobody misses it


_KINDS = (
    _Kind(what="ranges", title="NVTX ranges", tables=("ranges",), option="--trace=nvtx"),
    _Kind(what="marks", title="NVTX marks", tables=("marks",)),
    _Kind(what="api_calls", title="CUDA calls", tables=("calls",), option="--trace=cuda"),
    _Kind(what="kernels", title="kernels", tables=("kernel",), option="--trace=cuda"),
    _Kind(what="copies", title="copies", tables=("memcpy",)),
    _Kind(what="sets", title="memory sets", tables=("memset",)),
    _Kind(what="graphs", title="whole CUDA graphs", tables=("graph",)),
    _Kind(
        what="graph_nodes",
        title="CUDA graph nodes",
        tables=("graph_nodes",),
        option="--cuda-graph-trace=node",
    ),
    _Kind(what="synchronizations", title="synchronizations", tables=("synchronizations",)),
    _Kind(what="cuda_events", title="CUDA events", tables=("cuda_events",)),
    _Kind(what="nccl_calls", title="NCCL calls", tables=("nccl_calls",), option="--trace=nccl"),
    _Kind(
        what="mpi_calls",
        title="MPI calls",
        tables=("mpi_messages", "mpi_collectives", "mpi_other"),
        option="--trace=mpi",
    ),
    _Kind(what="ucx_calls", title="UCX calls", tables=("ucx_calls",), option="--trace=ucx"),
    _Kind(what="cublas_calls", title="cuBLAS calls", tables=("cublas_calls",), option="--trace=cublas"),
    _Kind(what="cudnn_calls", title="cuDNN calls", tables=("cudnn_calls",), option="--trace=cudnn"),
    _Kind(what="os_calls", title="OS calls", tables=("os_calls",), option="--trace=osrt"),
    _Kind(what="cpu_samples", title="CPU samples", tables=("cpu_samples",), option="--sample=process-tree"),
    _Kind(
        what="thread_switches",
        title="thread switches",
        tables=("thread_switches",),
        option="--cpuctxsw=process-tree",
    ),
    _Kind(
        what="gpu_memory", title="GPU memory use", tables=("cuda_memory",), option="--cuda-memory-usage=true"
    ),
    _Kind(
        what="gpu_metrics", title="GPU metrics", tables=("gpu_metrics",), option="--gpu-metrics-devices=all"
    ),
    _Kind(
        what="gpu_context_switches",
        title="GPU context switches",
        tables=("gpu_context_switches",),
        option="--gpuctxsw=true",
    ),
    _Kind(what="nic_metrics", title="network metrics", tables=("nic_metrics",), option="--nic-metrics=true"),
)


def list_recorded(counts: Mapping[str, int]) -> pl.DataFrame:
    """List what the report has rows of.

    Args:
        counts: Rows of each table, and of ranges, marks, calls and each kind of GPU operation.

    Returns:
        `RECORDED`, what matters most first.
    """
    rows = [(kind.what, kind.title, _count(kind, counts)) for kind in _KINDS]
    return pl.DataFrame([row for row in rows if row[2]], schema=RECORDED, orient="row")


def list_missing(counts: Mapping[str, int], *, nsys_version: str | None, has_graphs: bool) -> pl.DataFrame:
    """List what the report has nothing of, with the option that records it.

    nsys writes no table for what did not happen, so it may also have been recorded in vain.
    Nodes of CUDA graphs are missed only where graphs ran, calls of NCCL only beside its kernels.

    Args:
        counts: As for `list_recorded`.
        nsys_version: Of the nsys whose options are named; the newest if None.
        has_graphs: Whether CUDA graphs were launched.

    Returns:
        `MISSING`, what matters most first.
    """
    version = _parse_version(nsys_version)
    is_missed = {
        "graph_nodes": (has_graphs or "graph" in counts) and not counts.get("kernel_in_graph", 0),
        "nccl_calls": counts.get("communication", 0) > 0 and version >= _NCCL_TRACE_SINCE,
    }
    rows = [
        (kind.what, kind.title, _spell(kind.option, version))
        for kind in _KINDS
        if kind.option is not None and not _count(kind, counts) and is_missed.get(kind.what, True)
    ]
    return pl.DataFrame(rows, schema=MISSING, orient="row")


def name_recorded(counts: Mapping[str, int]) -> list[str]:
    """List the words of what the report has rows of; counts as for `list_recorded`."""
    return [kind.what for kind in _KINDS if _count(kind, counts)]


def say_absent(needs: Collection[str], recorded: Collection[str]) -> str:
    """Say that none of several kinds of data is there: nothing happened, or nobody asked for it.

    Args:
        needs: Words of kinds, of which none is there.
        recorded: Words of what is there. What is traced together with any of it was traced.

    >>> say_absent(["os_calls"], ["kernels"])
    'not recorded: profile with `--trace=osrt`'
    >>> say_absent(["copies", "sets"], ["kernels"]), say_absent(["copies"], ["ranges"])
    ('none: there are no copies and no memory sets', 'not recorded: profile with `--trace=cuda`')
    """
    kinds = [kind for kind in _KINDS if kind.what in needs]
    traced = {_traced_by(kind) for kind in _KINDS if kind.what in recorded} - {None}
    missed = dict.fromkeys(option for kind in kinds if (option := _traced_by(kind)) and option not in traced)
    if missed:
        return f"not recorded: profile with {' or '.join(f'`{option}`' for option in missed)}"
    return "none: there are " + " and ".join(f"no {kind.title}" for kind in kinds)


def _traced_by(kind: _Kind) -> str | None:
    """Give the option that records a kind; nobody misses copies, say, but they come with CUDA."""
    return "--trace=cuda" if kind.what in _WITH_CUDA else kind.option


def _count(kind: _Kind, counts: Mapping[str, int]) -> int:
    return sum(counts.get(table, 0) for table in kind.tables)


def _spell(option: str, version: tuple[int, ...]) -> str:
    if version < _PLURAL_DEVICES_SINCE:
        return option.replace("--gpu-metrics-devices", "--gpu-metrics-device")
    return option


def _parse_version(text: str | None) -> tuple[int, ...]:
    """Read year and number; what is unknown counts as new.

    >>> _parse_version("2023.4.4.54"), _parse_version(None)
    ((2023, 4), (9999,))
    """
    match = re.match(r"(\d+)\.(\d+)", text or "")
    return (int(match[1]), int(match[2])) if match else (9999,)

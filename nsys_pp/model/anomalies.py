"""Anomalies of a report, in sentences: limits of a trace of it."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from nsys_pp.units import format_duration


def find_outside(events: Mapping[str, pl.DataFrame], start_ns: int, end_ns: int | None) -> list[str]:
    """Report events outside the capture window.

    Args:
        events: Frames with `start_ns` and `end_ns`, by the noun for their rows in the plural.
        start_ns: Start of the capture.
        end_ns: End of the capture; None: unknown, no event is outside.
    """
    if end_ns is None:
        return []
    sentences = []
    for noun, frame in events.items():
        outside = frame.filter((pl.col("start_ns") < start_ns) | (pl.col("end_ns") > end_ns))
        if outside.is_empty():
            continue
        before = start_ns - int(outside["start_ns"].min())  # type: ignore[arg-type]
        after = int(outside["end_ns"].max()) - end_ns  # type: ignore[arg-type]
        reach = [f"up to {format_duration(before)} before it"] * (before > 0)
        reach += [f"up to {format_duration(after)} after it"] * (after > 0)
        sentences.append(f"{_count(len(outside), noun)} outside the capture window, {' and '.join(reach)}")
    return sentences


def find_unmatched(op_count: int, matched_count: int, call_count: int) -> list[str]:
    """Report operations without a known launch."""
    if matched_count == op_count:
        return []
    if not call_count:
        return ["no CUDA calls were recorded, so no range can be projected onto the GPU"]
    return [
        f"{_count(op_count - matched_count, 'GPU operations')} without the CUDA call that launched them:"
        " no range is projected onto them"
    ]


def find_untimed(counts: Mapping[str, int], tables: Mapping[str, str]) -> list[str]:
    """Report kinds of operations that were recorded without times.

    Args:
        counts: Rows by table, and operations by kind.
        tables: Table of each kind.
    """
    return [
        f"{table} were recorded without their times ({counts[table]:,} rows): CUPTI did not measure them"
        for kind, table in tables.items()
        if counts.get(table, 0) and not counts.get(kind, 0)
    ]


def find_lost_graphs(launch_count: int, lost_count: int, graph_mode: str | None) -> list[str]:
    """Report launches of CUDA graphs without an operation."""
    if not lost_count:
        return []
    mode = f" (its CUDA graph mode is {graph_mode})" if graph_mode else ""
    return [
        f"{lost_count:,} of {_count(launch_count, 'CUDA graph launches')} left no GPU operation in the report{mode};"
        " `--cuda-graph-trace=node` records their kernels"
    ]


def find_unknown_devices(devices: pl.DataFrame) -> list[str]:
    """Report GPUs (`DEVICES`) with a known number only."""
    unknown = devices.filter(pl.all_horizontal(pl.col("name", "uuid", "bus_location").is_null()))
    if unknown.is_empty():
        return []
    gpus = unknown["gpu"].unique(maintain_order=True).to_list()
    return [
        f"{', '.join(gpus)}: distinguished by CUDA's numbers alone, as the report does not describe the GPUs"
    ]


def find_unplaced(utc_epoch_ns: int | None, machine_source: str) -> list[str]:
    """Report an unknown UTC and an unknown machine."""
    sentences = []
    if utc_epoch_ns is None:
        sentences.append("its UTC is unknown: it cannot be aligned with other reports")
    if machine_source == "file name":
        sentences.append("its machine is unknown: the name of the file is used")
    return sentences


def _count(number: int, noun: str) -> str:
    """Format a number with its noun.

    >>> _count(1, "CUDA graph launches"), _count(2000, "CUDA calls")
    ('1 CUDA graph launch', '2,000 CUDA calls')
    """
    if number != 1:
        return f"{number:,} {noun}"
    return f"1 {noun.removesuffix('es' if noun.endswith('ches') else 's')}"

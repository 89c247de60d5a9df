"""What is odd about a report, in sentences: what a user should know before believing a trace of it."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from nsys_pp.units import format_duration


def find_outside(events: Mapping[str, pl.DataFrame], start_ns: int, end_ns: int | None) -> list[str]:
    """Tell of events outside the capture window.

    Args:
        events: Frames with `start_ns` and `end_ns` by what they hold, in the plural.
        start_ns: Start of the capture.
        end_ns: Its end; without one nothing is outside.
    """
    if end_ns is None:
        return []
    sentences = []
    for what, frame in events.items():
        outside = frame.filter((pl.col("start_ns") < start_ns) | (pl.col("end_ns") > end_ns))
        if outside.is_empty():
            continue
        before = start_ns - int(outside["start_ns"].min())  # type: ignore[arg-type]
        after = int(outside["end_ns"].max()) - end_ns  # type: ignore[arg-type]
        reach = [f"up to {format_duration(before)} before it"] * (before > 0)
        reach += [f"up to {format_duration(after)} after it"] * (after > 0)
        sentences.append(f"{_count(len(outside), what)} outside the capture window, {' and '.join(reach)}")
    return sentences


def find_unmatched(op_count: int, matched_count: int, call_count: int) -> list[str]:
    """Tell of operations that no CUDA call is known to have launched."""
    if matched_count == op_count:
        return []
    if not call_count:
        return ["no CUDA calls were recorded, so no range can be projected onto the GPU"]
    return [
        f"{_count(op_count - matched_count, 'GPU operations')} without the CUDA call that launched them:"
        " no range is projected onto them"
    ]


def find_untimed(counts: Mapping[str, int], tables: Mapping[str, str]) -> list[str]:
    """Tell of kinds of operations of which rows were recorded, but not one with its time.

    Args:
        counts: Rows by table, and operations by kind.
        tables: The table of each kind.
    """
    return [
        f"{table} were recorded without their times ({counts[table]:,} rows): CUPTI did not measure them"
        for kind, table in tables.items()
        if counts.get(table, 0) and not counts.get(kind, 0)
    ]


def find_lost_graphs(launch_count: int, lost_count: int, graph_mode: str | None) -> list[str]:
    """Tell of launches of CUDA graphs that left no operation."""
    if not lost_count:
        return []
    mode = f" (its CUDA graph mode is {graph_mode})" if graph_mode else ""
    return [
        f"{lost_count:,} of {_count(launch_count, 'CUDA graph launches')} left no GPU operation in the report{mode};"
        " `--cuda-graph-trace=node` records their kernels"
    ]


def find_unknown_devices(devices: pl.DataFrame) -> list[str]:
    """Tell of GPUs (`DEVICES`) of which the report says nothing but their number."""
    unknown = devices.filter(pl.all_horizontal(pl.col("name", "uuid", "bus_location").is_null()))
    if unknown.is_empty():
        return []
    gpus = unknown["gpu"].unique(maintain_order=True).to_list()
    return [
        f"{', '.join(gpus)}: told apart by CUDA's numbers alone, as the report does not describe the GPUs"
    ]


def find_unplaced(utc_epoch_ns: int | None, machine_source: str) -> list[str]:
    """Tell what is not known of where and when the report was made."""
    sentences = []
    if utc_epoch_ns is None:
        sentences.append("its UTC is unknown: it cannot be put on one clock with other reports")
    if machine_source == "file name":
        sentences.append("its machine is unknown: the file's name stands for it")
    return sentences


def _count(number: int, things: str) -> str:
    """Write a number with its noun.

    >>> _count(1, "CUDA graph launches"), _count(2000, "CUDA calls")
    ('1 CUDA graph launch', '2,000 CUDA calls')
    """
    if number != 1:
        return f"{number:,} {things}"
    return f"1 {things.removesuffix('es' if things.endswith('ches') else 's')}"

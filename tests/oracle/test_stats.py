"""Every row of the summary tables of `nsys stats` equals our aggregates, on real reports."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import polars as pl

import nsys_pp
from nsys_pp.aggregates.items import sum_calls, sum_copy_sizes, sum_items, sum_ops
from nsys_pp.arrays.distributions import describe_distributions, merge_distributions
from nsys_pp.errors import MissingDataError
from nsys_pp.frames.aggregates import NAMED_OPERATORS
from nsys_pp.frames.conform import conform
from nsys_pp.frames.raw import ALL_GROUPS
from nsys_pp.frames.report import Report
from nsys_pp.frames.training import JOBS, STEPS
from nsys_pp.model import build_report
from nsys_pp.projection.launches import match_launches
from nsys_pp.projection.ranges import project_ranges
from nsys_pp.read import read_report
from tests.oracle.nvidia import TABLES, run_stats
from tests.sql import select

EXACT = ["count", "total", "min", "max"]
DIRECTIONS = {  # ours -> NVIDIA's
    "Memcpy HtoD": "[CUDA memcpy Host-to-Device]",
    "Memcpy DtoH": "[CUDA memcpy Device-to-Host]",
    "Memcpy DtoD": "[CUDA memcpy Device-to-Device]",
    "Memcpy HtoH": "[CUDA memcpy Host-to-Host]",
    "Memcpy PtoP": "[CUDA memcpy Peer-to-Peer]",
    "Memset": "[CUDA memset]",
}
VERSION = r"_v\d+$"  # ABI version: nsys 2023.4 removes it only where it has four digits
MEMORY = ("cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum")
DIRECTION_NAMES = (
    "ENUM_CUDA_MEMCPY_OPER"  # older exports lack it: then nsys 2023.4 shows neither copies nor sets
)
STYLES = {"push_pop": "PushPop", "start_end": "StartEnd"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregates:
    """Aggregates of one report, over several steps: merging them must make no difference."""

    ops: pl.DataFrame
    sizes: pl.DataFrame
    calls: pl.DataFrame
    items: pl.DataFrame


def aggregate_report(path: Path) -> Aggregates:
    report = build_report(read_report(path, need=ALL_GROUPS, nsys=None))
    launches = match_launches(report.api_calls, report.gpu_ops)
    steps = cut_time(report)
    return Aggregates(
        ops=sum_ops(report.gpu_ops, report.op_details, steps),
        sizes=sum_copy_sizes(report.gpu_ops, report.op_details, steps),
        calls=sum_calls(report.api_calls, report.os_calls, steps),
        items=sum_items(
            ranges=report.ranges,
            projections=project_ranges(
                report.ranges,
                report.api_calls,
                report.gpu_ops,
                ops=("kernel", "memcpy", "memset"),
                scope="thread",
                launches=launches,
            ),
            operators=NAMED_OPERATORS.to_frame(),
            jobs=JOBS.to_frame(),
            gpu_ops=report.gpu_ops,
            api_calls=report.api_calls,
            launches=launches,
            steps=steps,
            most_names=1_000_000,
        ),
    )


def has_table(report: Path, name: str) -> bool:
    return bool(select(report, "select 1 from sqlite_master where name = ?", name))


def cut_time(report: Report) -> pl.DataFrame:
    """Build steps from the first two thirds of the time span of each device."""
    span = report.gpu_ops.group_by("process_key", "device_id").agg(
        first=pl.col("start_ns").min(), third=(pl.col("end_ns").max() - pl.col("start_ns").min()) // 3
    )
    steps = span.join(pl.DataFrame({"step": [0, 1]}), how="cross").with_columns(
        start_ns=pl.col("first") + pl.col("third") * pl.col("step"),
        end_ns=pl.col("first") + pl.col("third") * (pl.col("step") + 1),
        **dict.fromkeys(("is_numbered", "is_partial"), pl.lit(False)),
        name=pl.lit(None),
        source=pl.lit("range"),
        **dict.fromkeys(("confidence", "reason", "first_op_ns", "last_op_ns"), pl.lit(None)),
    )
    hosts = steps.with_columns(host_start_ns="start_ns", host_end_ns="end_ns")
    return conform(hosts.sort("process_key", "device_id", "start_ns"), STEPS)


def describe_rows(aggregates: pl.DataFrame, *, keys: list[str]) -> pl.DataFrame:
    """Return our table, merged over all steps, devices and processes."""
    described = describe_distributions(merge_distributions(aggregates, keys))
    return described.rename(lambda column: column.removesuffix("_ns"))


def find_different_rows(
    ours: pl.DataFrame, expected: pl.DataFrame, keys: list[str], exact: list[str] = EXACT
) -> list[str]:
    """List the rows that differ: whole numbers exactly, others by more than the rounding to one digit."""
    both = expected.join(ours, on=keys, how="full", nulls_equal=True, suffix="_ours")
    is_same = pl.all_horizontal(
        *(pl.col(column).eq_missing(pl.col(f"{column}_ours")) for column in exact),
        *(
            (pl.col(column) - pl.col(f"{column}_ours")).abs() <= 0.05 + 1e-12 * pl.col(column)
            for column in ("mean", "median", "std")
        ),
    ).fill_null(False)
    return [str(row) for row in both.filter(~is_same).rows(named=True)]


def name_ranges(aggregates: pl.DataFrame) -> pl.DataFrame:
    """Name ranges as NVIDIA does: domains without a captured creation event are omitted."""
    domain = pl.col("domain").cast(pl.String)
    has_domain_name = ~domain.str.contains(r"^domain \d+$")
    name = pl.col("name").cast(pl.String)
    return aggregates.with_columns(
        name=pl.when(has_domain_name).then(domain + ":" + name).otherwise(name),
        style=pl.col("style").cast(pl.String).replace(STYLES),
    )


def select_rows(table: str, aggregates: Aggregates) -> pl.DataFrame:
    text = pl.col("name").cast(pl.String)
    if table == "cuda_gpu_kern_sum":
        return describe_rows(aggregates.ops.filter(kind="kernel").with_columns(text), keys=["name"])
    if table == "cuda_gpu_mem_time_sum":
        copies = aggregates.ops.filter(pl.col("kind").is_in(["memcpy", "memset"]))
        return describe_rows(copies.with_columns(text.replace(DIRECTIONS)), keys=["name"])
    if table == "cuda_gpu_mem_size_sum":
        return describe_rows(aggregates.sizes.with_columns(text.replace(DIRECTIONS)), keys=["name"])
    if table in ("cuda_api_sum", "osrt_sum"):
        api = {"cuda_api_sum": "cuda", "osrt_sum": "os"}[table]
        return describe_rows(aggregates.calls.filter(api=api).with_columns(text), keys=["name"])
    ranges = name_ranges(aggregates.items.filter(item="range", measure="host"))
    if table == "nvtx_pushpop_sum":
        return describe_rows(ranges.filter(style="PushPop"), keys=["name"])
    return describe_rows(ranges, keys=["style", "name"])


def leave_out_repeated_calls(calls: pl.DataFrame) -> pl.DataFrame:
    """Name calls without versions; of rows that then share a name, the outer one has each call again, longer."""
    named = calls.with_columns(pl.col("name").str.replace(VERSION, ""))
    return named.sort("total").unique("name", keep="first")


def find_names_on_several_devices(report: Path) -> list[str]:
    """List the names of ranges that reach kernels of several devices."""
    try:
        ranges = nsys_pp.project([report], ops="all", scope="thread").ranges
    except MissingDataError:
        return []
    return ranges.filter(pl.len().over("range_id") > 1)["name"].cast(pl.String).unique().to_list()


def test_rows_equal_those_of_nsys_stats(shared_report: Path, nsys: str, tmp_path: Path) -> None:
    copy = Path(shutil.copyfile(shared_report, tmp_path / shared_report.name))
    stats, aggregates = run_stats(nsys, copy), aggregate_report(shared_report)
    for table in TABLES:
        if table == "nvtx_gpu_proj_sum":
            compare_projected_rows(shared_report, aggregates, stats[table])
            continue
        expected = stats[table]
        if table == "cuda_api_sum":
            expected = leave_out_repeated_calls(expected)
        if table in MEMORY and not has_table(shared_report, DIRECTION_NAMES):
            assert expected.is_empty()
            continue
        keys = ["style", "name"] if table == "nvtx_sum" else ["name"]
        different = find_different_rows(select_rows(table, aggregates), expected, keys)
        assert not different, f"{table}: {len(different)} rows differ, as {different[:3]}"


def compare_projected_rows(report: Path, aggregates: Aggregates, expected: pl.DataFrame) -> None:
    """NVIDIA has one row per range, we have one per device: names of ranges on several devices are left out."""
    spans = name_ranges(aggregates.items.filter(item="range", measure="span"))
    keys = ["style", "name"]
    calls = spans.group_by(keys).agg(pl.col("call_count").sum())
    ours = describe_rows(spans, keys=keys).join(calls, on=keys, nulls_equal=True).drop_nulls("name")
    is_whole = ~pl.col("name").is_in(find_names_on_several_devices(report))
    different = find_different_rows(
        ours.filter(is_whole), expected.filter(is_whole), keys, [*EXACT, "call_count"]
    )
    assert not different, f"{len(different)} rows differ, as {different[:3]}"
    assert len(expected.filter(~is_whole)) < 5

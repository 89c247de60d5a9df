"""Every projected range equals NVIDIA's `nvtx_gpu_proj_trace`, on real reports."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import nsys_pp
from nsys_pp.errors import MissingDataError
from tests.oracle import nvidia
from tests.sql import edit


def project_report(report: Path, ops: str) -> pl.DataFrame:
    return nvidia.merge_devices(nsys_pp.project([report], ops=ops, scope="thread").ranges)


def test_all_operations_equal_the_stored_answers(shared_reports: list[Path]) -> None:
    """A domain without a captured creation event is a number in our names and absent in NVIDIA's."""
    has_domain_name = ~pl.col("domain").cast(pl.String).str.contains(r"^domain \d+$")
    answers = sorted((shared_reports[0].parent / "oracle").glob("*.nvtx_gpu_proj_trace.csv"))
    assert answers
    compared = 0
    for answer in answers:
        report = answer.parents[1] / f"{answer.name.removesuffix('.nvtx_gpu_proj_trace.csv')}.sqlite"
        expected = nvidia.parse_projection(answer.read_bytes())
        ranges = nsys_pp.project([report], ops="all", scope="thread").ranges
        assert_frame_equal(nvidia.merge_devices(ranges), expected.select(nvidia.KEYS))
        domain = pl.when(has_domain_name).then(pl.col("domain").cast(pl.String) + ":")
        named = ranges.unique("range_id").select(
            "range_id", ours=pl.concat_str(domain, "name", ignore_nulls=True)
        )
        different = expected.join(named, on="range_id", how="left").filter(pl.col("ours") != pl.col("name"))
        assert different.is_empty(), f"{report.name}: {different.rows()[:5]}"
        compared += len(expected)
    assert compared > 10_000


def test_all_operations_equal_the_answers_of_the_newer_nsys(
    shared_report: Path, newer_nsys: str, tmp_path: Path
) -> None:
    """The stored answers are those of 2023.4."""
    copy = Path(shutil.copyfile(shared_report, tmp_path / shared_report.name))
    assert_equal_projections(shared_report, "all", nvidia.run_projection(newer_nsys, copy))


def assert_equal_projections(report: Path, ops: str, expected: pl.DataFrame) -> None:
    try:
        ours = project_report(report, ops)
    except MissingDataError:
        assert expected.is_empty()
        return
    assert_frame_equal(ours, expected.select(nvidia.KEYS))


def test_all_operations_equal_the_projection_of_newer_recipes(
    shared_report: Path, newer_nsys: str, tmp_path: Path
) -> None:
    """Recipes of 2024.2 project by code of their own, in pandas; `nsys stats` does in SQL.

    Definitions differ in one thing that no shared report has: a call that ends in the very nanosecond of its range is
    outside for recipes. They have no row for launches outside all ranges either.
    """
    expected = nvidia.run_recipe_projection(newer_nsys, shared_report, tmp_path)
    if expected is None:
        pytest.skip("no ranges or no GPU operations")
    ours = project_report(shared_report, "all").select(
        "range_id", "gpu_start_ns", gpu_end_ns=pl.col("gpu_start_ns") + pl.col("gpu_duration_ns")
    )
    assert_frame_equal(ours, expected)


def test_reports_without_an_answer_have_no_projections(shared_reports: list[Path]) -> None:
    for report in shared_reports:
        if not (report.parent / "oracle" / f"{report.stem}.nvtx_gpu_proj_trace.csv").exists():
            with pytest.raises(MissingDataError):
                project_report(report, "all")


def test_kernels_alone_equal_the_answers_for_a_report_without_copies_and_sets(
    shared_report: Path, nsys: str, tmp_path: Path
) -> None:
    copy = Path(shutil.copyfile(shared_report, tmp_path / shared_report.name))
    edit(copy, *(f"drop table if exists CUPTI_ACTIVITY_KIND_{kind}" for kind in ("MEMCPY", "MEMSET")))
    assert_equal_projections(shared_report, "kernel", nvidia.run_projection(nsys, copy))

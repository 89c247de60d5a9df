"""Families of the kernels of a simulated training, by kind of job, by step and by stage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import nsys_pp
from nsys_pp.commands.pipeline import PipelineResult
from nsys_pp.tables.compare import compare_trainings
from nsys_pp.tables.training import (
    build_family_table,
    build_stage_family_table,
    build_step_family_table,
)

PIPELINE = Path(__file__).parents[3] / "fixtures" / "pipeline"


@pytest.fixture(scope="module")
def result() -> PipelineResult:
    return nsys_pp.pipeline([PIPELINE])


def test_families_of_jobs_add_up_to_their_kernels(result: PipelineResult) -> None:
    table = build_family_table(result.training)
    assert table["total_ns"].sum() == result.training.kernels.drop_nulls("step")["total_ns"].sum()
    of_kind = table.group_by("kind").agg(pl.col("fraction").sum())
    assert of_kind["fraction"].to_list() == pytest.approx([1.0] * len(of_kind))
    # the simulator's forwards and backwards have products, their messages nothing but communication
    rows = {(row["kind"], row["family"]) for row in table.rows(named=True)}
    assert {("forward", "GEMM"), ("backward", "attention"), ("optimizer", "optimizer")} <= rows
    assert {family for kind, family in rows if kind in ("send", "receive")} == {"communication"}
    assert "unknown" not in table["family"]


def test_families_of_steps_add_up_to_their_kernels(result: PipelineResult) -> None:
    table = build_step_family_table(result.training).group_by("step").agg(pl.col("total_ns", "count").sum())
    kernels = (
        result.training.kernels.drop_nulls("step").group_by("step").agg(pl.col("total_ns", "count").sum())
    )
    assert table.sort("step").equals(kernels.sort("step"))


def test_families_of_stages_add_up_to_their_kernels(result: PipelineResult) -> None:
    training = result.training
    table = build_stage_family_table(training)
    stage_of = dict(training.lanes.select("lane", "stage").rows())
    complete = set(training.steps.filter(~pl.col("is_partial")).select("lane", "step").rows())
    expected = dict.fromkeys(stage_of.values(), 0)
    for lane, step, total_ns in training.kernels.select("lane", "step", "total_ns").rows():
        expected[stage_of[lane]] += total_ns if (lane, step) in complete else 0
    assert dict(table.group_by("stage").agg(pl.col("total_ns").sum()).rows()) == expected
    assert table["stage"].is_sorted()
    unknown = training.lanes.with_columns(stage=pl.lit(None, pl.Int64))
    assert build_stage_family_table(replace(training, lanes=unknown)).is_empty()


def test_flash_attention_has_parts_without_tensor_cores(result: PipelineResult) -> None:
    table = build_family_table(result.training).filter(pl.col("family").is_in(["GEMM", "attention"]))
    shares = {(row["kind"], row["family"]): row["tensor_core_fraction"] for row in table.rows(named=True)}
    assert shares["forward", "GEMM"] == shares["forward", "attention"] == 1.0
    assert 0.8 < shares["backward", "attention"] < 1.0


def test_a_run_has_the_same_families_as_itself(result: PipelineResult) -> None:
    frames = compare_trainings(result.training, result.training)
    families = frames["families"]
    assert set(families["verdict"]) == {"same"}
    assert "GEMM" in families["subject"]

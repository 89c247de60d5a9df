"""Iterations of a simulated serving run by kind of batch, against plain loops over its truth."""

from __future__ import annotations

import statistics
from dataclasses import replace

import polars as pl
import pytest

import nsys_pp
from fixtures.serving.reports import write_reports
from fixtures.serving.simulate import draw_serving, serve
from fixtures.serving.truth import ACTIVITIES, list_truth
from nsys_pp.commands.pipeline import PipelineResult
from nsys_pp.frames.training import Training
from nsys_pp.tables.training import build_iteration_family_table, build_iteration_table

_FIRST = (0, 3)  # the second rank is captured later


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[PipelineResult, pl.DataFrame]:
    """Two ranks of vLLM, whose iterations have no numbers."""
    folder = tmp_path_factory.mktemp("served")
    drawn = draw_serving(13, engine="vllm", count=24)
    load = replace(drawn.load, tp=2, graphs="full", sync_every=1, late_sync=False)
    serving = replace(drawn, load=load, first=_FIRST, offset_ns=(0, 7_000_000), is_one_report=False)
    workers = serve(serving, 13)
    write_reports(folder, serving, workers)
    return nsys_pp.pipeline([folder]), list_truth(serving, workers)


def _list_complete(training: Training, truth: pl.DataFrame) -> pl.DataFrame:
    """List the truth of batches that are complete: neither the last one of a rank, nor of a partial step."""
    partial = training.steps.filter("is_partial").join(training.lanes.select("lane", "rank"), on="lane")
    cut = [*partial.select("rank", "step").rows()]
    return truth.drop_nulls("gap_ns").filter(
        ~pl.struct("rank", "batch").map_elements(
            lambda row: (row["rank"], row["batch"]) in cut, return_dtype=pl.Boolean
        )
    )


def test_ranks_share_the_numbers_of_iterations(served: tuple[PipelineResult, pl.DataFrame]) -> None:
    result, truth = served
    training = result.training
    batches = training.batches.join(training.lanes.select("lane", "rank"), on="lane")
    found = batches.sort("rank", "step").select("rank", "step").rows()
    assert found == truth.sort("rank", "batch").select("rank", "batch").rows()


def test_iterations_are_described_by_kind(served: tuple[PipelineResult, pl.DataFrame]) -> None:
    result, truth = served
    table = build_iteration_table(result.training)
    complete = _list_complete(result.training, truth)
    assert table["lane_iteration_count"].sum() == len(complete)
    for row in table.rows(named=True):
        rows = complete.filter(kind=row["batch"]).rows(named=True)
        times, gaps = [one["end_ns"] - one["start_ns"] for one in rows], [one["gap_ns"] for one in rows]
        assert row["lane_iteration_count"] == len(rows)
        assert row["iteration_count"] == len({one["batch"] for one in rows})
        assert row["median_ns"] == statistics.median(times)
        assert row["median_gap_ns"] == statistics.median(gaps)
        assert row["gap_fraction"] == pytest.approx(sum(gaps) / (sum(times) + sum(gaps)))
        for name in ACTIVITIES:
            share = sum(one[f"{name}_ns"] for one in rows) / sum(gaps)
            assert row[f"{name}_fraction"] == pytest.approx(share, abs=0.02)
        tokens = sum(one["context_tokens"] + one["generation_tokens"] for one in rows)
        assert row["tokens_per_s"] == pytest.approx(tokens / ((sum(times) + sum(gaps)) / 1e9))
        assert row["mean_generation_requests"] == pytest.approx(
            sum(one["generation_requests"] for one in rows) / len(rows)
        )
        kernels = sum(one["kernel_ns"] for one in rows)
        assert row["graph_fraction"] == pytest.approx(sum(one["graph_ns"] for one in rows) / kernels)
    decode = table.filter(batch="decode").row(0, named=True)
    assert decode["graph_fraction"] > 0.5
    assert decode["graph_launch_fraction"] == pytest.approx(1 / 3)  # and two kernels that sample


def test_families_of_iterations_add_up_to_their_kernels(served: tuple[PipelineResult, pl.DataFrame]) -> None:
    result, truth = served
    table = build_iteration_family_table(result.training)
    complete = _list_complete(result.training, truth)
    for kind in ("decode", "mixed"):
        total = table.filter(batch=kind)["total_ns"].sum()
        assert total == complete.filter(kind=kind)["kernel_ns"].sum()

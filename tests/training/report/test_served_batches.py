"""Batches of simulated serving runs against their truth: kinds, counts, times on the GPU, gaps and activities of the host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from fixtures.serving.engines import ENGINES
from fixtures.serving.reports import write_reports
from fixtures.serving.run import Serving
from fixtures.serving.simulate import draw_serving, serve
from fixtures.serving.truth import list_truth
from nsys_pp.frames.part import PartOptions
from nsys_pp.frames.training import BATCH_COUNTS, HOST_ACTIVITY_COLUMNS
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from nsys_pp.run.report import TRAINING_GROUPS, project
from nsys_pp.run.report_training import describe_training, find_links

_MEASURED = ("start_ns", "end_ns", "kernel_ns", "graph_ns", "launch_count", "graph_launch_count")
_GAP_NS, _GAP_SHARE, _ACTIVITY_SHARE = 10_000, 0.02, 0.02  # errors that are allowed


def find_batches(path: Path) -> pl.DataFrame:
    """Find the batches of one report (`BATCHES`)."""
    report, options = build_report(read_report(path, need=TRAINING_GROUPS)), PartOptions()
    links = find_links(report)
    projections = project(report, options, links)
    return describe_training(report, projections=projections, links=links, options=options).frames["batches"]


def write_run(folder: Path, serving: Serving, seed: int) -> pl.DataFrame:
    """Write the reports of a run; return its truth on the clocks of the reports."""
    workers = serve(serving, seed)
    write_reports(folder, serving, workers)
    offsets = pl.Series(serving.offset_ns).gather(pl.Series([worker.rank for worker in workers]))
    truth = list_truth(serving, workers)
    return truth.with_columns(pl.col("start_ns", "end_ns") - offsets.gather(truth["rank"]))


@pytest.mark.parametrize(("engine", "seed"), [(engine, 40 + at) for at, engine in enumerate(ENGINES)])
def test_batches_are_those_of_the_truth(engine: str, seed: int, tmp_path: Path) -> None:
    drawn = draw_serving(seed, engine=engine, count=12)
    serving = replace(drawn, load=replace(drawn.load, tp=min(drawn.load.tp, 2)))
    whole = tmp_path / "all.sqlite"
    truth = write_run(tmp_path, serving, seed)
    for rank in range(serving.load.tp):
        # the last batch of a report is cut, and has no operations where its range holds only copies
        expected = truth.filter(rank=rank)[:-2]
        path = whole if serving.is_one_report else tmp_path / f"rank{rank}.sqlite"
        batches = find_batches(path).filter(device_id=rank).sort("step")[: len(expected)]
        for column in ("kind", *BATCH_COUNTS, *_MEASURED):
            assert batches[column].cast(expected[column].dtype).to_list() == expected[column].to_list(), (
                column
            )
        error = (batches["gap_ns"] - expected["gap_ns"]).abs()
        assert (error <= (_GAP_SHARE * expected["gap_ns"]).clip(lower_bound=_GAP_NS)).all()
        activities = batches.select(HOST_ACTIVITY_COLUMNS)
        assert activities.sum_horizontal().to_list() == batches["gap_ns"].to_list()
        most = _ACTIVITY_SHARE * sum(batches["gap_ns"])
        for column in HOST_ACTIVITY_COLUMNS:
            assert abs(sum(batches[column]) - sum(expected[column])) <= most, column


def test_full_graphs_are_decodes_and_others_unknown(tmp_path: Path) -> None:
    serving = draw_serving(4, engine="sglang", count=16)
    truth = write_run(tmp_path, serving, 4)
    batches = find_batches(tmp_path / "rank0.sqlite").sort("step")[: len(truth)]
    assert serving.load.graphs == "full"
    assert set(truth["true_kind"]) == {"prefill", "decode"}
    assert batches["source"].cast(pl.String).to_list()[:-1] == [
        "launches" if kind == "decode" else None for kind in truth["true_kind"].to_list()[:-1]
    ]

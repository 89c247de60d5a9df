"""Kinds and counts of batches by names, and widening of their ranges."""

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
from nsys_pp.frames.training import BATCH_COUNTS, HOST_ACTIVITY_COLUMNS, STEPS
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from nsys_pp.run.report import TRAINING_GROUPS, describe_training, find_links, project_report
from nsys_pp.training.batches import class_batches, widen_batches
from nsys_pp.training.names import choose_rules, name_steps
from tests.training.expected_training import fill_columns
from tests.training.test_names import ranges_of

NAMES = [
    ("[Executor] _forward_step 5: 0 ctx reqs, 0 ctx tokens, 32 gen reqs", "decode", (0, 0, 32, None)),
    ("[Executor] _forward_step 6: 2 ctx reqs, 2048 ctx tokens, 30 gen reqs", "mixed", (2, 2048, 30, None)),
    ("[Executor] _forward_step 7: 1 ctx reqs, 512 ctx tokens, 0 gen reqs", "prefill", (1, 512, 0, 0)),
    ("[Executor] _forward_step 7: 1 ctx reqs, 0 gen reqs", "prefill", (1, None, 0, 0)),
    ("[Executor] _forward_step: 0 ctx reqs, 3 gen reqs", "decode", (0, 0, 3, None)),
    ("[Executor] _forward_step 8: 0 ctx reqs, 0 ctx tokens, 0 gen reqs", None, (0, 0, 0, 0)),
    ("TrtGptModelInflightBatching::forwardAsync", None, (None,) * 4),
    ("execute_context_0(0)_generation_32(32)", "decode", (0, 0, 32, 32)),
    ("execute_context_1(512)_generation_0(0)", "prefill", (1, 512, 0, 0)),
    ("execute_context_2(2048)_generation_30(60)", "mixed", (2, 2048, 30, 60)),
    (
        "execute_33_context_1(sq1sk9sqsq1sqsk9)_generation_32(sq32sk16416sqsq32sqsk16416)",
        "mixed",
        (1, 1, 32, 32),
    ),
    ("execute_new_3_cached_0", "prefill", (3, None, None, None)),
    ("execute_new_0_cached_5", None, (None,) * 4),
    ("gpu_model_runner: preprocess", None, (None,) * 4),
    ("scheduler.run_batch", None, (None,) * 4),
    ("step[DECODE bs=32]", "decode", (None, None, 32, None)),
    ("step[EXTEND bs=4 toks=2048]", "prefill", (4, 2048, None, None)),
    ("step[EXTEND raw_bs=3 bs=4 toks=2048 g_sq=1 forward_id=9], seq = 5", "prefill", (4, 2048, None, None)),
    ("step[MIXED bs=9 toks=700]", "mixed", (None,) * 4),
    ("step[VERIFY bs=8]", "decode", (None, None, 8, None)),
    ("step[IDLE bs=0]", None, (None,) * 4),
    ("BackendThread resnet_0_0", None, (None,) * 4),
]


def steps_of(*spans: tuple[int, int]) -> pl.DataFrame:
    """Make steps of their ranges on the host."""
    frame = pl.DataFrame(spans, schema=["host_start_ns", "host_end_ns"], orient="row").with_columns(
        process_key=1, device_id=0, step=pl.int_range(pl.len()), source=pl.lit("range")
    )
    return fill_columns(frame, STEPS)


@pytest.mark.parametrize(("name", "kind", "counts"), NAMES)
def test_names_tell_kinds_and_counts(name: str, kind: str | None, counts: tuple[int | None, ...]) -> None:
    ranges = ranges_of(name)
    batches = class_batches(name_steps(ranges, choose_rules(ranges)), steps_of((0, 9)))
    assert batches.select("kind", *BATCH_COUNTS).row(0) == (kind, *counts)


def test_ranges_inside_a_step_have_what_it_lacks() -> None:
    ranges = ranges_of("scheduler.run_batch", "step[DECODE bs=7]", "scheduler.run_batch").with_columns(
        end_ns=pl.Series([25, 19, 29]), start_ns=pl.Series([0, 10, 28])
    )
    step_ranges = widen_batches(name_steps(ranges, choose_rules(ranges)))
    assert step_ranges["end_ns"].to_list() == [28, 19, 29]
    batches = class_batches(step_ranges, steps_of((0, 28), (28, 29)))
    assert batches["kind"].to_list() == ["decode", None]
    assert batches["generation_requests"].to_list() == [7, None]


def test_parallel_instances_are_not_widened() -> None:
    ranges = ranges_of("BackendThread a_0_0", "BackendThread a_0_1")
    assert widen_batches(name_steps(ranges, choose_rules(ranges)))["end_ns"].to_list() == [9, 19]


_MEASURED = ("start_ns", "end_ns", "kernel_ns", "graph_ns", "launch_count", "graph_launch_count")
_GAP_NS, _GAP_SHARE, _ACTIVITY_SHARE = 10_000, 0.02, 0.02  # errors that are allowed


def find_batches(path: Path) -> pl.DataFrame:
    """Find the batches of one report (`BATCHES`)."""
    report, options = build_report(read_report(path, need=TRAINING_GROUPS)), PartOptions()
    links = find_links(report)
    projections = project_report(report, ops=options.ops, scope=options.scope, launches=links.launches)
    return describe_training(report, projections=projections, links=links, options=options).frames["batches"]


def write_run(folder: Path, serving: Serving, seed: int) -> pl.DataFrame:
    """Write the reports of a run; return its truth on the clocks of the reports."""
    workers = serve(serving, seed)
    write_reports(folder, serving, workers)
    offsets = pl.Series(serving.offset_ns).gather(pl.Series([worker.rank for worker in workers]))
    truth = list_truth(serving, workers)
    return truth.with_columns(pl.col("start_ns", "end_ns") - offsets.gather(truth["rank"]))


@pytest.mark.few(5)
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
        assert batches.select(HOST_ACTIVITY_COLUMNS).sum_horizontal().to_list() == batches["gap_ns"].to_list()
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

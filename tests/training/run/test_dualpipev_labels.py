from __future__ import annotations

import re
from collections import Counter

import polars as pl
import pytest

from nsys_pp.training.schedule import label_jobs
from tests.training.dualpipev_labels import LOGITS, count_jobs_of_stage, label_jobs_of_stage
from tests.training.scheduled_runs import RUNS, build_scheduled_run, simulate_run

KNOWN = {  # (stage, stages, micro-batches) -> labels by phase, from running msprof-analyze
    (0, 2, 4): "0 1/2 4/logits 4b 4w 5/logits 3F+5B 6F+0B/logits 6B 7F+1B/logits 7B/2B 3B",
    (1, 2, 4): "/0 4 1 5//2F 4B 6F+0B 3F+5B 7F+1B//6B 2B/7B 3B",
    (0, 4, 10): (
        "0 1 2 3 4 5/6 10/logits 10b 10w 11 logits 11b 11w 12 logits 12b 12w 13"
        "/logits 7F+13B 14F+0B logits 8F+14B 15F+1B logits 9F+15B 16F+2B"
        "/logits 16B 17F+3B logits 17B 18F+4B logits 18B 19F+5B/logits 19B/6B 7B 8B 9B"
    ),
    (3, 4, 10): (
        "/0 10 1 11 2 12 3 13//4F 10B 14F+0B 5F+11B 15F+1B 6F+12B 16F+2B 7F+13B 17F+3B 8F+14B 18F+4B"
        " 9F+15B 19F+5B//16B 6B 17B 7B/18B 8B 19B 9B"
    ),
}


def by_phase(places: list[tuple[str, int]]) -> str:
    return "/".join(" ".join(label for label, phase in places if phase == wanted) for wanted in range(7))


@pytest.mark.parametrize("shape", KNOWN)
def test_labels_are_those_of_msprof_analyze(shape: tuple[int, int, int]) -> None:
    places = label_jobs_of_stage(*shape, has_logits=True)
    assert by_phase(places) == KNOWN[shape]
    assert [phase for _, phase in places] == sorted(phase for _, phase in places)
    without = [place for place in places if place[0] != LOGITS]
    assert label_jobs_of_stage(*shape) == without


def test_counts_are_those_of_msprof_analyze() -> None:
    assert [len(label_jobs_of_stage(stage, 4, 10, has_logits=True)) for stage in range(4)] == [44, 32, 30, 29]
    assert [len(label_jobs_of_stage(stage, 2, 4, has_logits=True)) for stage in range(2)] == [18, 13]


@pytest.mark.parametrize("stages", range(1, 17))
def test_every_forward_and_backward_comes_once(stages: int) -> None:
    for micro_batches in range(2 * stages, 2 * stages + 20):
        for stage in range(stages):
            places = label_jobs_of_stage(stage, stages, micro_batches, has_logits=True)
            assert len(places) == count_jobs_of_stage(stage, stages, micro_batches, has_logits=True)
            text = "+".join(label if label[-1].isalpha() else f"{label}F" for label, _ in places)
            found = Counter(
                (letter.upper(), int(number)) for number, letter in re.findall(r"(\d+)([FBb])", text)
            )
            both = {(letter, number) for letter in "FB" for number in range(2 * micro_batches)}
            assert set(found) == both
            assert set(found.values()) == {1}


def test_too_few_micro_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="needs 8 micro-batches or more"):
        label_jobs_of_stage(0, 4, 7)


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 4), (4, 10), (3, 11)])
def test_jobs_are_labelled_as_their_places(stages: int, micro_batches: int) -> None:
    training = build_scheduled_run("dualpipev", stages=stages, micro_batches=micro_batches, chunks=2)
    labelled = label_jobs(training.jobs, training.lanes, training.schedule)
    for (lane, _), jobs in labelled.group_by("lane", "step"):
        assert jobs.sort("start_ns").select("label", "phase").rows() == label_jobs_of_stage(
            lane, stages, micro_batches
        )


def test_jobs_of_a_simulated_run_are_labelled_as_their_places() -> None:
    training = simulate_run(RUNS["dualpipev"])
    labelled = label_jobs(training.jobs, training.lanes, training.schedule)
    for (lane, _), jobs in labelled.group_by("lane", "step"):
        assert jobs.sort("start_ns").select("label", "phase").rows() == label_jobs_of_stage(lane, 4, 10)


def test_a_lane_that_lacks_a_job_has_labels_but_no_phases() -> None:
    training = build_scheduled_run("dualpipev", stages=2, micro_batches=4, chunks=2, steps=1)
    jobs = training.jobs.filter(~((pl.col("lane") == 0) & (pl.col("start_ns") == 3000)))
    labelled = label_jobs(jobs.with_columns(job=pl.int_range(pl.len())), training.lanes, training.schedule)
    phases = dict(labelled.group_by("lane").agg(pl.col("phase").null_count()).iter_rows())
    assert phases == {0: 13, 1: 0}
    assert labelled["label"].to_list()[:4] == ["0", "1", "2", "4b"]

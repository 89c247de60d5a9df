"""Comparison of simulated serving runs: batches that take longer for their requests are no slower program."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import nsys_pp
from fixtures.serving.batches import draw_batches
from fixtures.serving.engines import ENGINES
from fixtures.serving.reports import write_reports
from fixtures.serving.simulate import draw_serving, serve
from nsys_pp.commands.pipeline import PipelineResult
from nsys_pp.frames.aggregates import RunFacts
from nsys_pp.frames.verdict import Verdict
from nsys_pp.tables.compare import describe_training, sample_training
from nsys_pp.tables.compare_verdict import (
    ComparisonError,
    build_comparison_verdict,
    compare_facts,
    describe_comparability,
)

Run = tuple[RunFacts, Mapping[str, pl.DataFrame]]


def _serve(folder: Path, engine: str, *, arrival: float, seed: int = 9) -> PipelineResult:
    """Run the same engine and model with other requests."""
    drawn = draw_serving(23, engine=engine)
    batches = draw_batches(random.Random(seed), count=30, arrival=arrival, can_mix=ENGINES[engine].can_mix)
    # whole graphs are decodes, also where names have no kind
    load = replace(drawn.load, graphs="none") if engine == "sglang" else drawn.load
    serving = replace(drawn, batches=batches, load=load)
    write_reports(folder, serving, serve(serving, seed))
    return nsys_pp.pipeline([folder])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, float], PipelineResult]:
    return {
        (engine, arrival): _serve(tmp_path_factory.mktemp("run"), engine, arrival=arrival)
        for engine in ("vllm", "sglang")
        for arrival in (0.2, 0.6)
    }


def _sum(result: PipelineResult) -> Run:
    return describe_training(result.training), sample_training(result.training)


def _compare(a: Run, b: Run) -> Verdict:
    return build_comparison_verdict((a[0], b[0]), (a[1], b[1]))


def test_decodes_are_compared(runs: dict[tuple[str, float], PipelineResult]) -> None:
    result = runs["vllm", 0.2]
    facts, samples = _sum(result)
    kinds = result.training.batches.group_by("step").agg(pl.col("kind").unique())
    decodes = {step for step, of_step in kinds.iter_rows() if of_step == ["decode"]}
    assert 2 < len(decodes) < kinds.height, "prefills are left out"
    assert facts.batches == "decodes"
    assert set(facts.steps) <= decodes
    for frame in samples.values():
        assert set(frame["step"]) <= decodes
    requests = result.training.batches.filter(pl.col("step").is_in(decodes))["generation_requests"].mean()
    assert facts.decode_requests == requests


def test_decodes_of_other_requests_are_a_guess(runs: dict[tuple[str, float], PipelineResult]) -> None:
    a, b = _sum(runs["vllm", 0.2]), _sum(runs["vllm", 0.6])
    fact = compare_facts(a[0], b[0]).filter(fact="requests of a decode").row(0, named=True)
    assert fact["effect"] == "large"
    findings = _compare(a, b).findings
    assert {finding.confidence for finding in findings[:-1]} == {"guess"}
    assert findings[0].text.endswith("batches of other requests take another time")
    same = _compare(a, a).findings[0]
    assert same.confidence == "certain"
    assert "other requests" not in same.text


def test_batches_of_unknown_kinds_are_a_guess(runs: dict[tuple[str, float], PipelineResult]) -> None:
    a, b = _sum(runs["sglang", 0.2]), _sum(runs["sglang", 0.6])
    assert (a[0].batches, a[0].decode_requests) == ("of unknown kinds", None)
    table = compare_facts(a[0], b[0])
    assert table.filter(fact="batches of inference")["effect"].item() == "large"
    assert "batches are of unknown kinds" in describe_comparability(table)
    assert {finding.confidence for finding in _compare(a, b).findings[:-1]} == {"guess"}


def test_batches_are_not_compared_with_steps_of_a_training() -> None:
    training = RunFacts(steps=(1, 2), step_source="range")
    serving = RunFacts(steps=(1, 2), step_source="range", batches="decodes")
    with pytest.raises(ComparisonError, match="batches of inference none in A, decodes in B"):
        compare_facts(training, serving)
    assert compare_facts(training, serving, allowed=["steps"])["effect"][0] == "excluded"

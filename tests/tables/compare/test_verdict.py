"""The verdict of a comparison, on simulated runs with a known difference; and on equal ones."""

from __future__ import annotations

from functools import cache

import pytest

from nsys_pp.frames.aggregates import RunFacts
from nsys_pp.frames.verdict import MOST_LINES, Finding
from nsys_pp.tables.compare import (
    LEAST_CHANGE,
    compare_longest_steps,
    describe_training,
    find_span_noise,
    sample_training,
)
from nsys_pp.tables.compare_verdict import Samples, build_comparison_verdict
from nsys_pp.tables.evidence import format_share
from tests.training.expected_training import simulate_training

HEALTHY = ("--seed 1", "--seed 2", "--seed 3 --vary-lengths 0.1", "--seed 4 --vary-lengths 0.1")


@cache
def sums(options: str) -> tuple[RunFacts, Samples]:
    training = simulate_training(options)
    return describe_training(training), sample_training(training)


def compare(a: str, b: str) -> tuple[Finding, ...]:
    (facts_a, samples_a), (facts_b, samples_b) = sums(a), sums(b)
    verdict = build_comparison_verdict((facts_a, facts_b), (samples_a, samples_b))
    assert 2 <= len(verdict.findings) <= MOST_LINES
    return verdict.findings


def kinds(findings: tuple[Finding, ...]) -> list[tuple[str, str | None]]:
    return [
        (finding.kind, finding.label)
        for finding in findings
        if finding.kind in ("rank", "ranks", "stage", "link")
    ]


@pytest.mark.few(1)
@pytest.mark.parametrize(("a", "b"), [HEALTHY[:2], HEALTHY[1::-1], HEALTHY[2:], HEALTHY[:1:-1]])
def test_equal_runs_name_nothing(a: str, b: str) -> None:
    steps, last = compare(a, b)
    assert "the same time within noise" in steps.text
    assert steps.gain_ns == 0
    assert last.text.startswith(
        "no change of ranks, bubble, links or kernels beyond noise: all 8 ranks within noise"
    )


def test_a_slow_rank_is_named_and_the_others_are_folded() -> None:
    findings = compare("--seed 1", "--slow-rank 5=1.25 --seed 2")
    assert "% longer" in findings[0].text
    assert findings[0].gain_ns > 0
    assert kinds(findings) == [("rank", "rank 5")]
    (rank,) = (finding for finding in findings if finding.kind == "rank")
    assert rank.excess_fraction == pytest.approx(0.25, abs=0.02)
    assert (rank.stage, rank.confidence, rank.since_step) == (2, "certain", None)
    assert "7 ranks within noise" in findings[-1].text


def test_the_other_way_round_it_computes_shorter() -> None:
    findings = compare("--slow-rank 5=1.25 --seed 2", "--seed 1")
    assert kinds(findings) == [("rank", "rank 5")]
    assert "rank 5 (stage 2) computes 20 % shorter" in " ".join(finding.text for finding in findings)
    assert "shrank" in " ".join(finding.text for finding in findings)


def test_a_rank_that_became_slow_has_its_step() -> None:
    findings = compare("--seed 1 --steps 8", "--slow-rank 5=1.25 --slow-since 14 --seed 2 --steps 8")
    (rank,) = (finding for finding in findings if finding.kind == "rank")
    assert (rank.label, rank.since_step, findings[0].since_step) == ("rank 5", 14, 14)
    assert "since step 14" in rank.text


def test_a_run_that_changed_inside_a_says_so() -> None:
    findings = compare("--slow-rank 5=1.25 --slow-since 14 --seed 2 --steps 8", "--seed 1 --steps 8")
    assert "in A itself they take" in findings[0].text
    assert "since step 14" in findings[0].text


def test_a_stage_with_more_work_is_one_finding() -> None:
    findings = compare("--seed 1", "--stage-costs 1,1.2,1,1 --seed 2")
    assert kinds(findings) == [("stage", "stage 1")]
    assert "stage 1 (2 ranks) computes 20 % longer" in " ".join(finding.text for finding in findings)
    assert "6 ranks within noise" in findings[-1].text


def test_all_ranks_are_one_finding() -> None:
    findings = compare("--seed 1", "--stage-costs 1.2,1.2,1.2,1.2 --seed 2")
    assert [kind for kind, _ in kinds(findings)] == ["ranks"]
    assert any(finding.text.startswith("all 8 ranks compute 20 % longer") for finding in findings)


def test_a_slow_link_is_named() -> None:
    findings = compare("--seed 1", "--slow-link 2,4=3 --seed 2")
    assert kinds(findings) == [("link", "rank 2 -> rank 4")]
    (link,) = (finding for finding in findings if finding.kind == "link")
    assert link.excess_fraction == pytest.approx(2, abs=0.3)
    assert "11 links within noise" in findings[-1].text


def test_other_numbers_of_micro_batches_are_no_change_of_ranks() -> None:
    findings = compare("--seed 1 --micro-batches 4", "--seed 2 --micro-batches 8")
    assert kinds(findings) == []
    assert "per micro-batch" in findings[0].text
    assert "shorter" in findings[0].text, "a larger step has a smaller bubble"


def test_of_a_single_step_no_change_is_claimed() -> None:
    findings = compare("--seed 1", "--slow-rank 5=1.25 --seed 2 --steps 1")
    assert kinds(findings) == []
    assert findings[0].confidence == "guess"
    assert "single step" in findings[0].text
    assert "single step" in findings[-1].text


def test_of_two_steps_the_size_of_noise_is_not_stated() -> None:
    findings = compare("--seed 1 --steps 2 --jitter 0.2", "--seed 2 --steps 2 --jitter 0.2")
    assert findings[0].noise_fraction is not None
    assert findings[0].noise_fraction > 1
    assert findings[0].confidence == "guess"
    assert "there are so few steps that any change may be noise" in findings[0].text
    assert "within noise" not in findings[0].text


def test_a_step_that_stands_out_is_a_line() -> None:
    stalled = "--seed 2 --steps 6 --host-stall 5,13=30"
    for at, (a, b) in enumerate((("--seed 1 --steps 6", stalled), (stalled, "--seed 1 --steps 6"))):
        findings = compare(a, b)
        run, other = ("B", "A") if at == 0 else ("A", "B")
        assert "the same time within noise" in findings[0].text
        assert findings[1].text.startswith(f"the longest step of {run}, 13, is longer than any of {other}: ")
        assert (findings[1].kind, findings[1].step) == ("long_step", 13)
        row = compare_longest_steps(sums(a)[1], sums(b)[1]).row(0, named=True)
        assert (findings[1].usual_ns, findings[1].value_ns) == (row["a"], row["b"])


def test_steps_that_are_all_longer_have_no_line_on_the_longest() -> None:
    findings = compare("--seed 1", "--stage-costs 1.2,1.2,1.2,1.2 --seed 2")
    assert not [finding for finding in findings if finding.kind == "long_step"]


def test_the_noise_of_steps_is_that_of_their_table() -> None:
    a, b = sums(HEALTHY[2])[1], sums(HEALTHY[3])[1]
    noise = find_span_noise(a, b)
    assert noise is not None
    text = compare(*HEALTHY[2:])[0].text
    assert f"(noise up to {format_share(max(noise, LEAST_CHANGE))}" in text
    assert "the verdict counts changes beyond" in text

"""Comparisons of runs: tables, verdict, comparability and gates, on simulated runs with a known difference."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

import msgspec.structs
import polars as pl
import pytest

import nsys_pp
from fixtures.serving.batches import draw_batches
from fixtures.serving.engines import ENGINES
from fixtures.serving.reports import write_reports
from fixtures.serving.simulate import draw_serving, serve
from nsys_pp.commands.pipeline import PipelineResult
from nsys_pp.errors import NsysPPError
from nsys_pp.frames.aggregates import RunFacts
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import KERNEL_AGGREGATES, Training
from nsys_pp.frames.verdict import MOST_LINES, Finding, Verdict
from nsys_pp.options import ASPECTS
from nsys_pp.tables.compare import (
    COMPARISON,
    TABLES,
    Samples,
    check_gates,
    compare_longest_steps,
    describe_training,
    parse_gate,
    sample_training,
)
from nsys_pp.tables.compare_verdict import (
    Comparison,
    ComparisonError,
    build_comparison_verdict,
    compare_facts,
    describe_comparability,
)
from tests.training.expected_training import simulate_training

CHANGED = ["slower", "faster"]


def compare_trainings(a: Training, b: Training) -> dict[str, pl.DataFrame]:
    samples = sample_training(a), sample_training(b)
    return {name: table.build(*samples) for name, table in TABLES.items()}


def with_kernels(training: Training, kernels: dict[str, tuple[int, int]], scatter: int = 0) -> Training:
    """Add kernels by name, (count, total) on each lane in each step."""
    lanes = training.steps.select("lane", "step")
    parts = [
        lanes.with_columns(
            name=pl.lit(name),
            count=count,
            total_ns=total + scatter * (pl.col("step") % 3),
            min_ns=0,
            max_ns=total,
            is_communication=False,
            kind=pl.lit("kernel"),
            full_name=None,
            job_kind=None,
            process_key=0,
            device_id=0,
        )
        for name, (count, total) in kernels.items()
    ]
    sums = pl.concat(parts)
    typed = conform(sums, KERNEL_AGGREGATES).drop("process_key", "device_id").with_columns(sums["lane"])
    return replace(training, kernels=typed)


@pytest.mark.slow
def test_equal_runs_of_other_seeds_are_the_same() -> None:
    runs = [simulate_training(f"--seed {seed}") for seed in range(2, 6)]
    verdicts: Counter[str] = Counter()
    for a, b in combinations(runs, 2):
        for frame in compare_trainings(a, b).values():
            verdicts.update(frame["verdict"].to_list())
    assert sum(verdicts[one] for one in CHANGED) <= 0.01 * verdicts["same"]
    assert set(verdicts) <= {"same", *CHANGED}


@pytest.mark.few(1)
@pytest.mark.parametrize("steps", [3, 4, 8])
def test_one_stalled_step_of_few_is_beyond_the_noise_of_the_others(steps: int) -> None:
    runs = [
        simulate_training(f"--steps {steps} --seed {seed}{stall}")
        for seed, stall in ((1, ""), (2, ""), (3, " --stall 11=30"))
    ]
    for a, b, expected in ((0, 2, "slower"), (2, 0, "faster"), (0, 1, "same")):
        table = compare_trainings(runs[a], runs[b])["steps"]
        longest = table.filter(pl.col("stage").is_null(), subject="longest_step", unit="ns")
        assert longest["verdict"].item() == expected


def test_kernels_are_matched_by_name() -> None:
    training = simulate_training()
    a = with_kernels(training, {"gemm": (8, 8_000_000), "relu": (4, 400_000), "old": (1, 10)}, scatter=10)
    b = with_kernels(training, {"gemm": (8, 9_000_000), "relu": (8, 800_000), "new": (1, 10)}, scatter=10)
    kernels = compare_trainings(a, b)["kernels"]
    assert kernels.select("subject", "metric", "verdict").rows() == [
        ("gemm", "total per lane", "slower"),
        ("gemm", "mean of one", "slower"),
        ("relu", "total per lane", "slower"),
        ("relu", "mean of one", "same"),
        ("old", "total per lane", "gone"),
        ("old", "mean of one", "gone"),
        ("new", "total per lane", "new"),
        ("new", "mean of one", "new"),
    ]
    assert kernels.row(0, named=True)["change_fraction"] == pytest.approx(1 / 8, rel=1e-3)
    both = compare_trainings(a, b)["steps"].filter(subject="kernels").row(0, named=True)
    assert both["a"] == pytest.approx(8_400_010 + 30, abs=60)


def test_steps_that_a_capture_cut_do_not_count() -> None:
    training = simulate_training()
    late = pl.when(step=10).then(pl.col("end_ns") + 10**9).otherwise("end_ns")
    cut = replace(training, steps=training.steps.with_columns(end_ns=late, is_partial=pl.col("step") == 10))
    step = compare_trainings(training, cut)["steps"].filter(subject="longest_step").row(0, named=True)
    assert (step["a_step_count"], step["b_step_count"], step["verdict"]) == (4, 3, "same")


HEALTHY = ("--seed 1", "--seed 2", "--seed 3 --vary-lengths 0.1", "--seed 4 --vary-lengths 0.1")


@cache
def sums(options: str) -> tuple[RunFacts, Samples]:
    training = simulate_training(options)
    return describe_training(training), sample_training(training)


def compare(a: str, b: str) -> tuple[Finding, ...]:
    (facts_a, samples_a), (facts_b, samples_b) = sums(a), sums(b)
    comparison = Comparison((facts_a, facts_b), (samples_a, samples_b))
    findings = build_comparison_verdict(comparison).findings
    assert 2 <= len(findings) <= MOST_LINES
    for finding in findings:
        assert_table_agrees(comparison, finding)
    return findings


def assert_table_agrees(comparison: Comparison, finding: Finding) -> None:
    """A rank, link or step that is named has the same figures in its table."""
    tables = {"rank": "ranks", "link": "links", "step": "steps", "long_step": "steps"}
    if finding.kind not in tables or comparison.per or finding.noise_fraction is None:
        return
    subject = {"step": "step", "long_step": "longest_step"}.get(finding.kind, finding.label)
    row = comparison.build_tables()[tables[finding.kind]].filter(subject=subject).row(0, named=True)
    assert (row["a"], row["b"]) == (finding.usual_ns, finding.value_ns)
    assert row["noise_fraction"] == finding.noise_fraction
    assert (row["verdict"] in CHANGED) == (finding.gain_ns > 0 or finding.kind == "link")


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
        "no change of ranks, bubble, links or kernels beyond noise: all 8 ranks changed by noise"
    )


def test_a_slow_rank_is_named_and_the_others_are_folded() -> None:
    findings = compare("--seed 1", "--slow-rank 5=1.25 --seed 2")
    assert "% longer" in findings[0].text
    assert findings[0].gain_ns > 0
    assert kinds(findings) == [("rank", "rank 5")]
    (rank,) = (finding for finding in findings if finding.kind == "rank")
    assert rank.excess_fraction == pytest.approx(0.25, abs=0.02)
    assert (rank.stage, rank.confidence, rank.since_step) == (2, "likely", None)
    assert "7 ranks changed by noise" in findings[-1].text


# options of A and B, what is named, and what the sentences say
CHANGES = {
    "a faster rank": (
        ("--slow-rank 5=1.25 --seed 2", "--seed 1"),
        [("rank", "rank 5")],
        ["rank 5 (stage 2) computes 20 % shorter", "shrank"],
    ),
    "a stage with more work": (
        ("--seed 1", "--stage-costs 1,1.2,1,1 --seed 2"),
        [("stage", "stage 1")],
        ["stage 1 (2 ranks) computes 20 % longer", "6 ranks changed by noise"],
    ),
    "all ranks": (
        ("--seed 1", "--stage-costs 1.2,1.2,1.2,1.2 --seed 2"),
        [("ranks", None)],
        ["all 8 ranks compute 20 % longer"],
    ),
    "a link": (
        ("--seed 1", "--slow-link 2,4=3 --seed 2"),
        [("link", "rank 2 -> rank 4")],
        ["11 links changed by noise"],
    ),
}


# options of A and B, what is named, and what the first sentence says
FIRSTS: dict[str, tuple[tuple[str, str], list[object] | None, list[str]]] = {
    "in A itself": (
        ("--slow-rank 5=1.25 --slow-since 13 --seed 2 --steps 8", "--seed 1 --steps 8"),
        None,
        ["in A itself they take", "since step 13"],
    ),
    # a larger step has a smaller bubble
    "other numbers of micro-batches are no change of ranks": (
        ("--seed 1 --micro-batches 4", "--seed 2 --micro-batches 8"),
        [],
        ["per micro-batch", "shorter"],
    ),
}


@pytest.mark.parametrize(("runs", "named", "words"), FIRSTS.values(), ids=FIRSTS)
def test_the_first_sentence_says_what_differs(
    runs: tuple[str, str], named: list[object] | None, words: list[str]
) -> None:
    findings = compare(*runs)
    assert named is None or kinds(findings) == named
    assert all(word in findings[0].text for word in words)


@pytest.mark.parametrize(("runs", "named", "words"), CHANGES.values(), ids=CHANGES)
def test_what_changed_is_one_finding(
    runs: tuple[str, str], named: list[tuple[str, str | None]], words: list[str]
) -> None:
    findings = compare(*runs)
    assert [(kind, label if named[0][1] else None) for kind, label in kinds(findings)] == named
    text = " ".join(finding.text for finding in findings)
    assert all(word in text for word in words)
    assert "long_step" not in [finding.kind for finding in findings]


def test_a_rank_that_became_slow_has_its_step() -> None:
    findings = compare("--seed 1 --steps 8", "--slow-rank 5=1.25 --slow-since 13 --seed 2 --steps 8")
    (rank,) = (finding for finding in findings if finding.kind == "rank")
    assert (rank.label, rank.since_step, findings[0].since_step) == ("rank 5", 13, 13)
    assert "since step 13" in rank.text


def test_of_a_single_step_no_change_is_claimed() -> None:
    findings = compare("--seed 1", "--slow-rank 5=1.25 --seed 2 --steps 1")
    assert (kinds(findings), findings[0].confidence) == ([], "guess")
    assert "single step" in findings[0].text
    assert "single step" in findings[-1].text


def test_where_steps_are_the_same_kernels_come_first() -> None:
    training = simulate_training("--seed 1")
    gemms = {"ampere_sgemm_128x64_tn": (10, 9_000_000), "softmax_kernel": (4, 1_000_000)}
    fewer = {**gemms, "ampere_sgemm_128x64_tn": (8, 7_200_000)}
    facts = describe_training(training)
    a, b = (sample_training(with_kernels(training, kernels)) for kernels in (gemms, fewer))
    first, *_, steps, last = build_comparison_verdict(Comparison((facts, facts), (a, b))).findings
    assert (first.kind, steps.kind, last.kind) == ("kernel", "step", "same")
    begin = "12 kernels instead of 14 take 18 % shorter in sum: 8.2 ms instead of 10.0 ms per rank, per step"
    assert first.text.startswith(f"{begin} (GEMM -1.8 ms)")
    same = build_comparison_verdict(Comparison((facts, facts), (a, a))).findings
    assert [finding.kind for finding in same] == ["step", "same"]


def test_of_captures_kernels_and_idle_time_come_first(shared_reports: list[Path]) -> None:
    before, after = (
        next(path for path in shared_reports if name in path.name)
        for name in ("mfu_2gpu_before", "mfu_2gpu_after")
    )
    first, second, third, *_ = nsys_pp.compare(before, after).verdict.lines
    kernels = (
        r"Guess: 1,762 kernels instead of 1,972 take 11 % shorter in sum: 228 ms instead .*attention -15.8 ms"
    )
    assert re.match(kernels, first)
    assert second.startswith("Guess: the time without compute grew from 14 % to 24 % of the capture")
    assert third.startswith("Guess: the captures take 299 ms as before")
    turns = next(path for path in shared_reports if "jacobi" in path.name)  # the steps of two GPUs, in turn
    assert "in A itself" not in nsys_pp.compare(turns, turns).verdict.lines[0]


def test_of_two_steps_the_size_of_noise_is_not_stated() -> None:
    findings = compare("--seed 1 --steps 2 --jitter 0.2", "--seed 2 --steps 2 --jitter 0.2")
    assert (findings[0].noise_fraction or 0) > 1
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
def served(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, float], PipelineResult]:
    return {
        (engine, arrival): _serve(tmp_path_factory.mktemp("run"), engine, arrival=arrival)
        for engine in ("vllm", "sglang")
        for arrival in (0.2, 0.6)
    }


def _sum(result: PipelineResult) -> Run:
    return describe_training(result.training), sample_training(result.training)


def _judge(a: Run, b: Run) -> Verdict:
    return build_comparison_verdict(Comparison((a[0], b[0]), (a[1], b[1])))


def test_decodes_are_compared(served: dict[tuple[str, float], PipelineResult]) -> None:
    result = served["vllm", 0.2]
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


def test_decodes_of_other_requests_are_a_guess(served: dict[tuple[str, float], PipelineResult]) -> None:
    a, b = _sum(served["vllm", 0.2]), _sum(served["vllm", 0.6])
    fact = compare_facts(a[0], b[0]).filter(fact="requests of a decode").row(0, named=True)
    assert fact["effect"] == "large"
    findings = _judge(a, b).findings
    assert {finding.confidence for finding in findings[:-1]} == {"guess"}
    assert findings[0].text.endswith("batches of other requests take another time")
    same = _judge(a, a).findings[0]
    assert same.confidence == "certain"
    assert "other requests" not in same.text


def test_batches_are_not_compared_with_steps_of_a_training() -> None:
    training = RunFacts(steps=(1, 2), step_source="range")
    serving = RunFacts(steps=(1, 2), step_source="range", batches="decodes")
    with pytest.raises(ComparisonError, match="batches of inference none in A, decodes in B"):
        compare_facts(training, serving)
    assert compare_facts(training, serving, allowed=["steps"])["effect"][0] == "excluded"


FACTS = RunFacts(
    steps=(10, 11, 12),
    step_source="range",
    gpus={"NVIDIA H100": 8},
    drivers=("550.90.07",),
    nsys=("2023.4.4.54",),
    lane_count=8,
    stage_count=4,
    micro_batch_count=8,
    has_passes=True,
    recorded=("NVTX ranges", "kernels"),
    options="--ops kernel --scope auto",
    bound_ns=1_000,
)


def differing(b: RunFacts, **options: list[str]) -> dict[str, tuple[str | None, str | None, str]]:
    rows = compare_facts(FACTS, b, allowed=options.get("allowed", ())).filter(pl.col("effect") != "same")
    assert rows["meaning"].null_count() == 0, "each difference has its reason"
    return {
        fact: (a, b, effect) for fact, a, b, effect in rows.select("fact", "a", "b", "effect").iter_rows()
    }


def test_equal_facts_are_the_same() -> None:
    assert differing(msgspec.structs.replace(FACTS, bound_ns=2_000, steps=(1, 2, 3, 4))) == {}
    assert describe_comparability(compare_facts(FACTS, FACTS)).startswith("the setups are alike")


def test_differences_are_named_with_their_effect() -> None:
    other = msgspec.structs.replace(
        FACTS,
        gpus={"NVIDIA A100": 4, "NVIDIA H100": 4},
        drivers=("535.1",),
        nsys=(),
        micro_batch_count=16,
        recorded=("NVTX ranges", "kernels", "OS calls"),
    )
    assert differing(other) == {
        "GPUs": ("8 x NVIDIA H100", "4 x NVIDIA A100, 4 x NVIDIA H100", "large"),
        "micro-batches of a step": ("8", "16", "large"),
        "GPU driver": ("550.90.07", "535.1", "noted"),
        "nsys": ("2023.4.4.54", None, "unknown"),
        "what was recorded": ("less", "also OS calls", "noted"),
    }
    assert describe_comparability(compare_facts(FACTS, other)) == (
        "the runs differ in micro-batches of a step and GPUs, so compare with care"
    )


@pytest.mark.parametrize(
    ("changes", "aspect"),
    [
        ({"step_source": "capture"}, "steps"),
        ({"stage_count": 2}, "stages"),
        ({"has_passes": False}, "jobs"),
        ({"options": "--ops kernel,memcpy --scope auto"}, "operations"),
    ],
)
def test_refusals_name_the_option_that_overrides(changes: dict[str, object], aspect: str) -> None:
    other = msgspec.structs.replace(FACTS, **changes)
    with pytest.raises(ComparisonError, match="A and B cannot be compared") as caught:
        compare_facts(FACTS, other)
    assert f"--allow-different {aspect}" in str(caught.value.hint)
    assert [effect for _, _, effect in differing(other, allowed=[aspect]).values()] == ["excluded"]
    with pytest.raises(ComparisonError):
        compare_facts(FACTS, other, allowed=[name for name in ASPECTS if name != aspect])


def test_a_run_without_steps_is_refused() -> None:
    with pytest.raises(ComparisonError, match="run B has no complete step in 90:91"):
        compare_facts(FACTS, msgspec.structs.replace(FACTS, steps=(), window="90:91"))


MS = 1_000_000


def row(
    subject: str,
    a: float | None,
    b: float | None,
    *,
    unit: str = "ns",
    stage: int | None = None,
    noise: float | None = 0.01,
) -> dict[str, object]:
    change = None if a is None or b is None else b - a if unit == "fraction" else b / a - 1 if a else None
    return {
        "stage": stage,
        "subject": subject,
        "unit": unit,
        "a": a,
        "b": b,
        "b_of_all": b,
        "change_fraction": change,
        "noise_fraction": noise,
    }


def comparison(*rows: dict[str, object]) -> dict[str, pl.DataFrame]:
    return {
        "steps": pl.DataFrame(list(rows), schema=COMPARISON),
        **dict.fromkeys(("bubbles", "stages", "kinds", "kernels"), COMPARISON.to_frame()),
    }


RUNS = comparison(
    row("step", 100.0 * MS, 104.0 * MS),
    row("bubble", 0.20, 0.26, unit="fraction"),
    row("bubble", 20.0 * MS, 27.0 * MS),
    row("bubble", 0.10, 0.13, unit="fraction", stage=2),
    row("data", 0.0, 5.0 * MS, noise=None),
    row("data", 0.0, 0.05, unit="fraction"),
    row("forward", 10.0 * MS, 9.0 * MS),
    row("weight_gradient", None, 9.0 * MS),
    {**row("message", 0.11, 0.0, unit="fraction"), "verdict": "faster"},
    row("message_wait", 0.03, 0.12, unit="fraction"),
)


def fails(text: str, runs: dict[str, pl.DataFrame] = RUNS) -> bool:
    return bool(check_gates(runs, [parse_gate(text)])[0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("step>3%", True),
        ("step>5%", False),
        ("step>3ms", True),
        ("step>3999us", True),
        ("step>4001us", False),
        ("step > .003s", True),
        ("bubble>5%", True),  # percentage points
        ("bubble>7%", False),
        ("bubble>6ms", True),
        ("bubble>8ms", False),
        ("bubble_b>25%", True),
        ("bubble_b>27%", False),
        ("bubble_b>=27ms", True),
        ("bubble_b<30%", True),
        ("step_b>103ms", True),
        ("stage 2 bubble>2%", True),
        ("stage 2 bubble>4%", False),
        ("stage  2  bubble_b > 12.5 %", True),
        ("data>1%", True),
        ("data>1ms", True),
        ("forward<-5%", True),
        ("forward>1%", False),
        ("weight_gradient_b>8ms", True),
        ("message_wait>2%", False),  # B may know of more messages that they waited
        ("message_wait_b>10%", True),
    ],
)
def test_gates_mean_what_they_say(text: str, expected: bool) -> None:
    assert fails(text) is expected


def test_where_noise_is_unknown_the_change_counts_and_the_sentence_says_so() -> None:
    single = comparison(row("step", 100.0 * MS, 104.0 * MS, noise=None))
    (sentence,), _ = check_gates(single, [parse_gate("step>3%")])
    assert sentence == (
        "`step>3%`: step went from 100.000 ms to 104.000 ms; its noise is unknown: a run has a single step"
    )


@pytest.mark.parametrize("text", ["optimizer>5%", "stage 7 bubble>5%", "weight_gradient>5%", "step_b>5%"])
def test_a_metric_that_the_runs_lack_is_an_error(text: str) -> None:
    with pytest.raises(NsysPPError) as caught:
        fails(text)
    assert text in caught.value.message
    assert caught.value.hint

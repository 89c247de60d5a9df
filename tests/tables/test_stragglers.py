from __future__ import annotations

from dataclasses import replace
from random import Random

import polars as pl
import pytest

from nsys_pp.frames.training import Training
from nsys_pp.tables.analysis import Evidence
from nsys_pp.tables.page import build_rank_steps
from nsys_pp.tables.registry import TRAINING_TABLES as TABLES
from nsys_pp.tables.training import build_link_table
from nsys_pp.tables.verdict import build_verdict, find_stragglers
from tests.tables.test_training import cut_training
from tests.training.expected_training import simulate_training


def slow_ones(training: Training) -> list[str]:
    return find_stragglers(training).filter("is_slow")["label"].to_list()


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "options",
    [
        "",
        "--seed 2",
        "--schedule gpipe --seed 3",
        "--schedule interleaved --seed 4",
        "--schedule zb-h1 --seed 5",
        "--schedule dualpipev --micro-batches 8 --seed 6",
        "--skew-us 5 --seed 7",
        "--dp 1 --grouped-messages --seed 8",
        "--dp 1 --tp 2 --seed 9",
        "--steps 1 --seed 10",
        "--stall 11=30 --host-bound 12=3",
        "--buffered-bytes 100000000",
    ],
)
def test_in_a_sound_run_nobody_is_slow(options: str) -> None:
    assert slow_ones(simulate_training(options)) == []


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("options", "slow"),
    [
        pytest.param("--slow-rank 5=1.2", "rank 5", id="rank"),
        pytest.param("--slow-rank 5=1.08 --schedule gpipe", "rank 5", id="slightly slow rank"),
        pytest.param("--slow-rank 3=1.2 --dp 1 --tp 2", "rank 3", id="rank among tensor peers"),
        pytest.param(
            "--slow-rank 0=1.3 --schedule dualpipev --micro-batches 8", "rank 0", id="rank of a DualPipeV"
        ),
        pytest.param("--slow-rank 2=1.2 --dp 1", "stage 2", id="the only rank of a stage"),
        pytest.param("--stage-costs 1,1.3,1,1", "stage 1", id="stage"),
        pytest.param("--slow-link 2,4=5 --micro-batches 8", "rank 2 -> rank 4", id="link between machines"),
        pytest.param(
            "--slow-link 2,0=4 --skew-us 5 --micro-batches 8", "rank 2 -> rank 0", id="link within a machine"
        ),
        pytest.param(
            "--slow-link 1,2=3 --dp 1 --micro-batches 8",
            "rank 1 -> rank 2",
            id="link with one other of its kind",
        ),
        pytest.param(
            "--slow-link 2,4=5 --grouped-messages --steps 12",
            "rank 2 -> rank 4",
            id="link of grouped messages",
        ),
        pytest.param("--slow-rank 5=1.3 --steps 1", "rank 5", id="in a single step"),
        pytest.param("--stage-costs 1,1.4,1,1 --steps 1", "stage 1", id="stage in a single step"),
    ],
)
def test_only_the_planted_one_is_slow(options: str, slow: str) -> None:
    assert slow_ones(simulate_training(options)) == [slow]


@pytest.mark.parametrize(
    "options", ["--steps 4", "--steps 4 --schedule gpipe --slow-rank 5=1.3", "--steps 2"]
)
@pytest.mark.parametrize("first_lanes", [1, 4])
def test_steps_that_the_capture_cuts_are_not_compared_with_whole_ones(options: str, first_lanes: int) -> None:
    """Every step is cut on some lane: the first one on a few lanes, the last one on the others, the middle on all of them."""
    training = simulate_training(f"{options} --jitter 0.01")
    first, last = training.steps["step"].min(), training.steps["step"].max()
    is_first_lane = pl.col("lane") < first_lanes
    cut = pl.when(step=first).then(is_first_lane).when(step=last).then(~is_first_lane).otherwise(True)
    found = find_stragglers(cut_training(training, cut)).filter(pl.col("what") != "link")
    assert found.filter("is_slow")["label"].to_list() == ["rank 5"] * ("slow" in options)
    assert found.filter(what="rank").height >= 2


def test_a_link_within_its_bound_is_not_slow() -> None:
    training = simulate_training("--slow-link 2,4=5 --micro-batches 8")
    excess = 4 * 390_000

    def links(bound_ns: int | None) -> list[bool]:
        bound = pl.lit(bound_ns, pl.Int64)
        bounded = replace(training, transfers=training.transfers.with_columns(bound_ns=bound))
        return build_link_table(bounded).filter(sender=2, receiver=4)["is_slow"].to_list()

    assert [links(bound) for bound in (excess // 2 - 1, excess // 2 + 1, None)] == [[True], [False], [False]]


def test_few_messages_must_exceed_each_limit_twofold() -> None:
    training = simulate_training("--slow-link 2,4=5 --micro-batches 8")
    excess, usual = 4 * 390_000, 390_000
    of_link = (pl.col("sender") == 2) & (pl.col("receiver") == 4)

    def is_slow(count: int, *, less_ns: int = 0, bound_ns: int = 0) -> bool:
        number = pl.int_range(pl.len()).over("sender", "receiver")
        transfers = training.transfers.filter(~of_link | (number < count)).with_columns(
            bound_ns=pl.lit(bound_ns, pl.Int64),
            transfer_ns=pl.col("transfer_ns") - pl.when(of_link).then(less_ns).otherwise(0),
        )
        links = build_link_table(replace(training, transfers=transfers))
        return bool(links.filter(sender=2, receiver=4)["is_slow"].item())

    assert [is_slow(count) for count in (5, 6, 19)] == [False, True, True]
    assert [is_slow(19, bound_ns=excess // part) for part in (3, 5)] == [False, True]
    assert [is_slow(20, bound_ns=excess // part) for part in (3, 5)] == [True, True]
    forty_percent_longer = excess - usual * 2 // 5
    assert [is_slow(count, less_ns=forty_percent_longer) for count in (19, 20)] == [False, True]


def test_few_or_doubtful_messages_do_not_make_a_link_slow() -> None:
    training = simulate_training("--slow-link 2,4=5 --micro-batches 8")

    def slow(transfers: pl.DataFrame) -> list[tuple[object, ...]]:
        links = build_link_table(replace(training, transfers=transfers)).filter(sender=2, receiver=4)
        return links.select("message_count", "doubtful_count", "timed_count", "is_slow").rows()

    transfers = training.transfers
    assert slow(transfers) == [(32, 0, 32, True)]
    few = (pl.col("step") == 10) & (pl.col("micro_batch") < 5)
    assert slow(transfers.filter(few)) == [(5, 0, 5, False)]
    doubtful = pl.when(~few).then(pl.lit("clocks", transfers.schema["doubtful"]))
    assert slow(transfers.with_columns(doubtful=doubtful)) == [(32, 27, 5, False)]
    assert slow(transfers.with_columns(transfer_ns=pl.lit(None, pl.Int64))) == [(32, 0, 0, False)]


def test_messages_of_different_sizes_are_not_compared() -> None:
    training = simulate_training()
    is_large = pl.col("sender") == 2
    transfers = training.transfers.with_columns(
        size_bytes=pl.when(is_large).then(4_000).otherwise(1_000),
        transfer_ns=pl.col("transfer_ns") * pl.when(is_large).then(4).otherwise(1),
    )
    links = build_link_table(replace(training, transfers=transfers))
    assert not links["is_slow"].any()
    large = links.filter(sender=2, receiver=4).row(0, named=True)
    assert large["size_bytes"] == 4_000 * large["message_count"]
    assert large["bytes_per_s"] == pytest.approx(4_000 / (4 * 390e-6))


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(40, 56))
def test_no_table_contradicts_the_verdict(seed: int) -> None:
    """Each rank or stage that the verdict names is slow in the table, with equal figures, in drawn worlds; so it is in the
    heat map and the tables of steps and stages."""
    random = Random(seed)
    rank, excess = random.randrange(8), random.choice([1.0, 1.08, 1.25, 1.6])
    options = [
        f"--slow-rank {rank}={excess}" if excess > 1 else "",
        f"--slow-since {random.choice([12, 14])}" if excess > 1 and random.random() < 0.5 else "",
        f"--jitter {random.choice([0.0, 0.01, 0.05])}",
        f"--stage-costs 1,{random.choice([1, 1.2])},1,1",
        f"--steps {random.choice([1, 4, 8])} --seed {seed}",
    ]
    training = simulate_training(" ".join(options))
    slow = find_stragglers(training).filter("is_slow")
    figures = {
        (row["what"], row["label"]): (row["value_ns"], row["usual_ns"], row["excess_fraction"])
        for row in slow.iter_rows(named=True)
    }
    named = [finding for finding in build_verdict(training).findings if finding.kind == "straggler"]
    for finding in named:
        if finding.subject in ("rank", "stage"):
            found = figures[finding.subject, finding.label]
            assert found == (finding.value_ns, finding.usual_ns, finding.excess_fraction)
    if excess >= 1.25 and "--steps 8" in options[-1]:
        assert ("rank", f"rank {rank}") in figures
    own = Evidence(training).stragglers
    heat = build_rank_steps(Evidence(training))
    for member in own.ranks.slow:
        cells = heat.filter(pl.col("lane") == member.member, pl.col("step").is_in(member.steps))
        assert cells["excess_fraction"].min() > 0  # type: ignore[operator]
        if len(set(member.steps)) == 1:
            assert cells["excess_fraction"].item() == pytest.approx(member.excess_fraction)
    stages = {slow.member: slow for slow in own.stages.slow}
    steps = TABLES["steps"].build(training).drop_nulls("slowest_stage")
    for step, stage in steps.select("step", "slowest_stage").iter_rows():
        assert step in stages[stage].steps
    if len(stages) == 1:
        assert steps["step"].to_list() == [step for slow in stages.values() for step in slow.steps]
    computes = TABLES["stages"].build(training).sort("median_compute_ns")
    if stages and excess == 1:
        assert computes["stage"].last() == own.stages.slow[0].member
    assert slow.filter(what="stage")["stage"].to_list() == [*stages]
    ranks = slow.filter(what="rank")["lane"].to_list()
    assert sorted(ranks) == sorted(member.member for member in own.ranks.slow)

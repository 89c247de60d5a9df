"""Twenty random worlds with fixed seeds: small ones, chosen by their size and not by their results.

Each world is simulated, analysed with and without `--layout`, and scored. A world may break only what `KNOWN` lists for
it (kinds of `list_breaks`): bounds of clocks, groups of clocks, pairs of messages, messages without a pair (more than
2 %), causes (more than 2 percent of a step too much), steps, ids of jobs, stages, the schedule, stragglers, projections of the
ranges of jobs. In no world may
the analysis fail, refuse recorded jobs, miss a recorded job, find one that is none, or misplace one by more than 2 ns.

`python -m tests.worlds.test_worlds` prints `KNOWN` as it is now: shorten it where something was mended, and look at the world
(`python -m tests.worlds --count 1 --seed SEED`) before anything is added.
"""

from __future__ import annotations

from random import Random

import pytest

from fixtures import options
from fixtures.program.schedule import SCHEDULES
from tests.worlds.comparisons import FAULTS as CHANGES
from tests.worlds.comparisons import build_table, draw_twin, score_comparison
from tests.worlds.draw import (
    DRAWS,
    MOST_RANKS,
    draw_options,
    draw_small_seeds,
    draw_world,
    perturb,
    repair,
    to_arguments,
)
from tests.worlds.tables import list_breaks
from tests.worlds.twins import CHANGES as QUESTIONS
from tests.worlds.twins import build_twin_table, score_twins
from tests.worlds.verdicts import FAULTS, add_fault, build_verdict_tables, draw_healthy, score_world
from tests.worlds.world import LAYOUT, WorldScore, run_seed

COUNT = 20


LARGEST_ERROR_NS = 2  # of jobs: truth is rounded when it is mapped onto the clock of a report


KNOWN = {
    **dict.fromkeys((52, 61, 65, 81, 91, 96, 99, 111), "unpaired"),
    86: "steps",
}


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", draw_small_seeds(COUNT))
def test_a_world_breaks_no_more_than_is_known(seed: int) -> None:
    score = run_seed(seed)
    found = [found for found in list_breaks(score) if found.kind not in KNOWN.get(seed, "").split()]
    assert not found, score.command
    for jobs in score.jobs.values():
        assert jobs.largest_error_ns <= LARGEST_ERROR_NS, score.command


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "seed",
    [
        4000170,
        4000104,
        5000206,
        4000228,
        5000220,
        6000019,
        8000098,
        8000218,
        8000181,
        8000071,
        9000142,
        9000459,
        9000594,
    ],
)
def test_bounds_that_were_broken_hold(seed: int) -> None:
    """Few shared messages of many; a session placed by messages before its collectives; sessions placed by one operation;
    doubts of those that an operation is shared with (two worlds); exchanges in lockstep; machines placed by
    one operation; sessions of a machine apart; a step of UTC; a session placed by messages of others; stages in lockstep
    that share nothing (three worlds).
    """
    score = run_seed(seed, only=["clocks"])
    assert not {"failure", "refusal", "bounds"} & set(kinds_of(score).split()), score.command


@pytest.mark.parametrize("seed", [5000137])
def test_buffered_messages_alone_align(seed: int) -> None:
    score = run_seed(seed, only=["clocks"])
    assert score.clocks is not None
    assert score.clocks.is_right, score.command


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [12000215, 12000113, 12000337, 12000228])
def test_with_a_layout_messages_are_paired(seed: int) -> None:
    """Names of messages tell no part of the model: folds of two and three stages, and a loop whose sends are buffered;
    messages between steps whose kernels run in the next one.
    """
    pairs = run_seed(seed, only=["pairs"]).pairs[LAYOUT]
    assert pairs.wrong == 0
    assert pairs.right >= pairs.messages - 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7000084])
def test_jobs_that_ended_too_early_end_when_they_do(seed: int) -> None:
    """Autograd launches a backward from a thread of its own, while a loader of data launches kernels."""
    score = run_seed(seed, only=["jobs"])
    assert [jobs.largest_error_ns <= LARGEST_ERROR_NS for jobs in score.jobs.values()] == [True, True], (
        score.command
    )


def kinds_of(score: WorldScore) -> str:
    """Return the kinds of breaks of a world, as in `KNOWN`."""
    return " ".join(sorted({found.kind for found in list_breaks(score)}))


if __name__ == "__main__":
    for seed in draw_small_seeds(COUNT):
        if kinds := kinds_of(run_seed(seed)):
            print(f'    {seed}: "{kinds}",')


def test_a_seed_is_a_world() -> None:
    assert draw_world(7) == draw_world(7)
    assert draw_world(7) != draw_world(8)


def test_all_draws_are_options_of_the_simulator() -> None:
    random = Random(1)
    seen: set[str] = set()
    world = draw_options(1)
    for seed in range(500):
        world = perturb(world, random) if seed % 2 else draw_options(seed)
        arguments = to_arguments(repair(world))
        seen |= {word.removeprefix("--") for word in arguments if word.startswith("--")}
        chosen = options.build_parser().parse_args(["out", *arguments])
        plan = options.build_training(chosen)
        assert plan.ranks <= MOST_RANKS
        assert plan.jobs(plan.stages - 1)
        options.build_site(chosen)
        options.build_clock_errors(chosen)
    assert seen >= set(DRAWS)
    assert {draw_options(seed)["schedule"] for seed in range(100)} == set(SCHEDULES)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("seed", "fault"),
    [
        (6, "rank"),
        (2, "rank since a step"),
        (8, "stage"),
        (40, "host stall"),
        (5, "data stall"),
        (30, "link"),
        (91_000_002, "slow loader"),
        (91_000_004, "checkpoint"),
        (91_000_004, "evaluation"),
    ],
)
def test_a_fault_is_the_first_line_of_a_world_and_nothing_false_is_named(seed: int, fault: str) -> None:
    healthy, faulty = score_world(seed, "none"), score_world(seed, fault)
    assert (healthy.failed, healthy.false, faulty.failed, faulty.false) == ("", [], "", [])
    assert not [name for name in healthy.named if "straggler stage" not in name]
    assert faulty.position == 0
    assert f"| {fault} |" in build_verdict_tables([healthy, faulty])


@pytest.mark.slow
def test_no_rank_of_a_pipeline_is_named_where_its_stage_is_unknown() -> None:
    score = score_world(13_002_090, "rank")
    assert (score.failed, score.false) == ("", [])
    assert score.position is None  # its peers are unknown, too


def test_a_fault_is_the_only_difference_of_two_worlds() -> None:
    for fault in FAULTS[1:]:
        world = draw_healthy(27)
        changed, target = add_fault(world, fault)
        assert bool(target) == (changed != world)
        different = {name for name in changed if changed[name] != world.get(name)}
        faults = {"slow-rank", "slow-since", "stage-costs", "slow-link", "host-stall", "stall", "slow-loader"}
        assert different <= faults | {"evaluation-every", "checkpoint-every"}


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("seed", "fault"), [(8, "link"), (2, "rank"), (3, "stage"), (4, "micro-batches"), (6, "none")]
)
def test_a_fault_is_named_and_nothing_else(seed: int, fault: str) -> None:
    score = score_comparison(seed, fault)
    assert (score.failed, score.false) == ("", [])
    assert score.is_named == (fault not in ("none", "micro-batches"))
    assert build_table([score]).count("| 1 |") >= 1


def test_a_twin_differs_in_its_seed_and_fault_alone() -> None:
    for fault in CHANGES:
        world, twin, target = draw_twin(27, fault)
        different = {name for name in twin if twin[name] != world.get(name)} - {"seed"}
        assert bool(different) == bool(target)
        assert different <= {"slow-rank", "slow-since", "stage-costs", "slow-link", "micro-batches"}


@pytest.mark.slow
def test_errors_of_clocks_are_no_change_of_steps() -> None:
    """The clocks of both runs are uncertain by more than a step, one by hundreds of ms."""
    assert score_comparison(31_000_004, "none").lines[0].startswith("Steps take the same time within noise")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "seed", range(98_200_012, 98_200_012 + len(QUESTIONS)), ids=lambda seed: QUESTIONS[seed % len(QUESTIONS)]
)
def test_a_prediction_is_near_or_refused(seed: int) -> None:
    for score in score_twins(seed):
        apart = 0.03 * score.step_ns
        assert score.failed == ""
        assert score.refused or score.least_ns - apart <= score.gain_ns <= score.most_ns + apart
        assert score.change in build_twin_table([score])

"""Twenty random worlds with fixed seeds: small ones, chosen by their size and not by their results.

Each world is simulated, analysed with and without `--layout`, and scored. A world may break only what `KNOWN` lists for
it (kinds of `summary.list_breaks`): bounds of clocks, groups of clocks, pairs of messages, messages without a pair (more than
2 %), causes (more than 2 percent of a step too much), steps, ids of jobs, stages, the schedule, stragglers, projections of the
ranges of jobs. In no world may
the analysis fail, refuse recorded jobs, miss a recorded job, find one that is none, or misplace one by more than 2 ns.

`python -m tests.worlds.test_worlds` prints `KNOWN` as it is now: shorten it where something was mended, and look at the world
(`python -m tests.worlds --count 1 --seed SEED`) before anything is added.
"""

from __future__ import annotations

import pytest

from tests.worlds.draw import draw_small_seeds
from tests.worlds.summary import list_breaks
from tests.worlds.world import WorldScore, run_seed

COUNT = 20
LARGEST_ERROR_NS = 2  # of jobs: truth is rounded when it is mapped onto the clock of a report
KNOWN = {
    52: "unpaired",
    86: "steps",
}


@pytest.mark.parametrize("seed", draw_small_seeds(COUNT))
def test_a_world_breaks_no_more_than_is_known(seed: int) -> None:
    score = run_seed(seed)
    found = [found for found in list_breaks(score) if found.kind not in KNOWN.get(seed, "").split()]
    assert not found, score.command
    for jobs in score.jobs.values():
        assert jobs.largest_error_ns <= LARGEST_ERROR_NS, score.command


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "seed",
    [
        4000228,
        4000104,
        5000206,
        4000170,
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

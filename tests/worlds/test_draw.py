"""Random worlds: every seed has its world, and the simulator can run it."""

from __future__ import annotations

from random import Random

from fixtures import options
from fixtures.program.schedule import SCHEDULES
from tests.worlds.draw import DRAWS, MOST_RANKS, draw_options, draw_world, perturb, repair, to_arguments


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
    schedules = {draw_options(seed)["schedule"] for seed in range(100)}
    assert schedules == set(SCHEDULES)

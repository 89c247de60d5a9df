"""Verdicts of a few random worlds, healthy and with a fault."""

from __future__ import annotations

import pytest

from tests.worlds.verdict_tables import build_tables
from tests.worlds.verdicts import FAULTS, add_fault, draw_healthy, score_world


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("seed", "fault"),
    [
        (6, "rank"),
        (13, "rank since a step"),
        (8, "stage"),
        (40, "host stall"),
        (5, "data stall"),
        (30, "link"),
    ],
)
def test_a_fault_is_the_first_line_of_a_world_and_nothing_false_is_named(seed: int, fault: str) -> None:
    healthy, faulty = score_world(seed, "none"), score_world(seed, fault)
    assert (healthy.failed, healthy.false, faulty.failed, faulty.false) == ("", [], "", [])
    assert not [name for name in healthy.named if "straggler stage" not in name]
    assert faulty.position == 0
    assert f"| {fault} |" in build_tables([healthy, faulty])


def test_a_slow_rank_is_named_where_waits_are_unknown_and_it_has_no_stage() -> None:
    score = score_world(13_002_090, "rank")
    assert (score.failed, score.false) == ("", [])
    assert score.position == 0
    assert score.lines[0].startswith("Guess: ")


def test_a_fault_is_the_only_difference_of_two_worlds() -> None:
    for fault in FAULTS[1:]:
        world = draw_healthy(27)
        changed, target = add_fault(world, fault)
        assert bool(target) == (changed != world)
        different = {name for name in changed if changed[name] != world.get(name)}
        assert different <= {"slow-rank", "slow-since", "stage-costs", "slow-link", "host-stall", "stall"}

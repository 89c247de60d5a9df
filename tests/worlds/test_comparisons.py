"""Comparisons of a few random worlds with healthy and faulty twins."""

from __future__ import annotations

import pytest

from tests.worlds.comparisons import FAULTS, build_table, draw_twin, score_comparison


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("seed", "fault"), [(2, "rank"), (3, "stage"), (8, "link"), (4, "micro-batches"), (6, "none")]
)
def test_a_fault_is_named_and_nothing_else(seed: int, fault: str) -> None:
    score = score_comparison(seed, fault)
    assert (score.failed, score.false) == ("", [])
    assert score.is_named == (fault not in ("none", "micro-batches"))
    assert build_table([score]).count("| 1 |") >= 1


def test_a_twin_differs_in_its_seed_and_fault_alone() -> None:
    for fault in FAULTS:
        world, twin, target = draw_twin(27, fault)
        different = {name for name in twin if twin[name] != world.get(name)} - {"seed"}
        assert bool(different) == bool(target)
        assert different <= {"slow-rank", "slow-since", "stage-costs", "slow-link", "micro-batches"}


def test_errors_of_clocks_are_no_change_of_steps() -> None:
    """The clocks of both runs are uncertain by more than a step, one by hundreds of ms."""
    score = score_comparison(31_000_004, "none")
    assert score.lines[0].startswith("Steps take the same time within noise")

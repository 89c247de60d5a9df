"""Comparison with peers: healthy members are named seldom, slow ones with their steps, whatever the others do."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from nsys_pp.tables.evidence import compare_members


def draw(
    *,
    seed: int,
    members: int,
    steps: int,
    micro_batches: int,
    spread: float = 0.01,
    step_spread: float = 0.0,
    shared: float = 0.0,
) -> pl.DataFrame:
    """Draw own compute around 1 ms: noise of samples, of steps of a member, and of micro-batches of all members."""
    random = np.random.default_rng(seed)
    noise = 1 + spread * random.standard_normal((members, steps, micro_batches))
    noise *= 1 + step_spread * random.standard_normal((members, steps, 1))
    noise *= 1 + shared * random.uniform(-1, 1, (1, steps, micro_batches))
    member, step, batch = (axis.ravel() for axis in np.indices(noise.shape))
    return pl.DataFrame(
        {"member": member, "step": step, "micro_batch": batch, "value_ns": 1e6 * noise.ravel()}
    )


def slow(values: pl.DataFrame, least: float = 0.03) -> list[tuple[int, tuple[int, ...]]]:
    return [
        (found.member, found.steps)
        for found in compare_members(values, member="member", group=[], least=least).slow
    ]


def scale(
    values: pl.DataFrame, member: int, factor: float, *, since: int = 0, until: int = 99
) -> pl.DataFrame:
    is_slow = (pl.col("member") == member) & pl.col("step").is_between(since, until, closed="left")
    return values.with_columns(
        value_ns=pl.when(is_slow).then(factor * pl.col("value_ns")).otherwise("value_ns")
    )


@pytest.mark.draws
@pytest.mark.parametrize(
    "shape",
    [
        {"members": 2, "steps": 1, "micro_batches": 4},
        {"members": 4, "steps": 2, "micro_batches": 2},
        {"members": 4, "steps": 5, "micro_batches": 8},
        {"members": 16, "steps": 5, "micro_batches": 1},
        {"members": 8, "steps": 10, "micro_batches": 8, "shared": 0.3},
        {"members": 8, "steps": 10, "micro_batches": 8, "spread": 0.01, "step_spread": 0.02},
    ],
    ids=str,
)
@pytest.mark.parametrize("spread", [0.005, 0.05])
def test_members_of_one_distribution_are_named_in_less_than_one_percent_of_runs(
    shape: dict[str, float], spread: float
) -> None:
    count = 300
    runs = [draw(seed=seed, **{"spread": spread, **shape}) for seed in range(count)]  # type: ignore[arg-type]
    named = sum(bool(slow(run, least=0.0)) for run in runs)  # without a least excess: noise alone decides
    assert named <= 0.02 * count
    assert sum(bool(slow(run)) for run in runs) <= 0.01 * count


def test_a_slow_member_is_named_with_its_steps() -> None:
    values = draw(seed=1, members=4, steps=6, micro_batches=4)
    assert slow(scale(values, 2, 1.1)) == [(2, (0, 1, 2, 3, 4, 5))]
    assert slow(scale(values, 2, 1.1, since=4)) == [(2, (4, 5))]
    assert slow(scale(values, 2, 1.1, until=3)) == [(2, (0, 1, 2))]
    assert slow(scale(values, 2, 1.1, since=3, until=4)) == [(2, (3,))]
    assert slow(scale(scale(values, 2, 1.3), 0, 1.1)) == [(2, (0, 1, 2, 3, 4, 5)), (0, (0, 1, 2, 3, 4, 5))]


def test_the_excess_is_relative_to_the_peers() -> None:
    values = scale(draw(seed=2, members=4, steps=6, micro_batches=4, shared=0.4), 1, 1.2)
    (found,) = compare_members(values, member="member", group=[], least=0.03).slow
    assert found.excess_fraction == pytest.approx(0.2, abs=0.01)
    assert found.value_ns == pytest.approx(1.2 * found.usual_ns, rel=0.05)
    assert found.noise_fraction < 0.03
    assert found.sample_count == 24
    assert found.is_certain


def test_a_fast_member_makes_no_other_slow() -> None:
    assert slow(scale(draw(seed=3, members=6, steps=4, micro_batches=4), 0, 0.7)) == []


def test_members_of_other_groups_are_no_peers() -> None:
    values = draw(seed=4, members=4, steps=4, micro_batches=4).with_columns(stage=pl.col("member") // 2)
    values = values.with_columns(value_ns=pl.col("value_ns") * (1 + pl.col("stage")))
    assert compare_members(values, member="member", group=["stage"], least=0.03).slow == []


def test_a_single_sample_is_no_evidence() -> None:
    values = scale(draw(seed=5, members=2, steps=1, micro_batches=1), 0, 1.5)
    assert slow(values) == []


def test_without_peers_nobody_is_slow() -> None:
    values = draw(seed=6, members=1, steps=4, micro_batches=4)
    assert slow(values) == []
    assert slow(values.clear()) == []

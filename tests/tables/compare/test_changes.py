from __future__ import annotations

from statistics import median

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.frames.aggregates import SAMPLE
from nsys_pp.frames.conform import conform
from nsys_pp.tables.compare import CHANGES, find_changes
from tests.draws import count_draws

LEAST = 0.02


def samples(values: dict[str, list[float]], *, first: int = 10) -> pl.DataFrame:
    """Return samples of members over steps; 0 is no sample."""
    rows = [
        {"stage": 0, "subject": name, "metric": "compute", "unit": "ns", "step": first + at, "value": value}
        for name, steps in values.items()
        for at, value in enumerate(steps)
        if value
    ]
    frame = pl.DataFrame(rows, schema={**SAMPLE, "unit": pl.String})
    return conform(frame.with_columns(least=LEAST * pl.col("value")), SAMPLE)


def draw(
    rng: np.random.Generator, members: int, steps: int, *, spread: float, shared: float = 0.0
) -> np.ndarray:
    common = 1 + shared * rng.standard_normal(steps)
    return 1e6 * common * (1 + spread * rng.standard_normal((members, steps)))


def named(values: np.ndarray) -> dict[str, list[float]]:
    return {f"rank {number}": list(row) for number, row in enumerate(values)}


@given(
    st.lists(st.integers(1_000, 2_000), min_size=1, max_size=5),
    st.lists(st.integers(1_000, 2_000), min_size=1, max_size=5),
)
def test_values_are_medians(a: list[int], b: list[int]) -> None:
    found = find_changes(samples({"x": [*map(float, a)]}), samples({"x": [*map(float, b)]}))
    row = found.row(0, named=True)
    since = 0 if row["since_step"] is None else row["since_step"] - 10
    assert found.schema == CHANGES
    assert row["a"] == median(a)
    assert row["b"] == pytest.approx(median(b[since:]))
    assert row["change_fraction"] == pytest.approx(row["b"] / row["a"] - 1)
    assert (row["a_step_count"], row["b_step_count"]) == (len(a), len(b))
    assert (row["is_change"] is None) == (min(len(a), len(b)) < 2)


def test_members_of_one_run_have_no_change() -> None:
    found = find_changes(samples({"x": [1.0, 2.0], "y": [3.0]}), samples({"x": [1.0, 2.0], "z": [4.0]}))
    assert found["subject"].to_list() == ["x", "y", "z"]
    assert found["is_change"].to_list() == [False, None, None]
    assert found["change_fraction"].to_list() == [0.0, None, None]
    assert found.select("a", "b").rows()[1:] == [(3.0, None), (None, 4.0)]


def test_of_nothing_comes_nothing() -> None:
    assert find_changes(samples({}), samples({})).is_empty()


@pytest.mark.draws
def test_equal_runs_are_equal_and_members_do_not_add_up() -> None:
    """With a rate of 0.2 % for each comparison, whatever the number of members and of steps."""
    rng = np.random.default_rng(7)
    for members, steps in ((1, 3), (1, 8), (8, 2), (8, 4), (64, 3), (64, 12)):
        drawn = count_draws(60)
        wrong = 0
        for _ in range(drawn):
            runs = [samples(named(draw(rng, members, steps, spread=0.03, shared=0.02))) for _ in "ab"]
            wrong += bool(find_changes(*runs, are_peers=True)["is_change"].any())
        assert wrong <= 1 + drawn // 50, (members, steps, wrong)


@pytest.mark.parametrize("since", [0, 3, 6])
@pytest.mark.parametrize("factor", [1.3, 0.7])
def test_a_change_of_one_member_is_found_since_its_step(since: int, factor: float) -> None:
    rng = np.random.default_rng(since)
    a, b = (draw(rng, 8, 8, spread=0.01) for _ in "ab")
    b[5, since:] *= factor
    changed = find_changes(samples(named(a)), samples(named(b)), are_peers=True).filter("is_change")
    assert changed["subject"].to_list() == ["rank 5"]
    assert changed["since_step"].to_list() == [None if since == 0 else 10 + since]
    assert changed["change_fraction"][0] == pytest.approx(factor - 1, abs=0.03)


def test_peers_show_a_change_that_shared_variation_hides() -> None:
    rng = np.random.default_rng(3)
    a, b = (draw(rng, 8, 8, spread=0.003, shared=0.1) for _ in "ab")
    b[2] *= 1.1
    runs = samples(named(a)), samples(named(b))
    assert not find_changes(*runs)["is_change"].any()
    changed = find_changes(*runs, are_peers=True).filter("is_change")
    assert changed["subject"].to_list() == ["rank 2"]
    assert changed["is_among_peers"].to_list() == [True]
    assert changed["change_fraction"][0] == pytest.approx(0.1, abs=0.02)


def test_if_half_of_the_members_change_the_others_do_not() -> None:
    rng = np.random.default_rng(4)
    a, b = (draw(rng, 8, 8, spread=0.003) for _ in "ab")
    b[:4] *= 1.1
    changed = find_changes(samples(named(a)), samples(named(b)), are_peers=True).filter("is_change")
    assert changed["subject"].to_list() == [f"rank {number}" for number in range(4)]


def test_a_change_inside_a_is_no_noise() -> None:
    rng = np.random.default_rng(5)
    a, b = (draw(rng, 1, 8, spread=0.003) for _ in "ab")
    a[0, 4:] *= 1.2
    b *= 1.4
    assert find_changes(samples(named(a)), samples(named(b)))["is_change"].to_list() == [True]


def test_one_long_step_is_no_change() -> None:
    rng = np.random.default_rng(6)
    a, b = (draw(rng, 4, 6, spread=0.01) for _ in "ab")
    b[1, 3] *= 3
    b[2, 5] *= 3
    assert not find_changes(samples(named(a)), samples(named(b)), are_peers=True)["is_change"].any()

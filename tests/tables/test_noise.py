"""The test of noise against plain definitions, and on samples of known distributions."""

from __future__ import annotations

import statistics

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.aggregates import SAMPLE
from nsys_pp.frames.conform import conform
from nsys_pp.tables.noise import CHANGES, compare_members, find_changes, median_of_others
from tests.draws import count_draws


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=30))
@settings(deadline=None, max_examples=100)
def test_the_median_of_others_leaves_the_row_itself_out(rows: list[tuple[int, int]]) -> None:
    frame = pl.DataFrame(rows, schema={"group": pl.Int64, "value": pl.Int64}, orient="row")
    expected = []
    for at, (group, _) in enumerate(rows):
        others = [value for other, (of, value) in enumerate(rows) if of == group and other != at]
        expected.append(statistics.median(others) if others else None)
    assert median_of_others(frame, by=["group"], value="value").to_list() == expected


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
@pytest.mark.few(2)
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
    count = count_draws(300)
    runs = [draw(seed=seed, **{"spread": spread, **shape}) for seed in range(count)]  # type: ignore[arg-type]
    # without a least excess: noise alone decides
    assert sum(bool(slow(run, least=0.0)) for run in runs) <= 0.02 * count
    assert sum(bool(slow(run)) for run in runs) <= 0.01 * count


@pytest.mark.parametrize(
    ("scales", "expected"),
    [
        ([(2, 1.1, {})], [(2, (0, 1, 2, 3, 4, 5))]),
        ([(2, 1.1, {"since": 4})], [(2, (4, 5))]),
        ([(2, 1.1, {"until": 3})], [(2, (0, 1, 2))]),
        ([(2, 1.1, {"since": 3, "until": 4})], [(2, (3,))]),
        ([(2, 1.3, {}), (0, 1.1, {})], [(2, (0, 1, 2, 3, 4, 5)), (0, (0, 1, 2, 3, 4, 5))]),
    ],
)
def test_a_slow_member_is_named_with_its_steps(
    scales: list[tuple[int, float, dict[str, int]]], expected: list[tuple[int, tuple[int, ...]]]
) -> None:
    values = draw(seed=1, members=4, steps=6, micro_batches=4)
    for member, factor, steps in scales:
        values = scale(values, member, factor, **steps)
    assert slow(values) == expected


def test_the_excess_is_relative_to_the_peers() -> None:
    values = scale(draw(seed=2, members=4, steps=6, micro_batches=4, shared=0.4), 1, 1.2)
    (found,) = compare_members(values, member="member", group=[], least=0.03).slow
    assert found.excess_fraction == pytest.approx(0.2, abs=0.01)
    assert found.value_ns == pytest.approx(1.2 * found.usual_ns, rel=0.05)
    assert found.noise_fraction < 0.03
    assert found.sample_count == 24
    assert found.is_certain


def test_members_of_other_groups_are_no_peers() -> None:
    values = draw(seed=4, members=4, steps=4, micro_batches=4).with_columns(stage=pl.col("member") // 2)
    values = values.with_columns(value_ns=pl.col("value_ns") * (1 + pl.col("stage")))
    assert compare_members(values, member="member", group=["stage"], least=0.03).slow == []


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(scale(draw(seed=3, members=6, steps=4, micro_batches=4), 0, 0.7), id="one is fast"),
        pytest.param(scale(draw(seed=5, members=2, steps=1, micro_batches=1), 0, 1.5), id="a single sample"),
        pytest.param(draw(seed=6, members=1, steps=4, micro_batches=4), id="no peers"),
        pytest.param(draw(seed=6, members=1, steps=4, micro_batches=4).clear(), id="no samples"),
    ],
)
def test_nobody_is_slow_without_evidence(values: pl.DataFrame) -> None:
    assert slow(values) == []


def samples(values: dict[str, list[float]], *, first: int = 10) -> pl.DataFrame:
    """Return samples of members over steps; 0 is no sample."""
    rows = [
        {"stage": 0, "subject": name, "metric": "compute", "unit": "ns", "step": first + at, "value": value}
        for name, steps in values.items()
        for at, value in enumerate(steps)
        if value
    ]
    frame = pl.DataFrame(rows, schema={**SAMPLE, "unit": pl.String})
    return conform(frame.with_columns(least=0.02 * pl.col("value")), SAMPLE)


def draw_values(
    rng: np.random.Generator, members: int, steps: int, *, spread: float, shared: float = 0.0
) -> np.ndarray:
    common = 1 + shared * rng.standard_normal(steps)
    return 1e6 * common * (1 + spread * rng.standard_normal((members, steps)))


def draw_runs(
    seed: int, members: int, steps: int, *, spread: float, shared: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    first = draw_values(rng, members, steps, spread=spread, shared=shared)
    return first, draw_values(rng, members, steps, spread=spread, shared=shared)


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
    assert (row["a"], row["b"]) == (statistics.median(a), pytest.approx(statistics.median(b[since:])))
    assert row["change_fraction"] == pytest.approx(row["b"] / row["a"] - 1)
    counts = (row["a_step_count"], row["b_step_count"], row["b_of_all"])
    assert counts == (len(a), len(b) - since, statistics.median(b))
    assert not find_changes(*[samples({"x": [*map(float, a)]})] * 2)["is_change"].any()
    assert (row["noise_fraction"] is None) == (min(len(a), len(b)) < 2)


@pytest.mark.slow
@pytest.mark.draws
def test_equal_runs_are_equal_and_members_do_not_add_up() -> None:
    """With a rate of 0.2 % for each comparison, whatever the number of members and of steps."""
    rng = np.random.default_rng(7)
    for members, steps in ((1, 3), (1, 8), (8, 2), (8, 4), (64, 3), (64, 12)):
        drawn = count_draws(60)
        wrong = 0
        for _ in range(drawn):
            runs = [samples(named(draw_values(rng, members, steps, spread=0.03, shared=0.02))) for _ in "ab"]
            wrong += bool(find_changes(*runs, are_peers=True)["is_change"].any())
        assert wrong <= 1 + drawn // 50, (members, steps, wrong)


@pytest.mark.parametrize("since", [0, 2, 3])
@pytest.mark.parametrize("factor", [1.3, 0.7])
def test_a_change_of_one_member_is_found_since_its_step(since: int, factor: float) -> None:
    a, b = draw_runs(since, 8, 8, spread=0.01)
    b[5, since:] *= factor
    changed = find_changes(samples(named(a)), samples(named(b)), are_peers=True).filter("is_change")
    assert changed["subject"].to_list() == ["rank 5"]
    assert changed["since_step"].to_list() == [None if since == 0 else 10 + since]
    assert changed["change_fraction"][0] == pytest.approx(factor - 1, abs=0.03)


@pytest.mark.parametrize("factor", [0.3, 3.0])
def test_last_steps_do_not_hide_that_all_the_others_changed(factor: float) -> None:
    a, b = draw_runs(1, 1, 12, spread=0.01)
    for others in (1.2, 1.0):
        row = find_changes(samples(named(a)), samples(named(b * np.repeat([others, factor], [10, 2])))).row(
            0, named=True
        )
        assert (row["since_step"], row["is_change"]) == (None, others == 1.2)
        assert row["change_fraction"] == pytest.approx(others - 1, abs=0.05)


def test_peers_show_a_change_that_shared_variation_hides() -> None:
    a, b = draw_runs(3, 8, 8, spread=0.003, shared=0.1)
    b[2] *= 1.1
    runs = samples(named(a)), samples(named(b))
    assert not find_changes(*runs)["is_change"].any()
    changed = find_changes(*runs, are_peers=True).filter("is_change")
    assert changed.select("subject", "is_among_peers").rows() == [("rank 2", True)]
    assert changed["change_fraction"][0] == pytest.approx(0.1, abs=0.02)


def test_if_half_of_the_members_change_the_others_do_not() -> None:
    a, b = draw_runs(4, 8, 8, spread=0.003)
    b[:4] *= 1.1
    changed = find_changes(samples(named(a)), samples(named(b)), are_peers=True).filter("is_change")
    assert changed["subject"].to_list() == [f"rank {number}" for number in range(4)]


def test_a_change_inside_a_is_no_noise() -> None:
    a, b = draw_runs(5, 1, 8, spread=0.003)
    a[0, 4:] *= 1.2
    b *= 1.4
    assert find_changes(samples(named(a)), samples(named(b)))["is_change"].to_list() == [True]


def test_one_long_step_is_no_change() -> None:
    a, b = draw_runs(6, 4, 6, spread=0.01)
    b[1, 3] *= 3
    b[2, 5] *= 3
    assert not find_changes(samples(named(a)), samples(named(b)), are_peers=True)["is_change"].any()


def test_good_runs_of_other_levels_are_the_noise_of_b() -> None:
    rng = np.random.default_rng(8)
    low, high, b = (draw_values(rng, 4, 6, spread=0.002) for _ in "abc")
    high *= 1.1
    runs = [samples(named(run), first=first) for run, first in ((low, 10), (high, 20))]
    joined = pl.concat(run.with_columns(run=pl.lit(number)) for number, run in enumerate(runs))
    assert find_changes(runs[0], samples(named(1.05 * b)))["is_change"].all()
    within = find_changes(joined, samples(named(1.05 * b)))
    assert not within["is_change"].any()
    assert within["noise_fraction"].min() > 0.09  # type: ignore[operator]
    assert find_changes(joined, samples(named(1.25 * b)))["is_change"].all()


def test_shares_and_times_from_zero_are_compared() -> None:
    rng = np.random.default_rng(9)
    parts = []
    for level in (0.0, 0.05):
        share = samples({"data": [0.1]}).clear()
        rows = [
            {
                "subject": "data",
                "metric": metric,
                "unit": unit,
                "step": step,
                "value": scale * (level + noise),
                "least": scale * 0.01,
            }
            for metric, unit, scale in (("share of the step", "fraction", 1.0), ("per lane", "ns", 1e8))
            for step, noise in enumerate(rng.uniform(0, 0.001, 6))
        ]
        parts.append(
            pl.concat(
                [share, pl.DataFrame(rows, schema_overrides={"unit": SAMPLE["unit"]})], how="diagonal_relaxed"
            )
        )
    found = find_changes(conform(parts[0], SAMPLE), conform(parts[1], SAMPLE))
    assert found["is_change"].to_list() == [True, True]
    assert found["change_fraction"][0] == pytest.approx(0.05, abs=0.002)

"""Fit of offsets and drifts from operations shared by several clocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.alignment.fit import Fit, Observations, fit_clocks, fit_unknowns
from nsys_pp.alignment.near import DRIFT_SIGMA as RELATIVE_SIGMA
from nsys_pp.alignment.near import Line, find_line, fit_line, mad_sigma
from nsys_pp.arrays.types import Floats, Int64s
from nsys_pp.units import NS_PER_S


def observe(
    *, clocks: int, operations: int, noise_ns: float, wrong: float = 0.0, seed: int = 1
) -> tuple[Fit, np.ndarray, np.ndarray]:
    """Fit clocks with true offsets and drifts; every clock has every operation."""
    random = np.random.Generator(np.random.PCG64(seed))
    offset = random.uniform(-1e6, 1e6, clocks)
    drift = random.uniform(-50_000, 50_000, clocks)  # ns per second
    true = np.sort(random.uniform(0, 10e9, operations))
    clock, what = np.divmod(np.arange(clocks * operations), operations)
    seen = true[what] - offset[clock] - drift[clock] * (true[what] - 5e9) / 1e9
    seen += random.normal(0, noise_ns, len(seen))
    seen += (random.random(len(seen)) < wrong) * random.uniform(-5e7, 5e7, len(seen))
    start = (
        offset[clock]
        + drift[clock] * (true[what] - 5e9) / 1e9
        + 20_000 * random.standard_normal(clocks)[clock]
    )
    fit = fit_clocks(seen, clock, what, np.ones(len(seen)), np.arange(clocks), start)
    at = fit.offset_ns + fit.drift * (5e9 - fit.center_ns) / 1e9
    return (
        fit,
        at - at.mean() - (offset - offset.mean()),
        fit.drift - fit.drift.mean() - (drift - drift.mean()),
    )


def test_without_noise_clocks_are_exact() -> None:
    fit, offset, drift = observe(clocks=5, operations=40, noise_ns=0.0)
    assert np.abs(offset).max() < 100  # drift and offset are coupled in second order
    assert np.abs(drift).max() < 10
    assert np.abs(fit.residual_ns).max() < 100


def test_noise_averages_out_and_its_size_is_known() -> None:
    fit, offset, _ = observe(clocks=6, operations=400, noise_ns=3_000.0)
    sigma = [float(fit.sigma_ns(clock, np.array([fit.center_ns]))[0]) for clock in range(6)]
    assert np.abs(offset).max() < 600
    assert 80 < max(sigma) < 300  # 3 us over the root of 400 operations
    assert 2_000 < mad_sigma(fit.residual_ns) < 3_300  # the median of six is close to one of them


def test_wrong_matches_move_no_clock() -> None:
    _, offset, drift = observe(clocks=6, operations=200, noise_ns=3_000.0, wrong=0.1)
    assert np.abs(offset).max() < 1_500
    assert np.abs(drift).max() < 1_000


def test_a_drift_that_could_be_0_stretches_nothing() -> None:
    """Over 10 ms, ends that scatter by 3 us show no drift of 50 ppm; the correction stays within the standard error."""
    random = np.random.Generator(np.random.PCG64(4))
    true = np.sort(random.uniform(0, 10e6, 30))
    clock, what = np.divmod(np.arange(60), 30)
    seen = true[what] - np.array([0.0, 50e-6])[clock] * true[what] + random.normal(0, 3_000, 60)
    fit = fit_clocks(seen, clock, what, np.ones(60), np.arange(2), np.zeros(60))
    assert np.abs(fit.drift).max() < 10
    for number in range(2):
        limits = np.array([0.0, 10e6])
        assert fit.change_ns(number, limits).max() <= 3 * fit.sigma_ns(number, limits).max()


def test_nothing_seen_is_nothing_known() -> None:
    none = np.zeros(0)
    fit = fit_clocks(none, none.astype(int), none.astype(int), none, np.arange(2), none)
    assert fit.offset_ns.tolist() == fit.drift.tolist() == [0.0, 0.0]
    assert np.isinf(fit.sigma_ns(0, np.array([0.0]))).all()


def test_a_line_is_found_among_wrong_points() -> None:
    random = np.random.Generator(np.random.PCG64(3))
    times = random.uniform(0, 20e9, 300)
    values = 7e6 + 90e-6 * (times - 10e9) + random.normal(0, 2_000, 300)
    values[::2] = random.uniform(0, 14e6, 150)
    found = find_line(times, values, width=100_000)
    near = np.abs(values - found.at(times)) < 150_000
    line = fit_line(times[near], values[near], found, floor_ns=2_000)
    assert line.rate == pytest.approx(90e-6, abs=1e-6)
    assert line.at(np.array([10e9]))[0] == pytest.approx(7e6, abs=2_000)


def test_one_point_makes_a_level_line() -> None:
    line = fit_line(np.array([5.0]), np.array([70.0]), Line(), floor_ns=1.0)
    assert (line.offset_ns, line.rate) == (70.0, 0.0)
    assert fit_line(np.zeros(0), np.zeros(0), Line(offset_ns=3.0), floor_ns=1.0).offset_ns == 3.0


DRIFT_SIGMA = RELATIVE_SIGMA * NS_PER_S


def draw(
    random: np.random.Generator,
    clocks: int,
    machines: int,
    members: int,
    operations: int,
    *,
    wrong: float = 0.005,
) -> tuple[Observations, Int64s, Floats]:
    """Draw clocks that operations connect in a chain and at random: observations, machines and first corrections."""
    machine = np.append(np.arange(machines), np.sort(random.integers(0, machines, clocks - machines)))
    offset, drift = random.normal(0, 1e6, clocks), random.normal(0, 3e4, machines)[machine]
    groups = [
        np.array([number % (clocks - 1), number % (clocks - 1) + 1]) for number in range(8 * (clocks - 1))
    ]
    groups += [
        random.permutation(clocks)[: random.integers(2, max(members, 2) + 1)] for _ in range(operations)
    ]
    clock = np.concatenate(groups)
    operation = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    seconds = random.uniform(-2.0, 2.0, len(groups))[operation]
    correction = offset[clock] + drift[clock] * seconds
    noise = random.normal(0, 2e3, len(clock)) + (random.random(len(clock)) < wrong) * random.uniform(
        -1e6, 1e6
    )
    observed = Observations(
        x=seconds,
        y=seconds * NS_PER_S - correction + noise,
        clock=clock,
        operation=operation,
        noise=np.where(random.random(len(groups)) < 0.8, 1.0, 10.0)[operation],
    )
    return observed, machine, correction


def fit_densely(
    observed: Observations, start: Floats, machine: Int64s, sigma: Floats, *, has_zero_mean: bool = True
) -> tuple[Floats, Floats]:
    """Fit by dense matrices of all unknowns: the definition. Return the unknowns and the covariance."""
    clocks, machines, rows = len(machine), len(sigma), np.arange(len(observed.y))
    design = np.zeros((len(rows), clocks + machines))
    design[rows, observed.clock] = 1.0
    design[rows, clocks + machine[observed.clock]] = observed.x
    member = (observed.operation[:, np.newaxis] == np.unique(observed.operation)).astype(float)
    correction, weights = start, 1 / observed.noise**2
    for _ in range(10):
        mean = (member.T @ (weights * (observed.y + correction))) / (member.T @ weights)
        residual = (observed.y + correction - member @ mean) / observed.noise
        scale = max(mad_sigma(residual), 500.0)
        weights = 1 / (1 + (residual / (2 * scale)) ** 2) / observed.noise**2
        share = member / (member.T @ weights)
        centered = design - share @ (member.T @ (weights[:, np.newaxis] * design))
        level = observed.y - share @ (member.T @ (weights * observed.y))
        matrix = design.T @ (weights[:, np.newaxis] * centered)
        matrix[:clocks, :clocks] += weights.sum() / clocks**2
        drifts = slice(clocks, None)
        if has_zero_mean:
            matrix[drifts, drifts] += (scale / (1e-3 * DRIFT_SIGMA)) ** 2 / machines**2
        matrix[drifts, drifts] += np.diag((scale / sigma) ** 2)
        theta = np.linalg.solve(matrix, -design.T @ (weights * level))
        correction = design @ theta
    return theta, scale**2 * np.linalg.inv(matrix)


def compare(theta: Floats, exact: Floats, clocks: int) -> None:
    """Compare unknowns: differences of clocks; a dense solution holds the means at 0 to some ns only."""
    for part in (slice(clocks), slice(clocks, None)):
        unknown, expected = theta[part], exact[part]
        np.testing.assert_allclose(unknown - unknown.mean(), expected - expected.mean(), rtol=0, atol=0.1)
        np.testing.assert_allclose(unknown.mean(), expected.mean(), rtol=0, atol=50.0)


@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.integers(1, 40), st.integers(0, 40), st.booleans())
def test_fits_are_those_of_dense_matrices(
    seed: int, clocks: int, machines: int, operations: int, has_zero_mean: bool
) -> None:
    random = np.random.default_rng(seed)
    observed, machine, start = draw(random, clocks, min(clocks, machines), clocks, operations)
    sigma = np.where(random.random(int(machine.max()) + 1) < 0.5, DRIFT_SIGMA, 1.0)
    dense, covariance = fit_densely(observed, start, machine, sigma, has_zero_mean=has_zero_mean)
    sparse, variances = fit_unknowns(observed, start, machine, sigma, has_zero_mean=has_zero_mean)
    compare(sparse, dense, clocks)
    assert variances.is_known is has_zero_mean
    if has_zero_mean:
        diagonal = np.diagonal(covariance)
        np.testing.assert_allclose(variances.offset, diagonal[:clocks], rtol=1e-5)
        np.testing.assert_allclose(variances.drift, diagonal[clocks:], rtol=1e-5)
        size = np.sqrt(diagonal[:clocks] * diagonal[clocks:][machine])
        shared = covariance[np.arange(clocks), clocks + machine]
        np.testing.assert_allclose(variances.shared / size, shared / size, rtol=0, atol=1e-5)


def test_parts_that_share_nothing_keep_their_distance() -> None:
    clock = np.repeat(np.arange(4), 6)
    operation = np.concatenate([np.arange(6), np.arange(6), 6 + np.arange(6), 6 + np.arange(6)])
    seconds = (operation % 6) * 0.1
    offset = np.array([0.0, 5e4, 7e6, 7.2e6])
    observed = Observations(
        x=seconds,
        y=seconds * NS_PER_S - offset[clock],
        clock=clock,
        operation=operation,
        noise=np.ones(24),
    )
    theta, variances = fit_unknowns(observed, offset[clock], np.arange(4), np.full(4, DRIFT_SIGMA))
    np.testing.assert_allclose(theta[:4], offset - offset.mean(), atol=1.0)
    assert variances.is_known

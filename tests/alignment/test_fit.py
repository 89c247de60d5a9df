"""Fit of offsets and drifts from operations shared by several clocks."""

from __future__ import annotations

import numpy as np
import pytest

from nsys_pp.alignment.fit import Fit, fit_clocks
from nsys_pp.alignment.near import Line, find_line, fit_line, mad_sigma


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

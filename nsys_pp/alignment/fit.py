"""Offset and drift of every clock at once, from all operations that several clocks saw.

An operation `k` ends at one time `T_k`; a member that saw it at `t` on clock `d` of machine `m` says
`t + offset_d + drift_m * (t - center) = T_k`, give or take. All offsets and drifts are found
together by least squares, the `T_k` eliminated (each is the weighted mean of what its members
say). Weights are Cauchy's, found anew in every round, so that a wrong match has next to no say. Drift
is held near 0 by a prior of what oscillators do, so few or close operations do not make one up.

Only differences of clocks can be known. The mean of all offsets and drifts is left at 0 here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nsys_pp.alignment.lines import scale_of
from nsys_pp.arrays.types import Floats, Int64s
from nsys_pp.units import NS_PER_S

DRIFT_SIGMA = 60_000.0  # ns a second
_FLOOR_NS = 500.0
_ROUNDS = 10
_MOST_WORK = 1e9  # multiplications of one round


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What is to be added to times of each clock: `offset_ns + drift * seconds since center_ns`.

    Attributes:
        offset_ns: Of each clock, at `center_ns`.
        drift: Of each clock, ns a second; those of one machine share it.
        residual_ns: Of each observation: how far it is from the operation's end.
        covariance: Of offsets, then of the machines' drifts.
    """

    offset_ns: Floats
    drift: Floats
    center_ns: float
    residual_ns: Floats
    covariance: Floats
    machine: Int64s

    def sigma_ns(self, clock: int, times: Floats) -> Floats:
        """Return the standard error of a clock's correction at each time."""
        if not np.isfinite(self.covariance).all():
            return np.full(len(times), np.inf)
        return np.sqrt(np.maximum(_variance(self, clock, times), 0.0))


def _variance(fit: Fit, clock: int, times: Floats) -> Floats:
    drift = len(fit.offset_ns) + int(fit.machine[clock])
    x = (times - fit.center_ns) / NS_PER_S
    cov = fit.covariance
    return np.asarray(cov[clock, clock] + 2 * x * cov[clock, drift] + x * x * cov[drift, drift])


def fit_clocks(
    time: Floats, clock: Int64s, instance: Int64s, noise: Floats, machine: Int64s, start: Floats
) -> Fit:
    """Fit all clocks of one component.

    Args:
        time: When each observation saw its operation, ns on its own clock.
        clock: Of each observation, 0, 1, ...
        instance: Of each observation, 0, 1, ...: the operation.
        noise: Of each observation: how much it may be off, relative to others.
        machine: Of each clock, 0, 1, ...
        start: What is to be added to each observation's time, roughly.

    Returns:
        The fit; without observations all corrections are 0 and nothing is known of them.
    """
    clocks, machines = len(machine), int(machine.max(initial=0)) + 1
    center = float(np.median(time)) if len(time) else 0.0
    kept = _thin(instance, clocks + machines)
    x = (time - center)[kept] / NS_PER_S
    y, who, what, loud = time[kept], clock[kept], _dense(instance[kept]), noise[kept]
    correction = start[kept]
    scale = 0.0
    theta: Any = np.zeros(clocks + machines)
    weights: Any = 1 / loud**2
    matrix: Any = np.zeros((clocks + machines,) * 2)
    for _ in range(_ROUNDS if len(y) else 0):
        level = y + correction
        residual = (level - _mean(level, what, weights)) / loud
        scale = max(scale_of(residual), _FLOOR_NS)
        weights = 1 / (1 + (residual / (2 * scale)) ** 2) / loud**2
        matrix, right = _normal(x, y, who, what, machine, weights, clocks, machines)
        matrix += _prior(clocks, machines, scale, weights.sum())
        theta = np.linalg.solve(matrix, right)
        correction = theta[who] + theta[clocks + machine[who]] * x
    covariance: Floats = np.full(matrix.shape, np.inf)
    if len(y):
        covariance = scale**2 * np.asarray(np.linalg.pinv(matrix))
    drift = theta[clocks:][machine]
    everywhere = time + theta[clock] + drift[clock] * (time - center) / NS_PER_S if len(time) else time
    return Fit(
        offset_ns=theta[:clocks],
        drift=drift,
        center_ns=center,
        residual_ns=everywhere - _middle(everywhere, instance),
        covariance=covariance,
        machine=machine,
    )


def _dense(numbers: Int64s) -> Int64s:
    return np.unique(numbers, return_inverse=True)[1]


def _thin(instance: Int64s, unknowns: int) -> Int64s:
    """Keep as many operations as can be solved in good time, spread evenly."""
    count = int(instance.max(initial=-1)) + 1
    most = max(400, int(_MOST_WORK / unknowns**2))
    if count <= most:
        return np.arange(len(instance))
    chosen = np.zeros(count, dtype=bool)
    chosen[np.linspace(0, count - 1, most).astype(np.int64)] = True
    return np.flatnonzero(chosen[instance])


def _mean(values: Floats, group: Int64s, weights: Floats) -> Floats:
    """Weighted mean of each value's group."""
    return (np.bincount(group, weights * values) / np.bincount(group, weights))[group]


def _middle(values: Floats, group: Int64s) -> Floats:
    """Median of each value's group."""
    order = np.lexsort((values, group))
    counts = np.bincount(group) if len(group) else np.zeros(0, dtype=np.int64)
    first = np.cumsum(counts) - counts
    ordered = values[order]
    low, high = first + (counts - 1) // 2, first + counts // 2
    filled = counts > 0
    middle = np.zeros(len(counts))
    middle[filled] = (ordered[low[filled]] + ordered[high[filled]]) / 2
    return middle[group] if len(group) else values


def _normal(
    x: Floats,
    y: Floats,
    who: Int64s,
    what: Int64s,
    machine: Int64s,
    weights: Floats,
    clocks: int,
    machines: int,
) -> tuple[Floats, Floats]:
    """Make the normal equations of offsets and drifts, the operations' ends eliminated."""
    size = clocks + machines
    column = clocks + machine[who]
    matrix: Any = np.zeros((size, size))
    np.add.at(matrix, (who, who), weights)
    np.add.at(matrix, (who, column), weights * x)
    np.add.at(matrix, (column, who), weights * x)
    np.add.at(matrix, (column, column), weights * x * x)
    right: Any = np.bincount(who, weights * y, size) + np.bincount(column, weights * x * y, size)
    operations = int(what.max()) + 1
    sums: Any = np.bincount(what * size + who, weights, operations * size)
    sums += np.bincount(what * size + column, weights * x, operations * size)
    sums = sums.reshape(operations, size)
    total = np.bincount(what, weights, operations)
    mean = np.bincount(what, weights * y, operations) / total
    matrix -= sums.T @ (sums / total[:, np.newaxis])
    right -= sums.T @ mean
    return matrix, -right


def _prior(clocks: int, machines: int, scale: float, weight: float) -> Floats:
    """Hold the mean of offsets and of drifts at 0, and drifts near it."""
    matrix = np.zeros((clocks + machines,) * 2)
    matrix[:clocks, :clocks] = weight / clocks**2
    drifts = slice(clocks, None)
    matrix[drifts, drifts] = (scale / (1e-3 * DRIFT_SIGMA)) ** 2 / machines**2
    matrix[drifts, drifts] += np.eye(machines) * (scale / DRIFT_SIGMA) ** 2
    return matrix

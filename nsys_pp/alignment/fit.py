"""Joint fit of offset and drift of every clock, from all operations shared by several clocks.

An operation `k` ends at one time `T_k`; a member that ends at `t` on clock `d` of machine `m` is an observation
`t + offset_d + drift_m * (t - center) = T_k + noise`. All offsets and drifts are fitted together by least
squares with the `T_k` eliminated (each is the weighted mean of its members). Cauchy weights, recomputed in every
round, make the influence of a mismatched operation negligible. A prior (the drift of real oscillators) holds
drifts near 0 where operations are few or close in time.

Only differences of clocks are observable: the means of all offsets and of all drifts are held at 0.

Few clocks are fitted with dense matrices, many with sparse ones (`nsys_pp.alignment.normal`): the equations are the same.

A drift changes the durations of a report. One that could as well be the drift of the median machine is therefore held at it in
a second fit; the standard errors are those of the first, in which all drifts are free.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct

from nsys_pp.alignment.layout import Observations, build_layout
from nsys_pp.alignment.lines import mad_sigma
from nsys_pp.alignment.normal import Equations, Solver
from nsys_pp.alignment.pair_equations import PairEquations
from nsys_pp.arrays.columns import find_distinct
from nsys_pp.arrays.types import Floats, Int64s
from nsys_pp.units import NS_PER_S

DRIFT_SIGMA = 60_000.0  # ns per second
_FLOOR_NS = 500.0
_CERTAIN = 3.0  # standard errors between a drift and that of the median machine
_HELD_SIGMA = 1.0  # ns per second, of drifts that are held
_NO_DRIFT = 1e6  # ns per s: 1,000 ppm, ten times that of any clock
_LEAST_PART = 1e-9  # of the largest singular value, below which a combination of clocks is unknown
_ROUNDS = 10
_MAX_WORK = 1e9  # multiplications of one round
_MAX_DENSE = 300  # unknowns of dense matrices
_LEAST_OPERATIONS = 64  # kept of each clock, if it has as many


class Variances(Struct, frozen=True, kw_only=True):
    """Entries of the covariance of a fit.

    Attributes:
        offset: Variance of each clock's offset.
        shared: Covariance of each clock's offset and its drift.
        drift: Variance of each machine's drift.
    """

    offset: Floats
    shared: Floats
    drift: Floats

    @property
    def is_known(self) -> bool:
        """Whether all are finite."""
        return all(np.isfinite(values).all() for values in (self.offset, self.shared, self.drift))


class Fit(Struct, frozen=True, kw_only=True):
    """Corrections added to the times of each clock: `offset_ns + drift * seconds since center_ns`.

    Attributes:
        offset_ns: Offset of each clock at `center_ns`.
        drift: Drift of each clock, ns per second; shared by the clocks of one machine.
        residual_ns: Distance of each observation from the end of its operation.
        variances: Of the covariance, what bounds need.
        held_ns: Change of `offset_ns` by drifts that are held.
        held_drift: Change of `drift` by drifts that are held.
    """

    offset_ns: Floats
    drift: Floats
    center_ns: float
    residual_ns: Floats
    variances: Variances
    machine: Int64s
    held_ns: Floats
    held_drift: Floats

    def sigma_ns(self, clock: int, times: Floats) -> Floats:
        """Return the standard error of a clock's correction at each time."""
        of, drift = self.variances, int(self.machine[clock])
        if not of.is_known:
            return np.full(len(times), np.inf)
        x = (times - self.center_ns) / NS_PER_S
        variance = of.offset[clock] + 2 * x * of.shared[clock] + x * x * of.drift[drift]
        return np.asarray(np.sqrt(np.maximum(variance, 0.0)))

    def change_ns(self, clock: int, times: Floats) -> Floats:
        """Return the absolute change of a clock's correction by drifts that are held, at each time."""
        x = (times - self.center_ns) / NS_PER_S
        return np.asarray(np.abs(self.held_ns[clock] + self.held_drift[clock] * x))


def fit_clocks(
    time: Floats, clock: Int64s, instance: Int64s, noise: Floats, machine: Int64s, start: Floats
) -> Fit:
    """Fit all clocks of one group.

    Args:
        time: End of the operation in each observation, ns on the observation's clock.
        clock: Clock of each observation, 0, 1, ...
        instance: Operation of each observation, 0, 1, ...
        noise: Relative noise of each observation.
        machine: Machine of each clock, 0, 1, ...
        start: Initial correction of each observation's time.

    Returns:
        The fit; without observations all corrections are 0 with infinite covariance.
    """
    clocks, machines = len(machine), int(machine.max(initial=0)) + 1
    center = float(np.median(time)) if len(time) else 0.0
    kept = _thin(clock, instance, clocks, clocks + machines)
    observed = Observations(
        x=(time - center)[kept] / NS_PER_S,
        y=time[kept],
        clock=clock[kept],
        operation=find_distinct(instance[kept])[1],
        noise=noise[kept],
    )
    sigma = np.full(machines, DRIFT_SIGMA)
    fit: Callable[..., tuple[Floats, Variances]] = _fit_sparse
    if clocks + machines <= _MAX_DENSE or not len(time):
        fit = partial(_fit_dense, PairEquations(observed, machine, machines) if len(kept) else None)
    free, variances = fit(observed, start[kept], machine, sigma)
    drift_error = np.sqrt(np.maximum(variances.drift, 0.0))
    free_drift = free[clocks:]
    typical = np.sort(free_drift)[(machines - 1) // 2]
    is_held = ~(np.abs(free_drift - typical) > _CERTAIN * drift_error)
    theta = free
    if is_held.sum() > 1 and len(time):  # the median machine alone is held by the others
        held_sigma = np.where(is_held, _HELD_SIGMA, sigma)
        theta, _ = fit(observed, start[kept], machine, held_sigma, has_zero_mean=False)
    drift = theta[clocks:][machine]
    corrected = time + theta[clock] + drift[clock] * (time - center) / NS_PER_S if len(time) else time
    return Fit(
        offset_ns=theta[:clocks],
        drift=drift,
        center_ns=center,
        residual_ns=corrected - _median(corrected, instance),
        variances=variances,
        machine=machine,
        held_ns=(theta - free)[:clocks] - np.median((theta - free)[:clocks]),
        held_drift=(theta[clocks:] - (free_drift - typical))[machine],
    )


def _fit_dense(
    equations: PairEquations | None,
    observed: Observations,
    start: Floats,
    machine: Int64s,
    drift_sigma: Floats,
    *,
    has_zero_mean: bool = True,
) -> tuple[Floats, Variances]:
    """Fit offsets of all clocks, then drifts of all machines; return them and their variances.

    Drifts have a normal distribution about 0, with a standard deviation for each machine; their mean is held at 0 on request,
    and only then variances are known.
    """
    clocks, machines = len(machine), len(drift_sigma)
    correction, drift_of = start, clocks + machine[observed.clock]
    scale = 0.0
    theta: Any = np.zeros(clocks + machines)
    weights: Any = 1 / observed.noise**2
    matrix: Any = np.zeros((clocks + machines,) * 2)
    total = observed.sum_weights(weights)
    for _ in range(_ROUNDS if equations else 0):
        assert equations is not None
        weights, scale = _weigh(observed, correction, weights, total)
        matrix, right, total = equations.build(weights)
        matrix += _prior(clocks, drift_sigma, scale, weights.sum(), has_zero_mean=has_zero_mean)
        theta = _solve_dense(matrix, right, clocks)
        correction = theta[observed.clock] + theta[drift_of] * observed.x
    covariance: Floats = np.full(matrix.shape, np.inf)
    if equations and has_zero_mean:
        covariance = scale**2 * np.asarray(np.linalg.pinv(matrix))
    diagonal = np.diagonal(covariance)
    shared = covariance[np.arange(clocks), clocks + machine]
    return theta, Variances(offset=diagonal[:clocks], shared=shared, drift=diagonal[clocks:])


def _solve_dense(matrix: Floats, right: Floats, clocks: int) -> Floats:
    """Solve equations; combinations of clocks that they do not determine are 0."""
    try:
        theta: Floats = np.asarray(np.linalg.solve(matrix, right), dtype=np.float64)
        if np.abs(theta[clocks:]).max(initial=0.0) <= _NO_DRIFT:
            return theta
    except np.linalg.LinAlgError:  # parts of the clocks that share nothing
        pass
    # operations that contradict each other weigh nearly nothing
    return np.asarray(np.linalg.lstsq(matrix, right, rcond=_LEAST_PART)[0])


def _weigh(
    observed: Observations, correction: Floats, weights: Floats, total: Floats
) -> tuple[Floats, float]:
    """Return the Cauchy weights of observations by their distance from the mean of their operation, and the scale of these.

    Args:
        observed: The observations.
        correction: Of each.
        weights: Of each, for the mean.
        total: Sum of the weights of each operation.
    """
    level = observed.y + correction
    mean = np.bincount(observed.operation, weights * level) / total
    residual = (level - mean[observed.operation]) / observed.noise
    scale = max(mad_sigma(residual), _FLOOR_NS)
    weights = np.asarray(1 / (1 + (residual / (2 * scale)) ** 2) / observed.noise**2, dtype=np.float64)
    return weights, scale


def _fit_sparse(
    observed: Observations,
    start: Floats,
    machine: Int64s,
    drift_sigma: Floats,
    *,
    has_zero_mean: bool = True,
) -> tuple[Floats, Variances]:
    """Fit as `_fit_dense`, without dense matrices of all clocks; variances are known only with `has_zero_mean`."""
    clocks, machines = len(machine), len(drift_sigma)
    layout = build_layout(observed, machine, machines)
    theta = np.zeros(clocks + machines)
    counts = np.bincount(observed.clock, minlength=clocks)
    begin = np.bincount(observed.clock, start, clocks) / np.maximum(counts, 1)
    theta[:clocks] = begin
    correction, drift_of = start, clocks + machine[observed.clock]
    weights, solver = 1 / observed.noise**2, Solver()
    equations = None
    for _ in range(_ROUNDS):
        weights, scale = _weigh(observed, correction, weights, observed.sum_weights(weights))
        mean = (scale / (1e-3 * DRIFT_SIGMA)) ** 2 if has_zero_mean else 0.0
        equations = Equations(
            observed=observed,
            layout=layout,
            weights=weights,
            drift_weight=(scale / drift_sigma) ** 2,
            mean_weight=mean,
        )
        theta = _solve(solver, equations, theta)
        correction = theta[observed.clock] + theta[drift_of] * observed.x
    # parts of the clocks that share no operation keep their distance
    apart = np.bincount(layout.part, begin - theta[:clocks]) / np.bincount(layout.part)
    theta[:clocks] += apart[layout.part]
    theta[:clocks] -= theta[:clocks].mean()
    unknown = np.full(clocks, np.inf)
    variances = Variances(offset=unknown, shared=unknown, drift=np.full(machines, np.inf))
    if equations is not None and has_zero_mean:
        entries = [scale**2 * values for values in equations.find_variances(solver.end(equations))]
        variances = Variances(offset=entries[0], shared=entries[1], drift=entries[2])
    return theta, variances


def _solve(solver: Solver, equations: Equations, theta: Floats) -> Floats:
    """Solve equations; combinations of clocks that they do not determine stay as they are."""
    clocks = len(equations.layout.machine)
    try:
        solved = solver.solve(equations, theta)
        if np.abs(solved[clocks:]).max(initial=0.0) <= _NO_DRIFT:
            return solved
    except np.linalg.LinAlgError:
        pass
    equations.damping = _LEAST_PART * max(float(values.max(initial=0.0)) for values in equations.find_own())
    return solver.solve(equations, theta)


def _thin(clock: Int64s, instance: Int64s, clocks: int, unknowns: int) -> Int64s:
    """Keep evenly spread operations, as many as bound the work of a round, and some of each clock."""
    count = int(instance.max(initial=-1)) + 1
    limit = max(400, int(_MAX_WORK / unknowns**2))
    if count <= limit:
        return np.arange(len(instance))
    chosen = np.zeros(count, dtype=bool)
    chosen[np.linspace(0, count - 1, limit).astype(np.int64)] = True
    # of each clock, those at even distances in its own operations
    order = np.lexsort((instance, clock))
    total = np.bincount(clock, minlength=clocks)
    number = np.arange(len(order)) - (np.cumsum(total) - total)[clock[order]]
    share = np.minimum(_LEAST_OPERATIONS / total[clock[order]], 1.0)
    is_kept = np.floor((number + 1) * share) > np.floor(number * share)
    chosen[instance[order[is_kept]]] = True
    return np.flatnonzero(chosen[instance])


def _median(values: Floats, group: Int64s) -> Floats:
    """Return the median of each value's group."""
    order = np.lexsort((values, group))
    counts = np.bincount(group) if len(group) else np.zeros(0, dtype=np.int64)
    first = np.cumsum(counts) - counts
    ordered = values[order]
    low, high = first + (counts - 1) // 2, first + counts // 2
    filled = counts > 0
    middle = np.zeros(len(counts))
    middle[filled] = (ordered[low[filled]] + ordered[high[filled]]) / 2
    return middle[group] if len(group) else values


def _prior(clocks: int, drift_sigma: Floats, scale: float, weight: float, *, has_zero_mean: bool) -> Floats:
    """Build the prior: the mean of offsets is 0, and the mean of drifts on request; drifts are near 0."""
    machines = len(drift_sigma)
    matrix = np.zeros((clocks + machines,) * 2)
    matrix[:clocks, :clocks] = weight / clocks**2
    drifts = slice(clocks, None)
    if has_zero_mean:
        matrix[drifts, drifts] = (scale / (1e-3 * DRIFT_SIGMA)) ** 2 / machines**2
    matrix[drifts, drifts] += np.diag((scale / drift_sigma) ** 2)
    return matrix

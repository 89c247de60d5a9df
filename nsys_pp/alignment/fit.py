"""Fit of all clocks of a group.

An offset for each clock and a drift for each machine, by the ends of shared operations.

Each operation has a true end, which its members saw late by noise with many outliers (Cauchy weights). The
true ends are eliminated, so that the unknowns are the offsets and drifts alone.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.alignment.near import DRIFT_SIGMA, MAX_DRIFT, mad_sigma
from nsys_pp.arrays.columns import find_distinct, list_distinct, mark_rows
from nsys_pp.arrays.types import Floats, Int64s
from nsys_pp.units import NS_PER_S


def find_groups(clock: Int64s, instance: Int64s, clock_count: int) -> Int64s:
    """Number the groups of clocks connected by shared operations, directly or through other clocks.

    Args:
        clock: Clock of each observation.
        instance: Operation of each observation.
        clock_count: Number of clocks.

    Returns:
        The group of each clock; the largest is 0.

    >>> find_groups(np.array([0, 2, 1]), np.array([5, 5, 6]), 3)
    array([0, 1, 0])
    """
    group = np.arange(clock_count)
    operation = np.unique(instance, return_inverse=True)[1]
    while len(operation):
        lowest = np.full(int(operation.max()) + 1, clock_count)
        np.minimum.at(lowest, operation, group[clock])
        joined = group.copy()
        np.minimum.at(joined, clock, lowest[operation])
        joined = np.minimum(joined, joined[joined])
        if (joined == group).all():
            break
        group = joined
    numbers, group, sizes = np.unique(group, return_inverse=True, return_counts=True)
    rank = np.empty(len(numbers), dtype=np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(numbers))
    return rank[group]


class Observations(Struct, frozen=True, kw_only=True):
    """Observations of a fit: seconds since its center.

    End in ns, clock, operation and relative noise of each.

    Operations are numbered from 0 without gaps.
    """

    x: Floats
    y: Floats
    clock: Int64s
    operation: Int64s
    noise: Floats


_CELLS = 1 << 14  # of a matrix of weights whose products are summed: of some operations by all unknowns
_STEPS = 30  # of conjugate gradients, before a new factor is computed
_CLOSE_NS = 1e-7  # last change of a solution; the distance from the exact one may be 100,000 times as large
_LEAST_PART = (
    1e-9  # damping, of the largest entry: combinations of clocks that contradictions leave open stay
)


class Equations(Struct, kw_only=True):
    """Normal equations for weights of the observations.

    The mean of the offsets of each part of the clocks (those that share operations) is held at 0.

    Attributes:
        observed: The observations.
        machine: Machine of each clock.
        part: Part of each clock.
        weights: Weight of each observation.
        drift_weight: Weight of a drift of 0, of each machine.
        mean_weight: Weight of the mean of drifts at 0; 0 leaves it free.
        damping: Weight of no change of an unknown.
    """

    observed: Observations
    machine: Int64s
    part: Int64s
    weights: Floats
    drift_weight: Floats
    mean_weight: float
    damping: float = 0.0

    @property
    def _column(self) -> Int64s:
        # the unknown of the drift of each observation
        return len(self.machine) + self.machine[self.observed.clock]

    def find_gradient(self, theta: Floats) -> Floats:
        """Return the distance of the right side from the left at these unknowns."""
        level = self.observed.y + theta[self.observed.clock] + theta[self._column] * self.observed.x
        return -self._gather(level) - self._hold(theta)

    def multiply(self, theta: Floats) -> Floats:
        """Return the left side at these unknowns."""
        level = theta[self.observed.clock] + theta[self._column] * self.observed.x
        return self._gather(level) + self._hold(theta) + self.damping * theta

    def _gather(self, level: Floats) -> Floats:
        """Return the weighted distances of levels from the means of their operations, by unknown."""
        observed = self.observed
        apart = self.weights * (level - _average(observed.operation, level, self.weights))
        offset = np.bincount(observed.clock, apart, len(self.machine))
        drift = np.bincount(self.machine[observed.clock], apart * observed.x, len(self.drift_weight))
        return np.concatenate([offset, drift])

    def _hold(self, theta: Floats) -> Floats:
        """Return what holds the means of offsets and the drifts, by unknown."""
        offset, drift = np.split(theta, [len(self.machine)])
        mean = self.weights.sum() * np.bincount(self.part, offset) / np.bincount(self.part) ** 2
        held = self.drift_weight * drift + self.mean_weight * drift.sum() / len(drift) ** 2
        return np.concatenate([mean[self.part], held])

    def invert(self, damping: float) -> Floats:
        """Return the inverse of the lower Cholesky factor, and damp by a part of the largest entry.

        Raises:
            numpy.linalg.LinAlgError: The matrix is not positive definite.
        """
        matrix = self._build_matrix()
        self.damping = damping * float(matrix.diagonal().max())
        matrix[np.diag_indices_from(matrix)] += self.damping
        factor = np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
        del matrix
        _invert_lower(factor)
        return factor

    def _build_matrix(self) -> Floats:
        observed, clocks, machines = self.observed, len(self.machine), len(self.drift_weight)
        x, weights, drift = observed.x, self.weights, self._column
        matrix = np.zeros((clocks + machines, clocks + machines))
        offsets, drifts = matrix[:clocks, :clocks], matrix[clocks:, clocks:]
        own = np.arange(clocks)
        offsets[own, own] = np.bincount(observed.clock, weights, clocks)
        matrix[own, clocks + self.machine] = np.bincount(observed.clock, weights * x, clocks)
        matrix[clocks + self.machine, own] = matrix[own, clocks + self.machine]
        moments = np.bincount(self.machine[observed.clock], weights * x * x, machines)
        drifts[np.diag_indices(machines)] = moments + self.drift_weight
        drifts += self.mean_weight / machines**2
        for part in range(int(self.part.max()) + 1):
            members = np.flatnonzero(self.part == part)
            offsets[np.ix_(members, members)] += weights.sum() / len(members) ** 2
        # minus the means of operations
        scaled = weights / np.sqrt(np.bincount(observed.operation, weights))[observed.operation]
        order = np.argsort(observed.operation, kind="stable")
        entries = matrix.reshape(-1)
        count, size = int(observed.operation.max()) + 1, 8 + _CELLS // len(matrix)
        bounds = np.searchsorted(observed.operation[order], np.arange(0, count + size, size))
        for first, rows in zip(range(0, count, size), np.split(order, bounds[1:-1]), strict=True):
            columns = list_distinct(np.append(observed.clock[rows], drift[rows]))
            means = np.zeros((size, len(columns)))
            number = observed.operation[rows] - first
            np.add.at(means, (number, np.searchsorted(columns, observed.clock[rows])), scaled[rows])
            np.add.at(means, (number, np.searchsorted(columns, drift[rows])), scaled[rows] * x[rows])
            entry = (columns[:, np.newaxis] * len(matrix) + columns).reshape(-1)
            entries[entry] -= (means.T @ means).reshape(-1)
        return matrix


def _average(operation: Int64s, values: Floats, weights: Floats) -> Floats:
    return np.asarray((np.bincount(operation, weights * values) / np.bincount(operation, weights))[operation])


def _invert_lower(matrix: Floats) -> None:
    """Invert a lower triangular matrix in place.

    NumPy has no function for it, and half its time is enough.
    """
    half = len(matrix) // 2
    if half < 64:
        matrix[:] = np.linalg.inv(matrix)
        return
    _invert_lower(matrix[:half, :half])
    _invert_lower(matrix[half:, half:])
    matrix[half:, :half] = -matrix[half:, half:] @ (matrix[half:, :half] @ matrix[:half, :half])


def _iterate(equations: Equations, gradient: Floats, inverse: Floats) -> Floats | None:
    """Solve equations by conjugate gradients with the factor of similar ones.

    None if they do not converge.
    """
    clocks, seconds = len(equations.machine), float(np.abs(equations.observed.x).max(initial=0.0))
    theta, residual = np.zeros(len(gradient)), gradient
    direction = near = inverse.T @ (inverse @ residual)
    product = float(residual @ near)
    for _ in range(_STEPS):
        if np.abs(near[:clocks]).max() + seconds * np.abs(near[clocks:]).max() <= _CLOSE_NS:
            return theta
        image = equations.multiply(direction)
        length = product / float(direction @ image)
        theta = theta + length * direction
        residual = residual - length * image
        near = inverse.T @ (inverse @ residual)
        product, before = float(residual @ near), product
        direction = near + product / before * direction
    return None


def _solve(equations: Equations, theta: Floats, inverse: Floats | None) -> tuple[Floats, Floats]:
    """Solve equations from unknowns on; return the solution, and a factor for similar equations.

    Combinations of clocks that they do not determine stay as they are.

    Args:
        equations: The equations.
        theta: Unknowns to begin with.
        inverse: Factor of similar equations; None without any.

    Raises:
        numpy.linalg.LinAlgError: The equations are singular.
    """
    gradient, clocks = equations.find_gradient(theta), len(equations.machine)
    for damping in (None, 0.0, _LEAST_PART):
        try:
            if damping is not None:
                inverse = None  # its memory is free before the next one is computed
                inverse = equations.invert(damping)
            change = None if inverse is None else _iterate(equations, gradient, inverse)
        except np.linalg.LinAlgError:
            continue
        if change is not None and inverse is not None:
            drift = np.abs((theta + change)[clocks:]).max()
            if damping == _LEAST_PART or drift <= MAX_DRIFT * NS_PER_S:
                return theta + change, inverse
    raise np.linalg.LinAlgError("the equations of the clocks are singular")


_DRIFT_SIGMA = DRIFT_SIGMA * NS_PER_S  # ns per second
_FLOOR_NS = 500.0
_CERTAIN = 3.0  # standard errors between a drift and that of the median machine
_HELD_SIGMA = 1.0  # ns per second, of drifts that are held
_ROUNDS = 10
_MAX_WORK = 1e9  # multiplications of one round
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
    sigma = np.full(machines, _DRIFT_SIGMA)
    free, variances = fit_unknowns(observed, start[kept], machine, sigma)
    drift_error = np.sqrt(np.maximum(variances.drift, 0.0))
    free_drift = free[clocks:]
    typical = np.sort(free_drift)[(machines - 1) // 2]
    is_held = ~(np.abs(free_drift - typical) > _CERTAIN * drift_error)
    theta = free
    if is_held.sum() > 1 and len(time):  # the median machine alone is held by the others
        held_sigma = np.where(is_held, _HELD_SIGMA, sigma)
        theta, _ = fit_unknowns(observed, start[kept], machine, held_sigma, has_zero_mean=False)
    drift = theta[clocks:][machine]
    corrected = time + theta[clock] + drift[clock] * (time - center) / NS_PER_S
    ends = pl.DataFrame({"operation": instance, "end": corrected}).select(
        pl.col("end").median().over("operation")
    )
    return Fit(
        offset_ns=theta[:clocks],
        drift=drift,
        center_ns=center,
        residual_ns=corrected - ends["end"].to_numpy(),
        variances=variances,
        machine=machine,
        held_ns=(theta - free)[:clocks] - np.median((theta - free)[:clocks]),
        held_drift=(theta[clocks:] - (free_drift - typical))[machine],
    )


def _weigh(observed: Observations, correction: Floats, weights: Floats) -> tuple[Floats, float]:
    """Return the Cauchy weights of observations by their distance from the mean of their operation.

    And the scale.
    """
    level = observed.y + correction
    residual = (level - _average(observed.operation, level, weights)) / observed.noise
    scale = max(mad_sigma(residual), _FLOOR_NS)
    return np.asarray(1 / (1 + (residual / (2 * scale)) ** 2) / observed.noise**2, dtype=np.float64), scale


def fit_unknowns(
    observed: Observations, start: Floats, machine: Int64s, drift_sigma: Floats, *, has_zero_mean: bool = True
) -> tuple[Floats, Variances]:
    """Fit the offset of each clock and the drift of each machine.

    Args:
        observed: The observations.
        start: Initial correction of each.
        machine: Machine of each clock.
        drift_sigma: Standard deviation of the drift of each machine, about 0; ns per second.
        has_zero_mean: Hold the mean of drifts at 0.

    Returns:
        Offsets, then drifts; and their variances, which are infinite if the mean of drifts is free.
    """
    clocks, machines = len(machine), len(drift_sigma)
    theta, unknown = np.zeros(clocks + machines), np.full(clocks, np.inf)
    variances = Variances(offset=unknown, shared=unknown, drift=np.full(machines, np.inf))
    if not len(observed.y):
        return theta, variances
    counts = np.bincount(observed.clock, minlength=clocks)
    begin = np.bincount(observed.clock, start, clocks) / np.maximum(counts, 1)
    theta[:clocks] = begin
    part = find_groups(observed.clock, observed.operation, clocks)
    correction, weights, inverse = start, 1 / observed.noise**2, None
    for _ in range(_ROUNDS):
        weights, scale = _weigh(observed, correction, weights)
        equations = Equations(
            observed=observed,
            machine=machine,
            part=part,
            weights=weights,
            drift_weight=(scale / drift_sigma) ** 2,
            mean_weight=(scale / (1e-3 * _DRIFT_SIGMA)) ** 2 if has_zero_mean else 0.0,
        )
        theta, inverse = _solve(equations, theta, inverse)
        correction = theta[observed.clock] + theta[clocks + machine[observed.clock]] * observed.x
    # parts of the clocks that share no operation keep their distance
    apart = np.bincount(part, begin - theta[:clocks]) / np.bincount(part)
    theta[:clocks] += apart[part]
    theta[:clocks] -= theta[:clocks].mean()
    if has_zero_mean:
        inverse = None  # its memory is free before the last one is computed
        inverse = equations.invert(_LEAST_PART if equations.damping else 0.0)
        diagonal = scale**2 * np.einsum("ij,ij->j", inverse, inverse)
        shared = scale**2 * np.einsum("ij,ij->j", inverse[:, :clocks], inverse[:, clocks + machine])
        variances = Variances(offset=diagonal[:clocks], shared=shared, drift=diagonal[clocks:])
    return theta, variances


def _thin(clock: Int64s, instance: Int64s, clocks: int, unknowns: int) -> Int64s:
    """Keep evenly spread operations, as many as bound the work of a round, and some of each clock."""
    count = int(instance.max(initial=-1)) + 1
    limit = max(400, int(_MAX_WORK / unknowns**2))
    if count <= limit:
        return np.arange(len(instance))
    chosen = mark_rows(np.linspace(0, count - 1, limit).astype(np.int64), count)
    # of each clock, those at even distances in its own operations
    order = np.lexsort((instance, clock))
    total = np.bincount(clock, minlength=clocks)
    number = np.arange(len(order)) - (np.cumsum(total) - total)[clock[order]]
    share = np.minimum(_LEAST_OPERATIONS / total[clock[order]], 1.0)
    is_kept = np.floor((number + 1) * share) > np.floor(number * share)
    chosen[instance[order[is_kept]]] = True
    return np.flatnonzero(chosen[instance])

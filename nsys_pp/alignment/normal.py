"""Normal equations of a fit of many clocks: products, solutions, and the entries of the covariance that bounds need.

Unknowns are the offset of each clock, then the drift of each machine. The equations are the Laplacian of the operations (each
ties its members to their mean), a prior of the drifts, and the means of offsets and drifts, which are held at 0. They are
solved by conjugate gradients, whose products visit each observation once; where these do not converge soon, as in
long chains of clocks, with a factor (`nsys_pp.alignment.sparse`) that later solutions use as well.

The Laplacian does not change when all clocks of a connected part move together. The factor is therefore that of the
equations without the offset of one clock of each part, and the solution is moved to a mean of 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from msgspec import Struct

from nsys_pp.alignment.blocks import Blocks
from nsys_pp.alignment.layout import Layout, Observations
from nsys_pp.alignment.sparse import Factor, factorise
from nsys_pp.arrays.types import Floats, Int64s

_STEPS = 300  # of conjugate gradients, before a factor is computed
_FACTOR_STEPS = 12  # the same, with an earlier factor, before a new one is computed
_CLOSE_NS = 1e-7  # last change of a solution; the distance from the exact one may be 100,000 times as large


class Equations(Struct, kw_only=True):
    """Normal equations for weights of the observations.

    Attributes:
        observed: The observations.
        layout: The order of the unknowns.
        weights: Weight of each observation.
        drift_weight: Weight of a drift of 0, of each machine.
        mean_weight: Weight of the mean of drifts at 0; 0 leaves it free.
        damping: Weight of no change of an unknown: where operations contradict each other, they determine some hardly.
    """

    observed: Observations
    layout: Layout
    weights: Floats
    drift_weight: Floats
    mean_weight: float
    damping: float = 0.0

    def find_gradient(self, theta: Floats) -> Floats:
        """Return the distance of the right side from the left at these unknowns."""
        observed, clocks = self.observed, len(self.layout.machine)
        level = observed.y + theta[observed.clock] + theta[self._column] * observed.x
        return -self._gather(level) - self._hold(theta, clocks)

    def multiply(self, theta: Floats) -> Floats:
        """Return the left side at these unknowns."""
        observed, clocks = self.observed, len(self.layout.machine)
        level = theta[observed.clock] + theta[self._column] * observed.x
        return self._gather(level) + self._hold(theta, clocks) + self.damping * theta

    @property
    def _column(self) -> Int64s:
        return len(self.layout.machine) + self.layout.machine[self.observed.clock]

    def _gather(self, level: Floats) -> Floats:
        """Return the weighted distances of levels from the means of their operations, by unknown."""
        observed, layout = self.observed, self.layout
        total = np.bincount(observed.operation, self.weights)
        mean = np.bincount(observed.operation, self.weights * level) / total
        apart = self.weights * (level - mean[observed.operation])
        offset = np.bincount(observed.clock, apart, len(layout.machine))
        drift = np.bincount(layout.machine[observed.clock], apart * observed.x, layout.machines)
        return np.concatenate([offset, drift])

    def _hold(self, theta: Floats, clocks: int) -> Floats:
        offset, drift = theta[:clocks], theta[clocks:]
        machines = self.layout.machines
        held = self.drift_weight * drift + self.mean_weight * drift.sum() / machines**2
        return np.concatenate([np.full(clocks, self.weights.sum() * offset.sum() / clocks**2), held])

    def find_own(self) -> tuple[Floats, Floats, Floats]:
        """Return the entries of each clock's offset, of its offset and its drift, and of its drift, without other clocks and the prior."""
        observed, clocks = self.observed, len(self.layout.machine)
        w, x = self.weights, observed.x
        pair, number = np.unique(observed.operation * clocks + observed.clock, return_inverse=True)
        total = np.bincount(observed.operation, w)[pair // clocks]
        own: Floats = np.bincount(number, w).astype(np.float64)
        drift: Floats = np.bincount(number, w * x).astype(np.float64)
        clock = pair % clocks
        offset, shared, drifts = (
            np.asarray(
                np.bincount(observed.clock, all_of, clocks) - np.bincount(clock, means / total, clocks),
                np.float64,
            )
            for all_of, means in ((w, own**2), (w * x, own * drift), (w * x * x, drift**2))
        )
        return offset, shared, drifts

    def factorise(self) -> Factor:
        """Factorise the equations without the means and without the grounded unknowns."""
        own = np.full(len(self.layout.position), self.damping)
        own[len(self.layout.machine) :] += self.drift_weight
        blocks = Blocks(self.observed, self.layout, self.weights, own)
        return factorise(self.layout.bounds, blocks.pattern, blocks.fill_panel)

    def solve_factor(self, factor: Factor, right: Floats) -> Floats:
        """Solve the equations without the mean of drifts by a factor."""
        layout, clocks = self.layout, len(self.layout.machine)
        counts = np.bincount(layout.part)
        centered = np.array(right)
        centered[:clocks] -= (np.bincount(layout.part, right[:clocks]) / counts)[layout.part]
        centered[layout.grounded] = 0.0
        ordered = np.empty(len(right))
        ordered[layout.position] = centered
        solved = factor.solve(ordered)[layout.position]
        solved[:clocks] -= (np.bincount(layout.part, solved[:clocks]) / counts)[layout.part]
        solved[:clocks] += right[:clocks].sum() / self.weights.sum()
        return solved

    def find_variances(self, factor: Factor) -> tuple[Floats, Floats, Floats]:
        """Return the entries of the inverse that bounds need: of each offset, of each offset and its drift, and of each drift."""
        layout, clocks = self.layout, len(self.layout.machine)
        size, drift = len(layout.position), clocks + layout.machine
        unknown = np.empty(size, dtype=np.int64)
        unknown[layout.position] = np.arange(size)
        variance, shared = np.zeros(size), np.zeros(clocks)
        for block, inverse in enumerate(factor.invert_diagonal()):
            first, stop = layout.bounds[block : block + 2].tolist()
            variance[unknown[first:stop]] = np.diagonal(inverse)
            own = unknown[first:stop][unknown[first:stop] < clocks]
            shared[own] = inverse[layout.position[own] - first, layout.position[drift[own]] - first]
        shared[layout.grounded] = variance[layout.grounded] = 0.0
        offset, drifts = variance[:clocks], variance[clocks:]
        for part in range(int(layout.part.max(initial=-1)) + 1):  # moved to a mean of 0
            is_own = layout.part == part
            mean = self._solve_grounded(factor, np.append(is_own / is_own.sum(), np.zeros(layout.machines)))
            offset[is_own] += mean[:clocks][is_own].mean() - 2 * mean[:clocks][is_own]
            shared[is_own] -= mean[drift[is_own]]
        offset += 1 / self.weights.sum()
        if self.mean_weight:  # the formula of Sherman and Morrison
            mean = np.append(np.zeros(clocks), np.full(layout.machines, 1 / layout.machines))
            solved = self.solve_factor(factor, mean)
            share = self.mean_weight / (1 + self.mean_weight * float(mean @ solved))
            offset -= share * solved[:clocks] ** 2
            shared -= share * solved[:clocks] * solved[drift]
            drifts -= share * solved[clocks:] ** 2
        return offset, shared, drifts

    def _solve_grounded(self, factor: Factor, right: Floats) -> Floats:
        """Solve the equations of a factor; the grounded unknowns are 0."""
        layout = self.layout
        ordered = np.empty(len(right))
        ordered[layout.position] = right
        ordered[layout.position[layout.grounded]] = 0.0
        return factor.solve(ordered)[layout.position]


class Solver:
    """Solutions of equations whose weights change by little from one to the next."""

    def __init__(self) -> None:
        self._factor: Factor | None = None

    def solve(self, equations: Equations, theta: Floats) -> Floats:
        """Solve equations, beginning with these unknowns.

        Raises:
            numpy.linalg.LinAlgError: The equations are singular.
        """
        gradient = equations.find_gradient(theta)
        factor = self._factor
        if factor is None:
            change = _iterate(equations, gradient, _build_arrows(equations), _STEPS)
        else:
            change = _iterate(equations, gradient, partial(equations.solve_factor, factor), _FACTOR_STEPS)
        if change is not None:
            return theta + change
        self._factor = factor = None  # its memory is free before the next one is computed
        factor = self._factor = equations.factorise()
        change = _iterate(equations, gradient, partial(equations.solve_factor, factor), _STEPS)
        if change is None:
            raise np.linalg.LinAlgError("the equations are singular")
        return theta + change

    def end(self, equations: Equations) -> Factor:
        """Return the factor of the last equations; solutions begin without one again."""
        self._factor = None
        return equations.factorise()


def _build_arrows(equations: Equations) -> Callable[[Floats], Floats]:
    """Build the solution of the equations of each machine alone, as if no two clocks shared operations."""
    machine, clocks = equations.layout.machine, len(equations.layout.machine)
    offset, shared, drift = equations.find_own()
    offset = np.maximum(offset, 1e-12 * offset.max(initial=1e-300))
    left_over = np.bincount(machine, drift - shared**2 / offset, equations.layout.machines)
    own = np.maximum(left_over, 0.0) + equations.drift_weight

    def solve(right: Floats) -> Floats:
        left = right[:clocks] / offset
        drifts = (right[clocks:] - np.bincount(machine, shared * left, len(own))) / own
        return np.concatenate([left - shared / offset * drifts[machine], drifts])

    return solve


def _iterate(
    equations: Equations, gradient: Floats, precondition: Callable[[Floats], Floats], steps: int
) -> Floats | None:
    """Solve equations by conjugate gradients; None where they do not converge in these steps."""
    clocks = len(equations.layout.machine)
    seconds = float(np.abs(equations.observed.x).max(initial=0.0))
    theta, residual = np.zeros(len(gradient)), gradient
    direction = near = precondition(residual)
    product = float(residual @ near)
    for _ in range(steps):
        if np.abs(near[:clocks]).max() + seconds * np.abs(near[clocks:]).max() <= _CLOSE_NS:
            return theta
        image = equations.multiply(direction)
        length = product / float(direction @ image)
        theta = theta + length * direction
        residual = residual - length * image
        near = precondition(residual)
        product, before = float(residual @ near), product
        direction = near + product / before * direction
    return None

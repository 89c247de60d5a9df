"""Symmetric, positive definite, sparse matrices in dense blocks.

Cholesky factors, solutions, and blocks of the inverse.

A matrix is cut into blocks of some hundred unknowns; only blocks with entries are stored, in one panel per
column of blocks, so that all arithmetic is products of dense matrices. A chain of unknowns costs as much as
its length; where each is related to many others at random, all blocks fill, and it costs as much as a dense
factor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from nsys_pp.alignment.lines import mad_sigma
from nsys_pp.arrays.columns import find_distinct, list_distinct
from nsys_pp.arrays.search import expand_windows
from nsys_pp.arrays.types import Bools, Floats, Int64s
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


class Factor(Struct, frozen=True, kw_only=True):
    """A Cholesky factor.

    Attributes:
        bounds: First unknown of each block, and the number of unknowns.
        rows: Of each column of blocks, the unknowns of its blocks below the diagonal, ascending.
        panels: Of each column of blocks, its rows of the factor at these unknowns.
        inverse: Of each column of blocks, the inverse of its diagonal block of the factor.
    """

    bounds: Int64s
    rows: list[Int64s]
    panels: list[Floats]
    inverse: list[Floats]

    def solve(self, right: Floats) -> Floats:
        """Return the solution for a right side, or for each column of a matrix."""
        x = np.array(right, dtype=np.float64)
        spans = [slice(*self.bounds[block : block + 2]) for block in range(len(self.rows))]
        for span, rows, panel, inverse in zip(spans, self.rows, self.panels, self.inverse, strict=True):
            x[span] = inverse @ x[span]
            x[rows] -= panel @ x[span]
        for block in reversed(range(len(spans))):
            span = spans[block]
            x[span] = self.inverse[block].T @ (x[span] - self.panels[block].T @ x[self.rows[block]])
        return x

    def invert_diagonal(self) -> Iterator[Floats]:
        """Compute the diagonal blocks of the inverse, one after the other.

        No more of the inverse is held than some columns.
        """
        for block in range(len(self.rows)):
            first, stop = self.bounds[block : block + 2].tolist()
            columns = np.zeros((int(self.bounds[-1]) - first, stop - first))
            columns[: stop - first] = np.eye(stop - first)
            reached = np.zeros(len(self.rows), dtype=bool)
            reached[block] = True
            for other in range(block, len(self.rows)):
                if not reached[other]:
                    continue
                span = slice(int(self.bounds[other]) - first, int(self.bounds[other + 1]) - first)
                columns[span] = self.inverse[other] @ columns[span]
                rows = self.rows[other]
                if len(rows):
                    _subtract(columns, rows - first, self.panels[other] @ columns[span])
                    reached[np.searchsorted(self.bounds, rows, side="right") - 1] = True
            yield columns.T @ columns


def cut_blocks(sizes: Int64s, target: int) -> Int64s:
    """Cut groups of neighbouring unknowns into blocks.

    Groups stay whole, and a block has the ends of those in the same multiple of `target`.

    Returns:
        First unknown of each block, and the number of unknowns.

    >>> cut_blocks(np.array([2, 2, 2, 5]), 4).tolist()
    [0, 4, 6, 11]
    """
    ends = np.cumsum(sizes)
    block = np.maximum(ends - 1, 0) // target
    last = np.append(np.flatnonzero(np.diff(block)), len(sizes) - 1)
    return np.append(0, ends[last])


def find_fill(pattern: Bools) -> list[Int64s]:
    """List the blocks below the diagonal that each column of the factor has.

    Args:
        pattern: Mask of the blocks that have entries; symmetric.
    """
    fill: list[set[int]] = [
        set((column + 1 + np.flatnonzero(row[column + 1 :])).tolist()) for column, row in enumerate(pattern)
    ]
    for below in fill:
        if below:
            parent = min(below)
            fill[parent] |= below - {parent}
    return [np.array(sorted(below), dtype=np.int64) for below in fill]


def factorise(bounds: Int64s, pattern: Bools, fill_panel: Callable[[int, Int64s], Floats]) -> Factor:
    """Factorise a matrix.

    Args:
        bounds: First unknown of each block, and the number of unknowns.
        pattern: Mask of the blocks that have entries; symmetric.
        fill_panel: Function of a block and of unknowns: the columns of the block in the matrix, at these
            rows. The array becomes part of the factor.

    Raises:
        numpy.linalg.LinAlgError: The matrix is not positive definite.
    """
    factor = Factor(bounds=bounds, rows=[], panels=[], inverse=[])
    left_of: list[list[int]] = [[] for _ in range(len(bounds) - 1)]  # columns with a block in each row
    for column, below in enumerate(find_fill(pattern)):
        first, stop = bounds[column : column + 2].tolist()
        rows = np.concatenate(
            [np.arange(first, stop), *(np.arange(*bounds[block : block + 2]) for block in below.tolist())]
        )
        panel = fill_panel(column, rows)
        for left in left_of[column]:
            low, high = np.searchsorted(factor.rows[left], (first, stop))
            update = factor.panels[left][low:] @ factor.panels[left][low:high].T
            at = np.searchsorted(rows, factor.rows[left][low:])
            _subtract(panel, at, update)
        size = stop - first
        lower = np.linalg.inv(np.linalg.cholesky(panel[:size]))
        factor.inverse.append(lower)
        factor.panels.append(panel[size:] @ lower.T)
        factor.rows.append(rows[size:])
        for block in below.tolist():
            left_of[block].append(column)
    return factor


def _subtract(array: Floats, rows: Int64s, values: Floats) -> None:
    """Subtract values from ascending rows of an array."""
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1:  # without gaps: in place
        array[rows[0] : rows[-1] + 1] -= values
    elif len(rows):
        array[rows] -= values


_BLOCK = 256  # unknowns


class Observations(Struct, frozen=True, kw_only=True):
    """Observations of a fit.

    Seconds since its center, ends in ns, clock, operation and relative noise of each.

    Operations are numbered from 0 without gaps.
    """

    x: Floats
    y: Floats
    clock: Int64s
    operation: Int64s
    noise: Floats

    def sum_weights(self, weights: Floats) -> Floats:
        """Sum the weights of each operation."""
        return np.asarray(np.bincount(self.operation, weights), dtype=np.float64)


class Layout(Struct, frozen=True, kw_only=True):
    """Order of the unknowns in blocks, which the weights of observations do not change.

    Attributes:
        machine: Machine of each clock.
        machines: Number of machines.
        part: Connected part of each clock.
        position: Position of each unknown.
        bounds: First position of each block, and the number of unknowns.
        grounded: Unknowns that a factor is without: an offset of each part.
    """

    machine: Int64s
    machines: int
    part: Int64s
    position: Int64s
    bounds: Int64s
    grounded: Int64s


def build_layout(observed: Observations, machine: Int64s, machines: int) -> Layout:
    """Order the unknowns so that clocks that share operations are close.

    Machine after machine, by the distance from a first one.
    """
    clocks = len(machine)
    part = find_groups(observed.clock, observed.operation, clocks)
    rank = _order_machines(machine[observed.clock], observed.operation, machines)
    key = np.concatenate([rank[machine], rank])
    order = np.argsort(key, kind="stable")
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    sizes = np.bincount(key, minlength=machines)
    return Layout(
        machine=machine,
        machines=machines,
        part=part,
        position=position,
        bounds=cut_blocks(sizes, _BLOCK),
        grounded=np.unique(part, return_index=True)[1],
    )


def _order_machines(machine: Int64s, operation: Int64s, machines: int) -> Int64s:
    """Return the rank of each machine.

    By steps from one that is far from others, through shared operations.
    """
    pairs = list_distinct(machine * (int(operation.max(initial=0)) + 1) + operation)
    of_pair, operation = np.divmod(pairs, int(operation.max(initial=0)) + 1)
    by_operation = np.argsort(operation, kind="stable")
    machine_bounds = np.searchsorted(of_pair, np.arange(machines + 1))
    operation_bounds = np.searchsorted(operation[by_operation], np.arange(int(operation.max(initial=-1)) + 2))
    last = 0
    for _ in range(2):  # the last one from anywhere is far from others
        rank = np.full(machines, -1, dtype=np.int64)
        is_seen = np.zeros(int(operation.max(initial=-1)) + 1, dtype=bool)
        count = 0
        for start in [last, *range(machines)]:
            frontier = np.array([start]) if rank[start] < 0 else np.zeros(0, dtype=np.int64)
            while len(frontier):
                rank[frontier] = count + np.arange(len(frontier))
                count += len(frontier)
                last = int(frontier[-1])
                rows = expand_windows(machine_bounds[frontier], machine_bounds[frontier + 1])
                reached = list_distinct(operation[rows])
                reached = reached[~is_seen[reached]]
                is_seen[reached] = True
                rows = expand_windows(operation_bounds[reached], operation_bounds[reached + 1])
                found = list_distinct(of_pair[by_operation[rows]])
                frontier = found[rank[found] < 0]
    return rank


Int32s = npt.NDArray[np.int32]

_CHUNK = 1 << 15  # observations whose pairs are listed at a time
_LARGE = 64  # members of an operation that is part of a product of dense matrices


class Blocks:
    """Entries of the equations without the means and without the grounded unknowns, by column of blocks.

    Attributes:
        pattern: Mask of the blocks that have entries.
    """

    def __init__(self, observed: Observations, layout: Layout, weights: Floats, own_weight: Floats) -> None:
        clocks = len(layout.machine)
        self._bounds, self._grounded = layout.bounds, layout.position[layout.grounded]
        self._observed, self._weights = observed, weights
        self._offset = layout.position[observed.clock]
        self._drift = layout.position[clocks + layout.machine[observed.clock]]
        count = np.bincount(observed.operation)
        self._total = np.bincount(observed.operation, weights)
        self._share = weights / self._total[observed.operation]
        self._block = (np.searchsorted(layout.bounds, self._offset, side="right") - 1).astype(np.uint16)
        members = np.zeros((len(layout.bounds) - 1, len(count)), dtype=np.float32)
        members[self._block, observed.operation] = 1.0
        self.pattern: Bools = (members @ members.T > 0) | np.eye(len(members), dtype=bool)
        is_large = (count > _LARGE)[observed.operation]
        self._large = self._build_large(np.flatnonzero(is_large))
        self._own_weight = np.empty(len(own_weight))
        self._own_weight[layout.position] = own_weight
        self._pairs = self._list_pairs(np.flatnonzero(~is_large))

    def fill_panel(self, column: int, rows: Int64s) -> Floats:
        """Build a column of blocks at some rows, ascending unknowns."""
        first, stop = self._bounds[column : column + 2].tolist()
        width = stop - first
        panel = np.zeros((len(rows), width))
        entries = panel.reshape(-1)
        for row, unknown, value in self._list_entries(column):
            at = np.searchsorted(rows, row) * width + unknown - first
            entries += np.bincount(at, value, len(entries))
        entries[: width * width : width + 1] += self._own_weight[
            first:stop
        ]  # the block's own rows are the first
        if len(self._large):
            panel -= self._large[:, rows].T @ self._large[:, first:stop]
        panel[np.isin(rows, self._grounded)] = 0.0
        own = self._grounded[(self._grounded >= first) & (self._grounded < stop)] - first
        panel[:, own] = 0.0
        panel[own, own] = 1.0
        return panel

    def _list_entries(self, column: int) -> list[tuple[Int64s, Int64s, Floats]]:
        """List entries of observations and of pairs of members, on and below a diagonal block.

        Row, column and value of each.
        """
        offset, drift, weights, x = self._offset, self._drift, self._weights, self._observed.x
        own = np.flatnonzero(self._block == column)
        one, other, bounds = self._pairs
        pairs = slice(*bounds[column : column + 2])
        entries: list[tuple[Int64s, Int64s, Floats]] = []
        for a, b, w in (
            (own, own, weights[own]),
            (one[pairs], other[pairs], -weights[one[pairs]] * self._share[other[pairs]]),
        ):
            entries += [
                (offset[a], offset[b], w), (offset[a], drift[b], w * x[b]),
                (drift[a], offset[b], w * x[a]), (drift[a], drift[b], w * x[a] * x[b]),
            ]  # fmt: skip
        return entries

    def _list_pairs(self, rows: Int64s) -> tuple[Int32s, Int32s, Int64s]:
        """List the pairs of members of operations on and below diagonal blocks.

        Also the first pair of each column of blocks.
        """
        rows = rows[np.argsort(self._observed.operation[rows], kind="stable")]
        operation = self._observed.operation[rows]
        low, high = (np.searchsorted(operation, operation, side=side) for side in ("left", "right"))
        pairs: list[tuple[Int32s, Int32s]] = [(np.zeros(0, dtype=np.int32),) * 2]
        for first in range(0, len(rows), _CHUNK):
            chunk = slice(first, first + _CHUNK)
            first_row = rows[chunk][np.repeat(np.arange(len(rows[chunk])), (high - low)[chunk])]
            second_row = rows[expand_windows(low[chunk], high[chunk])]
            is_below = self._block[first_row] >= self._block[second_row]
            pairs.append((first_row[is_below].astype(np.int32), second_row[is_below].astype(np.int32)))
        one = np.concatenate([left for left, _ in pairs])
        other = np.concatenate([right for _, right in pairs])
        order = np.argsort(self._block[other], kind="stable")
        bounds = np.searchsorted(self._block[other][order], np.arange(len(self._bounds))).astype(np.int64)
        return one[order], other[order], bounds

    def _build_large(self, rows: Int64s) -> Floats:
        """Build the weights of the unknowns in the means of large operations, by the root of their total.

        A row each.
        """
        numbers, row = np.unique(self._observed.operation[rows], return_inverse=True)
        size = int(self._bounds[-1])
        large = np.zeros((len(numbers), size))
        w = self._weights[rows] / np.sqrt(self._total[self._observed.operation[rows]])
        np.add.at(large, (row, self._offset[rows]), w)
        np.add.at(large, (row, self._drift[rows]), w * self._observed.x[rows])
        return large


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
        damping: Weight of no change of an unknown: where operations contradict each other, they determine
            some hardly.
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
        """Return the entries of each clock's offset, of its offset and its drift, and of its drift.

        Without other clocks and the prior.
        """
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
        """Return the entries of the inverse that bounds need.

        Of each offset, of each offset and its drift, and of each drift.
        """
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


DRIFT_SIGMA = 60_000.0  # ns per second
_FLOOR_NS = 500.0
_CERTAIN = 3.0  # standard errors between a drift and that of the median machine
_HELD_SIGMA = 1.0  # ns per second, of drifts that are held
_NO_DRIFT = 1e6  # ns per s: 1,000 ppm, ten times that of any clock
_LEAST_PART = 1e-9  # of the largest singular value, below which a combination of clocks is unknown
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
    sigma = np.full(machines, DRIFT_SIGMA)
    free, variances = _fit(observed, start[kept], machine, sigma)
    drift_error = np.sqrt(np.maximum(variances.drift, 0.0))
    free_drift = free[clocks:]
    typical = np.sort(free_drift)[(machines - 1) // 2]
    is_held = ~(np.abs(free_drift - typical) > _CERTAIN * drift_error)
    theta = free
    if is_held.sum() > 1 and len(time):  # the median machine alone is held by the others
        held_sigma = np.where(is_held, _HELD_SIGMA, sigma)
        theta, _ = _fit(observed, start[kept], machine, held_sigma, has_zero_mean=False)
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


def _weigh(
    observed: Observations, correction: Floats, weights: Floats, total: Floats
) -> tuple[Floats, float]:
    """Return the Cauchy weights of observations by their distance from the mean of their operation.

    Also the scale of these.

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


def _fit(
    observed: Observations,
    start: Floats,
    machine: Int64s,
    drift_sigma: Floats,
    *,
    has_zero_mean: bool = True,
) -> tuple[Floats, Variances]:
    """Fit offsets of all clocks, then drifts of all machines; return them and their variances.

    Drifts have a normal distribution about 0, with a standard deviation for each machine; their mean is held
    at 0 on request, and only then variances are known.
    """
    clocks, machines = len(machine), len(drift_sigma)
    theta, unknown = np.zeros(clocks + machines), np.full(clocks, np.inf)
    variances = Variances(offset=unknown, shared=unknown, drift=np.full(machines, np.inf))
    if not len(observed.y):
        return theta, variances
    layout = build_layout(observed, machine, machines)
    counts = np.bincount(observed.clock, minlength=clocks)
    begin = np.bincount(observed.clock, start, clocks) / np.maximum(counts, 1)
    theta[:clocks] = begin
    correction, drift_of = start, clocks + machine[observed.clock]
    weights, solver = 1 / observed.noise**2, Solver()
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
    if has_zero_mean:
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

"""Observations of a fit of many clocks, and the order of its unknowns in blocks."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from nsys_pp.alignment.causality import find_groups
from nsys_pp.alignment.sparse import cut_blocks
from nsys_pp.arrays.columns import list_distinct
from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Floats, Int64s

_BLOCK = 256  # unknowns


class Observations(Struct, frozen=True, kw_only=True):
    """Observations of a fit: seconds since its center, ends in ns, clock, operation and relative noise of each.

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
    """Order the unknowns so that clocks that share operations are close: machine after machine, by the distance from a first one."""
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
    """Return the rank of each machine: by steps from one that is far from others, through shared operations."""
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

"""Normal equations from pairs of members, compared with their definition: a dense row of each operation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.alignment import pair_equations
from nsys_pp.alignment.layout import Observations
from nsys_pp.alignment.pair_equations import PairEquations
from nsys_pp.arrays.types import Floats, Int64s


def define(
    observed: Observations, machine: Int64s, weights: Floats, machines: int
) -> tuple[Floats, Floats, Floats]:
    """Build the equations by a row of all unknowns for each operation: matrix, right side, and the largest terms of the latter."""
    clocks, size = len(machine), len(machine) + machines
    unknowns = np.zeros((len(observed.y), size))  # of each observation
    unknowns[np.arange(len(observed.y)), observed.clock] = 1.0
    unknowns[np.arange(len(observed.y)), clocks + machine[observed.clock]] = observed.x
    matrix: Any = (unknowns * weights[:, np.newaxis]).T @ unknowns
    right: Any = unknowns.T @ (weights * observed.y)
    for number in range(int(observed.operation.max()) + 1):
        is_member = observed.operation == number
        w = weights[is_member]
        sums = w @ unknowns[is_member]
        matrix -= np.outer(sums, sums) / w.sum()
        right -= sums * (w @ observed.y[is_member]) / w.sum()
    return matrix, -right, np.abs(unknowns).T @ np.abs(weights * observed.y)


@given(
    st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 8), st.integers(1, 60),
    st.sampled_from([0, 8, 100, 1 << 20]), st.sampled_from([1, 50, 1 << 18]),
)  # fmt: skip
def test_equations_are_those_of_a_row_per_operation(
    seed: int, clocks: int, machines: int, operations: int, pairs: int, rows: int
) -> None:
    """Operations have up to twice as many members as clocks, so that a clock is in one twice; their rows are in any order."""
    random = np.random.default_rng(seed)
    counts = random.integers(1, 2 * clocks + 1, operations)
    counts[random.random(operations) < 0.5] = 2
    operation = random.permutation(np.repeat(np.arange(operations), counts))
    count = len(operation)
    observed = Observations(
        x=random.uniform(-5.0, 5.0, count),
        y=random.uniform(0.0, 1e9, count),
        clock=random.integers(0, clocks, count),
        operation=operation,
        noise=np.ones(count),
    )
    machine = random.integers(0, machines, clocks)
    weights = random.uniform(1e-6, 1.0, count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_equations, "_PAIRS", pairs)
        patch.setattr(pair_equations, "_ROWS", rows)
        equations = PairEquations(observed, machine, machines)
        for scale in (1.0, 3.0):  # one layout serves any weights
            matrix, right, total = equations.build(scale * weights)
            expected, expected_right, largest = define(observed, machine, scale * weights, machines)
            np.testing.assert_allclose(
                matrix, expected, rtol=0, atol=1e-12 * max(np.abs(expected).max(), 25.0 * count)
            )
            np.testing.assert_array_less(
                np.abs(right - expected_right), 1e-12 * (largest + largest.max()) + 1e-9
            )
            assert total.tolist() == np.bincount(observed.operation, scale * weights).tolist()


def test_operations_with_few_and_with_many_members_are_both_there() -> None:
    """The property above reaches both ways to add an operation."""
    operation = np.repeat(np.arange(2), [2, 30])
    observed = Observations(
        x=np.linspace(-1.0, 1.0, 32), y=np.linspace(0.0, 1e6, 32), clock=np.arange(32) % 30, operation=operation, noise=np.ones(32)
    )  # fmt: skip
    equations = PairEquations(observed, np.arange(30), 30)
    assert (len(equations._products), len(equations._large)) == (4, 1)

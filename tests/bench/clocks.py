"""Alignment of many clocks that share operations, as those of a large run."""

from __future__ import annotations

import numpy as np

from nsys_pp.alignment.fit import Fit, fit_clocks

_GROUP = 8  # clocks of an operation


_ROUNDS = 40


_GPUS = 8  # clocks of a machine


_SKEW_NS = 2_000.0


def fit_many(count: int) -> Fit:
    """Fit clocks that share operations in groups of eight, half of them with the same others and half with new ones."""
    random = np.random.Generator(np.random.PCG64(1))
    order = [np.arange(count) if number % 2 else random.permutation(count) for number in range(_ROUNDS)]
    clock = np.concatenate(order)
    instance = np.concatenate([number * count + np.arange(count) // _GROUP for number in range(_ROUNDS)])
    offset_ns = random.normal(0, 1e6, count)
    time = instance // count * 1e8 + offset_ns[clock] + random.normal(0, _SKEW_NS, len(clock))
    instance = np.unique(instance, return_inverse=True)[1]
    return fit_clocks(time, clock, instance, np.ones(len(time)), np.arange(count) // _GPUS, -offset_ns[clock])

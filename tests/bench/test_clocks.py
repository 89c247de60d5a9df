"""Alignment of many clocks that share operations, as those of a large run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fixtures import simulate
from nsys_pp.alignment.fit import Fit, fit_clocks
from tests.alignment.cluster import align_folder

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
    machine = np.arange(count) // _GPUS
    return fit_clocks(time, clock, instance, np.ones(len(time)), machine, -offset_ns[clock])


pytestmark = pytest.mark.bench


CLOCKS = "--offsets-ms 1000 --drift-ppm random:100 --utc-error-us 100 --window-ms 20 --skew-us 5"


RUNS = {
    "2 machines": "--pp 2 --dp 2 --machines 2",
    "8 machines, dp": "--pp 1 --dp 16 --machines 8",
    "8 machines, pp x tp x dp": "--pp 4 --tp 2 --dp 4 --machines 8",
    "8 machines, one report each": "--pp 4 --tp 2 --dp 4 --machines 8 --per machine",
    "8 machines, buffered messages": "--pp 4 --dp 4 --machines 8 --buffered-bytes 100000000",
    "32 machines": "--pp 8 --dp 8 --machines 32",
    "128 machines": "--pp 8 --dp 16 --machines 128",
}


def test_alignment(tmp_path: Path) -> None:
    print(
        f"\n{'run':32}{'reports':>8}{'median':>10}{'99 %':>10}{'largest':>10}{'bound':>10}{'held':>8}{'backwards':>10}{'align':>8}"
    )
    for name, options in RUNS.items():
        folder = tmp_path / name.replace(" ", "-")
        common = "--steps 5 --layers 1 --micro-batches 8 --brief-truth"
        simulate.main([str(folder), *options.split(), *CLOCKS.split(), *common.split()])
        result = align_folder(folder)
        held = float((result.errors_ns <= result.bounds_ns).mean())
        print(
            f"{name:32}{len(result.errors_ns):>8}"
            f"{np.median(result.errors_ns) / 1e3:>8.2f}us{np.quantile(result.errors_ns, 0.99) / 1e3:>8.2f}us"
            f"{result.errors_ns.max() / 1e3:>8.2f}us{np.median(result.bounds_ns) / 1e3:>8.2f}us{held:>8.1%}"
            f"{result.backwards:>5}/{result.messages}{result.seconds:>7.2f}s"
        )

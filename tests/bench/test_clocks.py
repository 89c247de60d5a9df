"""How well clocks are aligned: a table for 2 to 128 simulated machines. `pytest -m bench -s tests/bench/test_clocks.py`.

Clocks are up to a second off and drift up to 100 ppm, every session reads UTC 100 us wrong, ends of one
collective differ by some microseconds, now and then by milliseconds. Reports are simulated and read as
real ones are.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fixtures import simulate
from tests.alignment.cluster import align_folder

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

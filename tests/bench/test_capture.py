"""What marking a job costs: without a profiler, and recorded by the real nsys."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.bench

CODE = """
import sys
from time import perf_counter
from nsys_pp import capture

class Nothing:
    def __enter__(self): pass
    def __exit__(self, *error): pass

def cost_us(make, count=100_000):
    began = perf_counter()
    for number in range(count):
        with make(number):
            pass
    return (perf_counter() - began) / count * 1e6

nothing = Nothing()
empty = min(cost_us(lambda number: nothing) for _ in range(5))
job = min(cost_us(lambda number: capture.job("forward", number)) for _ in range(5))
print(f"cost: profiled={capture.IS_PROFILED} empty={empty:.2f} us job={job:.2f} us")
"""


def test_marking_a_job(nsys: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("nvtx", reason="no nvtx: install nvtx==0.2.11")
    options = ["-t", "nvtx", "--sample=none", "--cpuctxsw=none", "-o", "run", "-f", "true"]
    told = []
    for before in ([], [nsys, "profile", *options]):
        done = subprocess.run(
            [*before, sys.executable, "-c", CODE],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
            check=True,
        )
        told += [line for line in done.stdout.splitlines() if line.startswith("cost:")]
    assert ["profiled=False" in told[0], "profiled=True" in told[1]] == [True, True]
    with capsys.disabled():
        print("", *told, sep="\n")

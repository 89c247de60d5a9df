"""What the analysis of a training adds to `merge`: `pytest -m bench -s tests/bench/test_training.py`.

Without the analysis means that `describe_training` finds nothing in any report, so that the run has nothing to
put together, and no rows to draw. What both share stays: reading, the links of operations to what caused
them (clocks need those), projection, drawing, writing. Both run in turn in this process, so that the
ratio holds on a noisy machine. `NSYS_PP_BENCH_FULL=1` takes 64 ranks and 1.2 million kernels.
"""

from __future__ import annotations

import os
import time
from importlib import import_module
from pathlib import Path
from statistics import median

import pytest

from fixtures import simulate
from nsys_pp.commands.merge import merge
from nsys_pp.frames.training import REPORT_FRAMES
from nsys_pp.run.report_training import ReportTraining

pytestmark = pytest.mark.bench

IS_FULL = bool(os.environ.get("NSYS_PP_BENCH_FULL"))
RUN = "--pp 8 --dp 8 --machines 8 --micro-batches 64 --steps 10" if IS_FULL else (
    "--pp 4 --dp 4 --machines 2 --micro-batches 32 --steps 4"
)  # fmt: skip
ROUNDS = 3 if IS_FULL else 7


def find_nothing(*_: object, **__: object) -> ReportTraining:
    return ReportTraining(
        preset="", unmatched=(), frames={name: schema.to_frame() for name, schema in REPORT_FRAMES.items()}
    )


def time_merge(folder: Path, output: Path) -> tuple[float, float]:
    """Merge once; returns wall and processor seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    merge([folder], output, force=True)
    return time.perf_counter() - wall, time.process_time() - cpu


def test_analysis(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    simulate.main([str(folder), *RUN.split(), "--layers", "1", "--no-truth"])
    without, whole = [], []
    for _ in range(1 + ROUNDS):
        with monkeypatch.context() as patch:
            patch.setattr(import_module("nsys_pp.run.report"), "describe_training", find_nothing)
            without.append(time_merge(folder, tmp_path / "without.pftrace"))
        whole.append(time_merge(folder, tmp_path / "whole.pftrace"))
    assert (tmp_path / "without.pftrace").stat().st_size < (tmp_path / "whole.pftrace").stat().st_size
    with capsys.disabled():
        print(f"\n{RUN}\n{'':8}{'without s':>11}{'with s':>9}{'added':>8}")
        for name, place in (("wall", 0), ("cpu", 1)):
            pairs = [(a[place], b[place]) for a, b in zip(without[1:], whole[1:], strict=True)]
            before, after = (median(side) for side in zip(*pairs, strict=True))
            print(f"{name:8}{before:11.2f}{after:9.2f}{median(b / a for a, b in pairs) - 1:8.0%}")

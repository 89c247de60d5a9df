"""Figures, not tests: `pytest -m bench -s tests/bench`. They fail on no machine, however slow.

Times are medians of several runs in turn with the floor, so that ratios hold on a noisy machine.
The floor is SQLite's command line summing the columns that the command needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import TypeVar

import pytest

from fixtures.recording.bulk import write_bulk_report
from nsys_pp.frames.part import PartOptions
from nsys_pp.frames.raw import Group
from nsys_pp.model import build_report
from nsys_pp.output.perfetto.trace import encode_drawing
from nsys_pp.read import read_report
from nsys_pp.run.report import draw, project
from nsys_pp.units import BYTES_PER_MIB
from tests.bench import measure

T = TypeVar("T")

pytestmark = pytest.mark.bench

SIZES = (250_000, 500_000, 1_000_000)
ROUNDS = 5
PROJECT: frozenset[Group] = frozenset({"ranges", "ops"})
KERNELS: frozenset[Group] = frozenset({"ranges", "ops", "details"})


@pytest.fixture(scope="module", params=SIZES, ids=lambda size: f"{size:,} kernels")
def bulk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated report of as many kernels as ranges."""
    folder = tmp_path_factory.mktemp("bulk")
    return write_bulk_report(folder / "bulk.sqlite", kernels=request.param, ranges=request.param)


def test_whole_commands(bulk: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    commands: dict[str, tuple[frozenset[Group], tuple[str | Path, ...]]] = {
        "project -o x.parquet": (PROJECT, ("project", bulk, "-o", tmp_path / "x.parquet", "--force")),
        "merge --detail ranges": (
            PROJECT,
            ("merge", bulk, "-o", tmp_path / "r.pftrace", "--detail", "ranges", "--force"),
        ),
        "merge --detail kernels": (KERNELS, ("merge", bulk, "-o", tmp_path / "k.pftrace", "--force")),
    }
    lines = [f"{'command':26}{'floor s':>9}{'wall s':>9}{'ratio':>8}{'cpu s':>8}{'peak MiB':>10}"]
    for name, (need, words) in commands.items():
        measure.scan(bulk, need)
        pairs = [(measure.scan(bulk, need), measure.nsys_pp(*words)) for _ in range(ROUNDS)]
        floor, wall = median(f.wall_s for f, _ in pairs), median(r.wall_s for _, r in pairs)
        ratio = median(r.wall_s / f.wall_s for f, r in pairs)
        cpu = median(r.cpu_s for _, r in pairs)
        peak = measure.measure_peak_bytes(*words) / BYTES_PER_MIB
        lines.append(f"{name:26}{floor:9.2f}{wall:9.2f}{ratio:8.2f}{cpu:8.2f}{peak:10.0f}")
    _show(capsys, bulk, lines)


def test_stages(bulk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    floor = median(measure.scan(bulk, KERNELS).wall_s for _ in range(ROUNDS))
    lines = [f"{'stage':26}{'wall s':>9}{'of floor':>10}", f"{'floor':26}{floor:9.2f}{1:10.2f}"]

    def lap(name: str, work: Callable[[], T]) -> T:
        began = time.perf_counter()
        result = work()
        took = time.perf_counter() - began
        lines.append(f"{name:26}{took:9.2f}{took / floor:10.2f}")
        return result

    options = PartOptions()
    raw = lap("read", lambda: read_report(bulk, need=KERNELS))
    report = lap("model", lambda: build_report(raw))
    projections = lap("project", lambda: project(report, options))
    drawing = lap("draw", lambda: draw(report, projections, options))
    lap("encode and compress", lambda: encode_drawing(drawing, BytesIO()))
    _show(capsys, bulk, lines)


def _show(capsys: pytest.CaptureFixture[str], bulk: Path, lines: list[str]) -> None:
    with capsys.disabled():
        print(f"\n{bulk.stat().st_size / BYTES_PER_MIB:.0f} MiB of SQLite")
        print("\n".join(lines))

"""How fast charts are: `pytest -m bench -s tests/bench/test_chart.py`; the browser has no GPU."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from nsys_pp.output.chart import CHARTS
from tests.importer.parts import PartMissingError
from tests.output.large_training import make_large_training
from tests.ui.chart import FRAMES, visit

pytestmark = pytest.mark.bench


def test_charts(tmp_path: Path) -> None:
    for lanes, steps in [(16, 10), (64, 10), (80, 10), (128, 10)]:
        training = make_large_training(lanes=lanes, steps=steps)
        print(
            f"\n{lanes} lanes x {steps} steps: {training.jobs.height:,} jobs, {training.transfers.height:,} arrows"
        )
        for name, write in CHARTS.items():
            begin = time.perf_counter()
            write(training, tmp_path / f"chart.{name}", title="bench")
            size = (tmp_path / f"chart.{name}").stat().st_size
            print(f"  {name}: {time.perf_counter() - begin:.2f} s, {size / 1e6:.1f} MB")
        try:
            found = visit(tmp_path / "chart.html", [["evaluate", FRAMES]])
        except PartMissingError as error:
            pytest.skip(str(error))
        print(f"  load {found.load_ms} ms")
        for what, times in found.values[0].items():
            print(
                f"  {what:10} frame: median {times[20]:.0f} ms, 95 % {times[37]:.0f} ms, most {times[-1]:.0f} ms"
            )

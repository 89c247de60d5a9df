"""Progress of writing: each report once, with the share of rows before it, and the same bytes."""

from __future__ import annotations

from pathlib import Path

import nsys_pp
from nsys_pp.run.options import Share

ROOT = Path(__file__).resolve().parents[2]


def test_writing_reports_each_report_with_the_rows_before_it(tmp_path: Path) -> None:
    calls: list[tuple[str, float]] = []
    silent = nsys_pp.merge(ROOT / "fixtures" / "pipeline", output=tmp_path / "silent.pftrace")
    loud = nsys_pp.merge(
        ROOT / "fixtures" / "pipeline",
        output=tmp_path / "run.pftrace",
        progress=lambda activity, share: calls.append((activity, share)),
    )
    writing = [share for activity, share in calls if activity == "writing run.pftrace"]
    assert all(isinstance(share, Share) and share.doing == "writing" for share in writing)
    assert [share.done for share in writing if isinstance(share, Share)] == list(range(len(writing)))
    assert len(writing) >= loud.reports
    assert writing[0] == 0.0
    assert writing == sorted(writing)
    assert 0.0 < writing[-1] < 1.0
    assert silent.output.read_bytes() == loud.output.read_bytes()


def test_a_divided_run_counts_the_reports_of_all_traces(tmp_path: Path) -> None:
    calls: list[tuple[str, float]] = []
    nsys_pp.merge(
        ROOT / "fixtures" / "pipeline",
        output=tmp_path / "run.pftrace",
        split="machine",
        progress=lambda activity, share: calls.append((activity, share)),
    )
    writing = [share for activity, share in calls if activity == "writing run.traces"]
    totals = {share.total for share in writing if isinstance(share, Share)}
    assert len(totals) == 1
    assert totals.pop() >= len(writing) > 8  # four reports in the overview and once in the folder

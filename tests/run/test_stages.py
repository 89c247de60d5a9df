"""Progress inside one report ascends, and names the work."""

from __future__ import annotations

from pathlib import Path

import pytest

import nsys_pp
from fixtures.recording.bulk import write_bulk_report
from nsys_pp.run.options import Share
from nsys_pp.stages import enter_stage, follow_stages, report_stage


def test_a_report_says_how_far_it_is(tmp_path: Path) -> None:
    report = write_bulk_report(tmp_path / "big.sqlite", kernels=40_000, ranges=40_000)
    calls: list[tuple[str, float]] = []
    nsys_pp.merge(report, tmp_path / "x.pftrace", progress=lambda work, share: calls.append((work, share)))
    drawing, writing = (
        [float(share) for _, share in calls if isinstance(share, Share) and share.doing == phase]
        for phase in ("drawing", "writing")
    )
    for shares in (drawing, writing):
        assert shares == sorted(shares)
        assert shares[-1] <= 1
    assert len(set(drawing)) > 5
    works = [work for work, share in calls if isinstance(share, Share) and share.doing == "drawing"]
    for part in ("projecting", "finding jobs", "encoded 32,768 of"):
        assert any(work.startswith(f"drawing big.sqlite: {part}") for work in works), part


def test_shares_are_those_of_the_stage() -> None:
    calls: list[tuple[str, float]] = []
    report_stage("before", 0.5)
    with follow_stages(lambda work, share: calls.append((work, share))):
        report_stage("whole", 0.5)
        enter_stage("reading", 0.2, 0.4)
        report_stage("half of it", 0.5)
    enter_stage("after", 0, 1)
    assert calls == [("whole", 0.5), ("reading", 0.2), ("half of it", pytest.approx(0.3))]

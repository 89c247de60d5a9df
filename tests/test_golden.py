"""What is found in the shared reports is what was looked at and found sensible: see tests/golden.py."""

from __future__ import annotations

from pathlib import Path

from tests.golden import FOLDER, golden_path, print_report


def test_every_shared_report_is_told_as_its_golden_text_has_it(shared_reports: list[Path]) -> None:
    assert {golden_path(report) for report in shared_reports} == {*FOLDER.glob("*.txt")}
    for report in shared_reports:
        assert print_report(report) == golden_path(report).read_text(), report.name

"""Copies of reports have no more readers than the reports."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from tests.cli.calls import call

PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline" / "node2"


def test_copies_of_steptask_keep_private_reports_private(tmp_path: Path) -> None:
    modes = {"rank0": 0o600, "rank1": 0o644}
    reports = []
    for name, mode in modes.items():
        reports.append(Path(shutil.copy(PIPELINE / f"{name}.sqlite", tmp_path)))
        reports[-1].chmod(mode)
    before = os.umask(0o022)
    try:
        assert call("pipeline", *reports, "--steptask", tmp_path / "copies").code == 0
    finally:
        os.umask(before)
    for name, mode in modes.items():
        copy = tmp_path / "copies" / f"{name}.steptask.db"
        assert stat.S_IMODE(copy.stat().st_mode) == mode

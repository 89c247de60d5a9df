"""Many reports, of which every kind of broken one is skipped; inputs and outputs that vanish meanwhile."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import nsys_pp
from nsys_pp.errors import NsysPPError
from tests.breaks import BREAKS
from tests.cli.calls import call
from tests.load.draw import draw_run
from tests.load.ways import check_skipped, merge_folder

PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"


def test_every_broken_report_is_skipped_and_named(tmp_path: Path) -> None:
    words = draw_run(tmp_path / "run", count=24, broken=len(BREAKS) - 2, seed=5)
    merged = [
        merge_folder(tmp_path / "run", tmp_path / f"{processes}.pftrace", "--processes", processes)
        for processes in ("1", "2")
    ]
    for one in merged:
        check_skipped(one, words)
    for report in words:
        report.unlink()
    assert call("merge", tmp_path / "run", "-o", tmp_path / "whole.pftrace").code == 0
    expected = (tmp_path / "whole.pftrace").read_bytes()
    assert [one.trace.read_bytes() == expected for one in merged] == [True, True]


@pytest.mark.filterwarnings("ignore:of 4 ranks")
@pytest.mark.parametrize("after", range(0, 12, 3))
@pytest.mark.parametrize("keep_going", [False, True])
def test_a_folder_that_vanishes(after: int, keep_going: bool, tmp_path: Path) -> None:
    shutil.copytree(PIPELINE, tmp_path / "run")
    (tmp_path / "out").mkdir()
    output, calls = tmp_path / "out" / "run.pftrace", 0

    def vanish(_: str, __: float) -> None:
        nonlocal calls
        if calls == after:
            shutil.rmtree(tmp_path / "run" / "node2")
        calls += 1

    result: nsys_pp.MergeResult | NsysPPError
    try:
        result = nsys_pp.merge(tmp_path / "run", output, keep_going=keep_going, progress=vanish)
    except NsysPPError as error:
        result = error
    assert calls > after
    if isinstance(result, NsysPPError):
        assert not keep_going
        assert f"`{tmp_path / 'run' / 'node2'}" in str(result)
        assert os.listdir(output.parent) == []
    else:
        gone = {path for path, _ in result.skipped}
        assert all(path.parent.name == "node2" for path in gone)
        assert os.listdir(output.parent) == [output.name]
        assert not gone or keep_going

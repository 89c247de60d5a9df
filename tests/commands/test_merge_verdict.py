"""The verdict of a merge is that of the run: reports are not read for tables, and still nothing is missing that findings depend on."""

from __future__ import annotations

from pathlib import Path

import pytest

import nsys_pp
from fixtures import simulate
from fixtures.serving.reports import write_reports
from fixtures.serving.simulate import draw_serving, serve
from nsys_pp.frames.verdict import Verdict
from nsys_pp.options import Detail

RUNS = {
    "a stage with more kernels": "--pp 4 --dp 1",
    "a slow rank, in all families": "--pp 2 --dp 2 --slow-rank 1=1.3",
    "a slow rank, in whole graphs": "--pp 2 --dp 2 --slow-rank 1=1.3 --graphs graph --schema 3.25.0",
}


def merge(folder: Path, inputs: Path, detail: Detail) -> Verdict:
    return nsys_pp.merge(inputs, folder / "run.pftrace", detail=detail, force=True).verdict


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("detail", ["jobs", "kernels"])
def test_slow_ranks_and_stages_are_those_of_a_pipeline(run: str, detail: Detail, tmp_path: Path) -> None:
    """Their gain and confidence depend on kernels: more of them, or whole graphs, which may hold waits."""
    options = f"{RUNS[run]} --steps 4 --micro-batches 3 --layers 1 --no-truth"
    simulate.main([str(tmp_path / "run"), *options.split()])
    expected = nsys_pp.pipeline(tmp_path / "run").verdict
    assert "straggler" in {finding.kind for finding in expected.findings}
    assert merge(tmp_path, tmp_path / "run", detail) == expected


def test_waits_of_a_server_are_no_work_of_its_host(tmp_path: Path) -> None:
    """They are in calls of the operating system, which a trace does not show."""
    serving = draw_serving(18_600_007, engine="sglang-spans")
    write_reports(tmp_path / "run", serving, serve(serving, 18_600_007))
    expected = nsys_pp.pipeline(tmp_path / "run").verdict
    assert "idle" in {finding.kind for finding in expected.findings}
    assert merge(tmp_path, tmp_path / "run", "kernels") == expected

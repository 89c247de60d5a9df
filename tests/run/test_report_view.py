"""Reports beside each other: what tells them apart, and what they do not blend."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import nsys_pp
from fixtures.recording.export import Session, write_report
from nsys_pp.cli import main
from nsys_pp.errors import MissingDataError, OutputError
from tests.importer.importer import Importer
from tests.importer.readback import read_tracks

FIXTURES = Path(__file__).parent.parent.parent / "fixtures" / "pipeline"
KERNELS: dict[str, Any] = {
    "ranges": [{"name": "step", "start": 0, "end": 100}],
    "api_calls": [{"start": 10, "end": 20}],
    "kernels": [{"start": 30, "end": 50, "correlation": 1}],
}


def write(path: Path, *, pid: int, rank: int | None = None, **more: Any) -> Path:
    """A report of one process and one kernel."""
    frames: dict[str, Any] = {name: [{**row, "pid": pid} for row in rows] for name, rows in KERNELS.items()}
    environment = {} if rank is None else {"RANK": str(rank)}
    return write_report(path, **frames, session=Session(pid=pid, environment=environment), **more)


def rows_of_gpus(importer: Importer, trace: Path) -> set[str]:
    return {path[0] for path in read_tracks(importer, trace)["path"].to_list()}


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([0, 1], {"rank 0", "rank 1"}),
        ([3, 3], {"rank 3"}),
        ([3], {"rank 3"}),
        ([None], {"GPU 0"}),
        ([None, None], {"rank 0", "rank 1"}),
        ([None, 1], {"GPU 0", "rank 1"}),
    ],
)
def test_reports_of_one_gpu_share_its_row_if_they_are_of_one_rank(
    ranks: list[int | None], expected: set[str], tmp_path: Path, importer: Importer
) -> None:
    for number, rank in enumerate(ranks):
        write(tmp_path / f"{'ab'[number]}.sqlite", pid=1000 + number, rank=rank)
    trace = tmp_path / "run.pftrace"
    claimed = [rank for rank in ranks if rank is not None]
    doubted = len(set(claimed)) < len(claimed)
    with pytest.warns(UserWarning, match="claim rank 3") if doubted else nullcontext():
        assert nsys_pp.merge([tmp_path], trace).gpus == len(expected)
    assert rows_of_gpus(importer, trace) == expected


def test_reports_of_one_name_and_machine_get_rows_of_their_own(tmp_path: Path, importer: Importer) -> None:
    for folder, pid in (("a", 1000), ("b", 2000)):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "report1.sqlite", pid=pid, omit={"TARGET_INFO_GPU"})
    trace = tmp_path / "run.pftrace"
    merged = nsys_pp.merge([tmp_path / "a", tmp_path / "b"], trace)
    assert merged.gpus == 2
    assert rows_of_gpus(importer, trace) == {"rank 0", "rank 1"}
    assert nsys_pp.project([tmp_path]).ranges["report"].to_list() == ["a/report1", "b/report1"]


def test_a_row_tells_which_gpu_it_is(tmp_path: Path, importer: Importer) -> None:
    write(tmp_path / "x.sqlite", pid=1000, rank=2)
    nsys_pp.merge([tmp_path], tmp_path / "run.pftrace")
    tracks = read_tracks(importer, tmp_path / "run.pftrace")
    (said,) = tracks["description"].drop_nulls().unique()
    assert said.startswith("shows ranges; node1, GPU 0, NVIDIA H100")
    assert said.endswith(", 0000:1b:00.0, x.sqlite, rank from RANK")


def test_a_report_without_what_is_projected_is_named_and_left_out(tmp_path: Path) -> None:
    shutil.copy(FIXTURES / "node2" / "rank0.sqlite", tmp_path)
    write_report(tmp_path / "cpu_only.sqlite", ranges=KERNELS["ranges"])
    with pytest.warns(UserWarning, match="cpu_only.sqlite` has no GPU operations: it has no rows"):
        frame = nsys_pp.project([tmp_path]).ranges
    assert frame["report"].unique().to_list() == ["rank0"]


def test_nothing_to_project_anywhere_is_an_error(tmp_path: Path) -> None:
    write_report(tmp_path / "cpu_only.sqlite", ranges=KERNELS["ranges"])
    with pytest.raises(MissingDataError, match="has no GPU operations"):
        nsys_pp.project([tmp_path])


def test_an_output_is_never_one_of_the_inputs(tmp_path: Path) -> None:
    report = Path(shutil.copy(FIXTURES / "node2" / "rank0.sqlite", tmp_path))
    before = report.read_bytes()
    with pytest.raises(OutputError, match="it is one of the reports to read"):
        nsys_pp.merge([report], report, force=True)
    done = CliRunner().invoke(main, ["project", str(report), "-o", str(report), "--force"])
    assert done.exit_code == 1
    assert "it is one of the reports to read" in done.stderr
    assert report.read_bytes() == before


def test_reports_of_different_days_are_doubted(tmp_path: Path) -> None:
    for day in (1, 4):
        session = Session(hostname=f"node{day}", utc_epoch_ns=day * 86_400_000_000_000)
        write_report(tmp_path / f"{day}.sqlite", **KERNELS, session=session)
    with pytest.warns(UserWarning, match="2 days before|no operation is shared") as caught:
        nsys_pp.merge([tmp_path], tmp_path / "run.pftrace")
    doubt, unrelated = (str(one.message) for one in caught)
    assert "2 days before" in doubt
    assert "are they of one run" in doubt
    assert "`node1`, `node4`: no operation is shared" in unrelated

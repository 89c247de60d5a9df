"""Reports beside each other: what tells them apart, and what they do not blend."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fixtures.export import Session, write_report
from nsys_pp import api
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


def test_reports_of_one_gpu_share_its_row(tmp_path: Path, importer: Importer) -> None:
    for name in ("first", "second"):
        write_report(tmp_path / f"{name}.sqlite", **KERNELS)
    trace = tmp_path / "run.pftrace"
    assert api.merge([tmp_path], trace).gpus == 1
    gpus = {path[2] for path in read_tracks(importer, trace)["path"].to_list() if len(path) == 3}
    assert gpus == {"GPU 0 · 0000:1B:00.0"}


def test_reports_of_one_name_and_machine_get_rows_of_their_own(tmp_path: Path, importer: Importer) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_report(tmp_path / folder / "report1.sqlite", **KERNELS, omit={"TARGET_INFO_GPU"})
    trace = tmp_path / "run.pftrace"
    merged = api.merge([tmp_path / "a", tmp_path / "b"], trace)
    assert merged.gpus == 2
    gpus = {path[2] for path in read_tracks(importer, trace)["path"].to_list() if len(path) == 3}
    assert gpus == {"GPU 0 · a/report1", "GPU 0 · b/report1"}
    assert api.project([tmp_path])["report"].to_list() == ["a/report1", "b/report1"]


def test_a_report_without_what_is_projected_is_named_and_left_out(tmp_path: Path) -> None:
    shutil.copy(FIXTURES / "node2" / "rank0.sqlite", tmp_path)
    write_report(tmp_path / "cpu_only.sqlite", ranges=KERNELS["ranges"])
    with pytest.warns(UserWarning, match="cpu_only.sqlite` has no GPU operations: it has no rows"):
        frame = api.project([tmp_path])
    assert frame["report"].unique().to_list() == ["rank0"]


def test_nothing_to_project_anywhere_is_an_error(tmp_path: Path) -> None:
    write_report(tmp_path / "cpu_only.sqlite", ranges=KERNELS["ranges"])
    with pytest.raises(MissingDataError, match="has no GPU operations"):
        api.project([tmp_path])


def test_an_output_is_never_one_of_the_inputs(tmp_path: Path) -> None:
    report = Path(shutil.copy(FIXTURES / "node2" / "rank0.sqlite", tmp_path))
    before = report.read_bytes()
    with pytest.raises(OutputError, match="it is one of the reports to read"):
        api.merge([report], report, force=True)
    done = CliRunner().invoke(main, ["project", str(report), "-o", str(report), "--force"])
    assert done.exit_code == 1
    assert "it is one of the reports to read" in done.stderr
    assert report.read_bytes() == before


def test_reports_of_different_days_are_doubted(tmp_path: Path) -> None:
    for day in (1, 4):
        session = Session(hostname=f"node{day}", utc_epoch_ns=day * 86_400_000_000_000)
        write_report(tmp_path / f"{day}.sqlite", **KERNELS, session=session)
    with pytest.warns(UserWarning, match="recorded up to 3 days apart"):
        api.merge([tmp_path], tmp_path / "run.pftrace")

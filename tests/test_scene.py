"""Reports beside each other: what tells them apart, and what they do not blend."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from fixtures.export import write_report
from nsys_pp import api
from nsys_pp.errors import MissingDataError
from tests.importer.importer import Importer
from tests.importer.readback import read_tracks

FIXTURES = Path(__file__).parent.parent / "fixtures" / "pipeline"
KERNELS: dict[str, Any] = {
    "ranges": [{"name": "step", "start": 0, "end": 100}],
    "api_calls": [{"start": 10, "end": 20}],
    "kernels": [{"start": 30, "end": 50, "correlation": 1}],
}


def test_reports_of_one_name_and_machine_get_rows_of_their_own(tmp_path: Path, importer: Importer) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_report(tmp_path / folder / "report1.sqlite", **KERNELS)
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

"""Parts of reports without GPU operations: the trace of parts is that of their reports."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import nsys_pp
from nsys_pp.errors import MissingDataError
from tests.read.tables import Row, call, op, push_pop
from tests.trace.test_shown import write_without_gpus

EPOCH = 1_700_000_000_000_000_000
PROCESS = (1 << 48) | (1 << 24)
ON_GPU: dict[str, list[Row]] = {
    "CUPTI_ACTIVITY_KIND_RUNTIME": [call(100, 200, 1, globalTid=PROCESS + 1)],
    "CUPTI_ACTIVITY_KIND_KERNEL": [op(300, 900, 1, shortName=2, demangledName=2, globalPid=PROCESS)],
}
LAUNCHER = {"NVTX_EVENTS": [push_pop(300, 900, text="load", globalTid=(1 << 48) | (2 << 24) | 2)]}


@pytest.fixture
def reports(tmp_path: Path) -> list[Path]:
    """A report with a kernel, and two without: of a launcher with a range, and of a process with calls of MPI alone."""
    return [
        write_without_gpus(tmp_path / "gpu.sqlite", pid=1, epoch_ns=EPOCH + 5000, more=ON_GPU),
        write_without_gpus(tmp_path / "launcher.sqlite", pid=2, epoch_ns=EPOCH, more=LAUNCHER),
        write_without_gpus(tmp_path / "mpi.sqlite", pid=3, epoch_ns=EPOCH),
    ]


def merge(inputs: list[Path], folder: Path) -> bytes:
    folder.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nsys_pp.merge(inputs, folder / "run.pftrace")
    return (folder / "run.pftrace").read_bytes()


def test_the_trace_of_parts_is_that_of_their_reports(reports: list[Path], tmp_path: Path) -> None:
    output = tmp_path / "parts"
    with pytest.warns(
        UserWarning, match=r"2 reports \(`.*launcher.sqlite` and others\) have no GPU oper"
    ) as notes:
        done = nsys_pp.extract(reports, output)
    assert len(notes) == 1
    assert [part.slices for part in done.parts] == [1, 41, 40]
    expected = merge(reports, tmp_path / "reports")
    assert merge([part.output for part in done.parts], tmp_path / "of_parts") == expected
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = nsys_pp.extract(reports, output)
    assert not any(part.is_new for part in again.parts)


def test_a_report_is_drawn_among_parts_as_among_reports(reports: list[Path], tmp_path: Path) -> None:
    part = nsys_pp.extract(reports[0], tmp_path / "gpu.nspart").parts[0].output
    with pytest.warns(
        UserWarning, match="2 reports .* have no GPU operations: their CPU ranges, and calls of"
    ):
        nsys_pp.merge([part, *reports[1:]], tmp_path / "mixed.pftrace")
    (tmp_path / "mixed.pftrace").rename(tmp_path / "run.pftrace")
    assert merge(reports, tmp_path / "all") == merge([part, *reports[1:]], tmp_path / "mixed")


def test_content_that_was_chosen_is_not_changed(reports: list[Path], tmp_path: Path) -> None:
    for chosen in ({"detail": "kernels"}, {"detail": "jobs"}, {"show": "samples"}):
        with pytest.raises(MissingDataError, match=r"launcher.sqlite` has nothing to draw"):
            nsys_pp.extract(reports[1], tmp_path / "x.nspart", **chosen)  # type: ignore[arg-type]
    assert not (tmp_path / "x.nspart").exists()

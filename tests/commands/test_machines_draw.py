"""Machines that draw their own traces on clocks of the head node: equal, byte for byte, to those that the head node would write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

import nsys_pp
from nsys_pp.errors import NsysPPError, OptionError, OutputError, ReportError
from tests.cli.calls import assert_refused, call
from tests.commands.test_split import unmarked
from tests.importer import Importer, assert_no_errors

FIXTURES = Path(__file__).parents[2] / "fixtures"
PIPELINE = FIXTURES / "pipeline"
MACHINES = ("node2", "node10")

pytestmark = pytest.mark.usefixtures("reports_read_once")


def two_levels(reports: Path, folder: Path, machines: tuple[str, ...], **asked: Any) -> Path:
    """Extract a group part on each machine, and on the head node the clocks of all; returns the folder."""
    for name in ("nodes", "heads"):
        (folder / name).mkdir()
    for machine in machines:
        node = folder / "nodes" / f"{machine}.nspart"
        nsys_pp.extract(reports / machine, node, **asked)
        nsys_pp.extract(node, folder / "heads" / f"{machine}.nspart", detail="jobs")
    nsys_pp.align(folder / "heads", folder / "run.nsclocks")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parts, their heads and their clocks of two machines; and the traces that a head node writes of all parts."""
    folder = two_levels(PIPELINE, tmp_path_factory.mktemp("run"), MACHINES)
    (folder / "one").mkdir()
    nsys_pp.merge(folder / "nodes", folder / "one" / "run.pftrace", split="machine")
    return folder


def test_each_machine_draws_what_the_head_node_would(run: Path, importer: Importer) -> None:
    for machine in MACHINES:
        said = call(
            "merge",
            run / "nodes" / f"{machine}.nspart",
            "--clocks",
            run / "run.nsclocks",
            "-o",
            run / "run.traces",
        )
        assert said.code == 0, said
        assert f"Wrote {run / 'run.traces' / machine}.pftrace" in said.stderr
        written = (run / "run.traces" / f"{machine}.pftrace").read_bytes()
        assert written == (run / "one" / "run.traces" / f"{machine}.pftrace").read_bytes()
    importer.load(run / "run.traces" / "node2.pftrace")
    assert_no_errors(importer)
    # the head node writes the overview and the page, of the heads alone
    said = call(
        *("merge", run / "heads", "--clocks", run / "run.nsclocks", "--split", "machine"),
        *("-o", run / "run.pftrace"),
    )
    assert said.code == 0, said
    assert "page of 2 traces" in said.stderr
    assert (run / "run.pftrace").read_bytes() == (run / "one" / "run.pftrace").read_bytes()
    page = (run / "run.traces" / "index.html").read_text()
    expected = (run / "one" / "run.traces" / "index.html").read_text()
    cells = [[line for line in text.splitlines() if "<tr>" in line][2:] for text in (page, expected)]
    for own, other in zip(*cells, strict=True):  # as there, but for the number of slices
        assert own.split("<td")[:4] == other.split("<td")[:4]
        assert own.split("<td")[5:] == other.split("<td")[5:]


def test_reports_and_single_parts_are_drawn_alike(run: Path, tmp_path: Path) -> None:
    clocks = run / "run.nsclocks"
    expected = (run / "one" / "run.traces" / "node2.pftrace").read_bytes()
    nsys_pp.merge(PIPELINE / "node2", tmp_path / "a.pftrace", clocks=clocks)
    assert (tmp_path / "a.pftrace").read_bytes() == expected
    backwards = [run / "nodes" / "node2.nspart" / f"rank{rank}.nspart" for rank in (1, 0)]
    nsys_pp.merge(backwards, tmp_path / "b.pftrace", clocks=clocks)
    assert (tmp_path / "b.pftrace").read_bytes() == expected
    nsys_pp.merge(run / "nodes", tmp_path / "c.pftrace", clocks=clocks)
    nsys_pp.merge(run / "nodes", tmp_path / "d.pftrace")
    assert (tmp_path / "c.pftrace").read_bytes() == (tmp_path / "d.pftrace").read_bytes()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "machines", "asked"),
    [
        ("clocks", ("node1", "node2", "node10"), {}),
        ("clocks", ("node1", "node2", "node10"), {"detail": "cpu", "flows": True, "scope": "process"}),
        ("clocks", ("node1", "node2", "node10"), {"show": "mpi,os,memory"}),
        ("pipeline", MACHINES, {"detail": "ranges", "ops": ("kernel", "memcpy")}),
    ],
)
def test_other_runs_and_contents_are_drawn_alike(
    name: str, machines: tuple[str, ...], asked: dict[str, Any], tmp_path: Path
) -> None:
    """Drifting clocks, rows of processes, arrows of MPI."""
    folder = two_levels(FIXTURES / name, tmp_path, machines, **asked)
    nsys_pp.merge(folder / "nodes", folder / "all.pftrace", split="machine")
    for machine in machines:
        nsys_pp.merge(
            folder / "nodes" / f"{machine}.nspart", folder / "run.traces", clocks=folder / "run.nsclocks"
        )
        path = folder / "run.traces" / f"{machine}.pftrace"
        assert path.read_bytes() == (folder / "all.traces" / path.name).read_bytes()


@pytest.mark.filterwarnings("ignore")
def test_a_run_without_jobs_is_drawn_too(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"n{rank // 2}").mkdir(exist_ok=True)
        unmarked(tmp_path / f"n{rank // 2}" / f"r{rank}.sqlite", host=f"n{rank // 2}", rank=rank)
    folder = two_levels(tmp_path, tmp_path, ("n0", "n1"))
    nsys_pp.merge(folder / "nodes", folder / "all.pftrace", split="machine")
    for machine in ("n0", "n1"):
        nsys_pp.merge(
            folder / "nodes" / f"{machine}.nspart", folder / "run.traces", clocks=folder / "run.nsclocks"
        )
        path = folder / "run.traces" / f"{machine}.pftrace"
        assert path.read_bytes() == (folder / "all.traces" / path.name).read_bytes()
    heads = nsys_pp.merge(
        folder / "heads", folder / "run.pftrace", clocks=folder / "run.nsclocks", split="machine"
    )
    assert heads.events > 0  # the load of GPUs


def test_a_missing_report_is_noted(run: Path, tmp_path: Path) -> None:
    said = call(
        *("merge", run / "nodes" / "node2.nspart" / "rank1.nspart", "--clocks", run / "run.nsclocks"),
        *("-o", tmp_path / "run.pftrace"),
    )
    assert said.code == 0
    assert "1 of 2 reports of `node2`" in said.stderr
    missing = call(
        "merge",
        run / "heads",
        "--clocks",
        run / "run.nsclocks",
        "--split",
        "machine",
        "-o",
        tmp_path / "a.pftrace",
    )
    assert "2 of 2 traces are not in" in missing.stderr


def test_clocks_that_do_not_fit_are_refused(run: Path, tmp_path: Path) -> None:
    clocks, trace = run / "run.nsclocks", tmp_path / "run.pftrace"
    other = FIXTURES / "clocks" / "node1" / "rank0.sqlite"
    refused = call("merge", other, "--clocks", clocks, "-o", trace)
    assert_refused(refused, f"`{other}` is not among the 4 reports of `{clocks}`")
    kept = call(
        "merge", other, run / "nodes" / "node2.nspart", "--clocks", clocks, "-o", trace, "--keep-going"
    )
    assert kept.code == 3
    assert trace.read_bytes() == (run / "one" / "run.traces" / "node2.pftrace").read_bytes()
    report = PIPELINE / "node2" / "rank0.sqlite"
    refused = call("merge", report, "--clocks", clocks, "-o", tmp_path / "b.pftrace", "--scope", "process")
    assert_refused(refused, f"the jobs of `{clocks}` with")
    refused = call("merge", report, "--clocks", run / "heads" / "node2.nspart", "-o", tmp_path / "b.pftrace")
    assert_refused(refused, "is damaged, or has no clocks of a run")
    assert_refused(
        call("merge", report, "--clocks", tmp_path / "x", "-o", tmp_path / "b.pftrace"), "No such file"
    )
    cut = tmp_path / "cut.nsclocks"
    cut.write_bytes(clocks.read_bytes()[:-50])
    assert_refused(
        call("merge", report, "--clocks", cut, "-o", tmp_path / "b.pftrace"), f"`{cut}` is damaged"
    )
    assert not (tmp_path / "b.pftrace").exists()


@pytest.mark.parametrize("change", [{"made_by": "9.9"}, {"format": 99}, {"part_format": 3}])
def test_clocks_of_another_version_are_refused(change: dict[str, Any], run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.nsclocks"
    with ZipFile(run / "run.nsclocks") as archive, ZipFile(other, "w", ZIP_DEFLATED) as changed:
        for info in archive.infolist():
            data = archive.read(info)
            if info.filename == "clocks.json":
                data = json.dumps({**json.loads(data), **change}).encode()
            changed.writestr(info.filename, data)
    with pytest.raises(ReportError, match="was made by nsys-pp") as refused:
        nsys_pp.merge(run / "nodes" / "node2.nspart", tmp_path / "run.pftrace", clocks=other)
    assert str(other) in refused.value.message


@pytest.mark.parametrize(
    "asked",
    [
        {"steps": "10:11"},
        {"layout": "pp=4"},
        {"offsets": {"node2": 5}},
        {"infer_jobs": True},
        {"schedule": "1f1b"},
        {"clock": "utc"},
        {"devices": {0}},
        {"start_ns": 5},
        {"split": "rank"},
        {"format": "chrome"},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_options_of_the_whole_run_are_refused(asked: dict[str, Any], run: Path, tmp_path: Path) -> None:
    with pytest.raises((OptionError, NsysPPError), match=r"clocks|Chrome"):
        nsys_pp.merge(
            run / "nodes" / "node2.nspart", tmp_path / "run.pftrace", clocks=run / "run.nsclocks", **asked
        )
    assert not (tmp_path / "run.pftrace").exists()


def test_the_file_of_clocks_is_written_once(run: Path, tmp_path: Path) -> None:
    again = tmp_path / "run.nsclocks"
    told = nsys_pp.align(run / "heads", again)
    assert again.read_bytes() == (run / "run.nsclocks").read_bytes()
    assert told.clocks.equals(nsys_pp.align(run / "heads").clocks)
    with pytest.raises(OutputError, match="exists"):
        nsys_pp.align(run / "heads", again)
    nsys_pp.align(PIPELINE, again, force=True)  # of reports, too
    nsys_pp.merge(PIPELINE / "node2", tmp_path / "a.pftrace", clocks=again)
    assert (tmp_path / "a.pftrace").read_bytes() == (
        run / "one" / "run.traces" / "node2.pftrace"
    ).read_bytes()
    refused = call("align", run / "heads", "-o", tmp_path / "x.json")
    assert refused.code == 2
    assert "ends in .nsclocks" in refused.stderr
    with pytest.raises(OptionError, match="steps"):
        nsys_pp.align(run / "heads", tmp_path / "y.nsclocks", steps="10:11")

"""Reports beside each other: what tells them apart, and what they do not blend."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import nsys_pp
from fixtures.recording.export import Session, write_report
from nsys_pp.errors import OutputError, ReportError
from nsys_pp.frames.roster import ROSTER
from nsys_pp.progress import Share, enter_stage, follow_stages, report_stage
from nsys_pp.run.layout import build_titles
from tests.cli.calls import PIPELINE, RANK0, assert_refused, call
from tests.importer import Importer, read_tracks

KERNELS: dict[str, Any] = {
    "ranges": [{"name": "step", "start": 0, "end": 100}],
    "api_calls": [{"start": 10, "end": 20}],
    "kernels": [{"start": 30, "end": 50, "correlation": 1}],
}


def write(path: Path, *, pid: int, rank: int | None = None, **more: Any) -> Path:
    frames: dict[str, Any] = {name: [{**row, "pid": pid} for row in rows] for name, rows in KERNELS.items()}
    environment = {} if rank is None else {"RANK": str(rank)}
    return write_report(path, **frames, session=Session(pid=pid, environment=environment), **more)


def rows_of_gpus(importer: Importer, trace: Path) -> set[str]:
    return {path[0] for path in read_tracks(importer, trace)["path"].to_list()}


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([0, 1], {"rank 0 · GPU 0", "rank 1 · GPU 0"}),
        ([3], {"rank 3 · GPU 0"}),
        ([None], {"GPU 0"}),
        ([None, None], {"rank 0 · GPU 0", "rank 1 · GPU 0"}),
        ([None, 1], {"GPU 0", "rank 1 · GPU 0"}),
    ],
)
def test_reports_of_one_gpu_share_its_row_if_they_are_of_one_rank(
    ranks: list[int | None], expected: set[str], tmp_path: Path, importer: Importer
) -> None:
    for number, rank in enumerate(ranks):
        write(tmp_path / f"{'ab'[number]}.sqlite", pid=1000 + number, rank=rank)
    trace = tmp_path / "run.pftrace"
    assert nsys_pp.merge([tmp_path], trace).gpus == len(expected)
    assert rows_of_gpus(importer, trace) == expected


def test_reports_of_one_name_and_machine_get_rows_of_their_own(tmp_path: Path, importer: Importer) -> None:
    for folder, pid in (("a", 1000), ("b", 2000)):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "report1.sqlite", pid=pid, omit={"TARGET_INFO_GPU"})
    trace = tmp_path / "run.pftrace"
    assert nsys_pp.merge([tmp_path / "a", tmp_path / "b"], trace).gpus == 2
    assert rows_of_gpus(importer, trace) == {"rank 0 · GPU 0", "rank 1 · GPU 1"}
    assert nsys_pp.project([tmp_path]).ranges["report"].to_list() == ["a/report1", "b/report1"]


def test_a_row_tells_which_gpu_it_is(tmp_path: Path, importer: Importer) -> None:
    write(tmp_path / "x.sqlite", pid=1000, rank=2)
    nsys_pp.merge([tmp_path], tmp_path / "run.pftrace")
    tracks = read_tracks(importer, tmp_path / "run.pftrace")
    below, said = tracks["description"].drop_nulls().unique().sort()
    assert f"{below}|{said}".startswith("rank 2 · GPU 0|shows ranges; node1, GPU 0, NVIDIA H100")
    assert said.endswith(", 0000:1b:00.0, x.sqlite, rank from RANK")


def test_a_report_without_what_is_projected_is_named_and_left_out(tmp_path: Path) -> None:
    shutil.copy(RANK0, tmp_path)
    write_report(tmp_path / "cpu_only.sqlite", ranges=KERNELS["ranges"])
    with pytest.warns(UserWarning, match="cpu_only.sqlite` has no GPU operations: it has no rows"):
        frame = nsys_pp.project([tmp_path]).ranges
    assert frame["report"].unique().to_list() == ["rank0"]


def test_an_output_is_never_one_of_the_inputs(tmp_path: Path) -> None:
    report = Path(shutil.copy(RANK0, tmp_path))
    before = report.read_bytes()
    with pytest.raises(OutputError, match="it is one of the reports to read"):
        nsys_pp.merge([report], report, force=True)
    refused = call("project", report, "-o", report, "--force")
    assert_refused(refused, "it is one of the reports to read")
    assert report.read_bytes() == before


def test_reports_of_different_days_are_refused_or_divided(tmp_path: Path) -> None:
    paths = [tmp_path / f"{day}.sqlite" for day in (1, 4, 5)]
    for day, path in zip((1, 4, 4), paths, strict=True):
        session = Session(hostname=f"node{path.stem}", utc_epoch_ns=day * 86_400_000_000_000)
        write_report(path, **KERNELS, session=session)
    trace = tmp_path / "run.pftrace"
    sentence = f"`{paths[0]}` ended 2 days before `{paths[1]}` began: not of one run"
    with pytest.raises(ReportError, match=re.escape(sentence)):
        nsys_pp.merge([tmp_path], trace)
    done = call("merge", tmp_path, "-o", trace, "--keep-going")
    assert done.code == 3
    assert f"skipped {paths[0]}: {sentence}" in done.stderr
    assert "from 2 reports" in done.stderr


def roster(*rows: tuple[int, str, str | None, int | None, int | None]) -> pl.DataFrame:
    """Rows of report, machine, GPU, rank and stage."""
    machines = sorted({machine for _, machine, *_ in rows})
    filled = [
        {
            "report": report,
            "machine": machine,
            "machine_order": machines.index(machine),
            "gpu": gpu,
            "gpu_number": None if gpu is None else int(gpu.split()[1]),
            "rank": rank,
            "stage": stage,
        }
        for report, machine, gpu, rank, stage in rows
    ]
    return pl.DataFrame(filled, schema=ROSTER)


def texts(found: pl.DataFrame) -> list[str]:
    titles = build_titles(found).values()
    return [title for title, _ in sorted(titles, key=lambda title: title[1])]


_GPU0, _GPU1 = "GPU 0", "GPU 1"


@pytest.mark.parametrize(
    ("rows", "titles"),
    [
        pytest.param(
            [(0, "a", _GPU0, 0, 1), (1, "a", _GPU1, 1, 0), (2, "b", _GPU0, 10, 0), (3, "b", _GPU1, 9, 0)],
            [
                *("rank 1 · stage 0 · a · GPU 1", "rank 9 · stage 0 · b · GPU 1"),
                *("rank 10 · stage 0 · b · GPU 0", "rank 0 · stage 1 · a · GPU 0"),
            ],
            id="in order of stages",
        ),
        pytest.param(
            [(0, "a", _GPU0, None, None), (0, "a", _GPU1, None, None)], [_GPU0, _GPU1], id="no ranks"
        ),
        pytest.param(
            [(0, "a", _GPU0, None, None), (1, "b", _GPU0, None, None)],
            ["a · GPU 0", "b · GPU 0"],
            id="no ranks on several machines",
        ),
        pytest.param(
            [(0, "a", _GPU0, 3, None), (0, "a", _GPU1, 3, None)],
            ["rank 3 · GPU 0", "rank 3 · GPU 1"],
            id="a rank on two GPUs",
        ),
        pytest.param(
            [(0, "a", _GPU0, 3, None), (1, "b", _GPU0, 3, None)],
            ["rank 3 · a · GPU 0", "rank 3 · b · GPU 0"],
            id="a rank on two machines",
        ),
        pytest.param(
            [(0, "a", _GPU0, 0, 0), (0, "a", _GPU0, 1, 0)],
            ["ranks 0, 1 · stage 0 · GPU 0"],
            id="ranks of one GPU",
        ),
        pytest.param(
            [(0, "a", _GPU0, 0, None), (1, "a", _GPU0, 0, None)], ["rank 0 · GPU 0"] * 2, id="two reports"
        ),
        pytest.param([(0, "a", None, None, None)], [], id="no GPU"),
    ],
)
def test_titles_tell_gpus_apart_and_stand_in_order_of_stages(rows: list[Any], titles: list[str]) -> None:
    assert texts(roster(*rows)) == titles


def test_shares_are_those_of_the_stage() -> None:
    calls: list[tuple[str, float]] = []
    report_stage("before", 0.5)
    with follow_stages(lambda work, share: calls.append((work, share))):
        report_stage("whole", 0.5)
        enter_stage("reading", 0.2, 0.4)
        report_stage("half of it", 0.5)
    enter_stage("after", 0, 1)
    assert calls == [("whole", 0.5), ("reading", 0.2), ("half of it", pytest.approx(0.3))]


@pytest.mark.slow
def test_a_divided_run_counts_the_reports_of_all_traces(tmp_path: Path) -> None:
    calls: list[tuple[str, float]] = []
    nsys_pp.merge(
        PIPELINE,
        output=tmp_path / "run.pftrace",
        split="machine",
        progress=lambda activity, share: calls.append((activity, share)),
    )
    writing = [share for activity, share in calls if activity == "writing run.traces"]
    totals = {share.total for share in writing if isinstance(share, Share)}
    assert len(totals) == 1
    assert totals.pop() >= len(writing) > 8  # four reports in the overview and once in the folder

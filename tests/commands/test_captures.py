"""Captures of one nsys session (`--capture-range-end=repeat`) give the results of one capture of the same steps."""

from __future__ import annotations

import shutil
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import nsys_pp
from fixtures.simulate import main as simulate
from nsys_pp.commands.pipeline import PipelineResult, export_jobs
from tests.importer import Importer
from tests.importer.readback import slices_by_machine

_RUN = "--pp 2 --dp 2 --machines 2 --micro-batches 3 --steps 6 --layers 1 --offsets-ms 5 --seed 5 --slow-rank 2=1.3 --brief-truth"
_CAPTURES = ("10:11", "12:13", "14:15")

pytestmark = pytest.mark.usefixtures("reports_read_once")


def capture(folder: Path, options: str) -> Path:
    """Simulate a run that is captured three times, as `captures`, and once, as `whole`."""
    arguments = [*_RUN.split(), *options.split(), "--capture-steps"]
    simulate([str(folder / "whole"), *arguments, "10:15"])
    for number, steps in enumerate(_CAPTURES, start=1):
        simulate([str(folder / "one"), *arguments, steps])
        for report in (folder / "one").rglob("*.sqlite"):
            copy = folder / "captures" / report.relative_to(folder / "one")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(report, copy.with_name(f"{report.stem}.{number}.sqlite"))
        shutil.rmtree(folder / "one")
    shutil.rmtree(folder / "whole" / "truth")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return capture(tmp_path_factory.mktemp("run"), "--names megatron")


def analyse(folder: Path) -> PipelineResult:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return nsys_pp.pipeline([folder])


def list_jobs(result: PipelineResult) -> pl.DataFrame:
    """List jobs with their lanes, times in UTC."""
    training = result.training
    columns = ("step", "kind", "micro_batch", "chunk", "outer_kind", "start_ns", "end_ns", "busy_ns")
    outer = training.jobs.select(outer="job", outer_kind="kind")
    return (
        training.jobs.join(outer, on="outer", how="left", maintain_order="left")
        .join(training.lanes, on="lane")
        .select("rank", "stage", *columns)
        .sort("rank", "start_ns", "end_ns")
    )


@pytest.mark.parametrize(
    "options",
    [
        "--names megatron --schema 3.7.2",  # no system clock, and numbers of steps in names of ranges
        "--names deepspeed --schema 3.25.0",  # steps are counted in each capture
        "--names plain --schema 3.0.0 --recompute",  # jobs inside of others
    ],
)
def test_jobs_of_captures_are_those_of_one_capture(options: str, tmp_path: Path) -> None:
    folder = capture(tmp_path, options)
    whole, several = analyse(folder / "whole"), analyse(folder / "captures")
    places = ("rank", "stage", "machine", "gpu", "label", "bound_ns")
    assert several.training.lanes.select(places[:-1]).equals(whole.training.lanes.select(places[:-1]))
    expected = list_jobs(whole)
    assert list_jobs(several).equals(expected)
    assert (expected["outer_kind"].count() > 0) == ("--recompute" in options)
    assert len(set(several.training.jobs["range_id"])) < len(several.training.jobs)  # of each report
    steps = [result.training.steps["step"].unique().sort().to_list() for result in (whole, several)]
    assert steps[0] == steps[1]
    assert len(steps[0]) == 6
    for result in (whole, several):
        assert result.verdict.lines[0].startswith("Rank 2 (stage 1, node1 GPU 0) computes")


def test_clocks_of_captures_are_those_of_one_capture(run: Path) -> None:
    """Where steps repeat, collectives alone place a capture a step apart."""
    whole, several = (nsys_pp.align(run / name).clocks for name in ("whole", "captures"))
    assert all(bound < 10_000 for bound in several["bound_ns"].to_list())
    facts = ("machine", "offset_ns")
    assert set(several.select(facts).iter_rows()) == set(whole.select(facts).iter_rows())


def test_summaries_count_captures_once(run: Path) -> None:
    whole, several = (
        nsys_pp.summarise(run / name, tables=["kernels", "device", "launches"], by="rank").tables
        for name in ("whole", "captures")
    )
    count = ["rank", "name", "count", "total_ns"]
    assert several["kernels"].select(count).equals(whole["kernels"].select(count))
    assert several["device"]["label"].equals(whole["device"]["label"])
    assert several["launches"]["count"].equals(whole["launches"]["count"])


def test_each_copy_has_the_jobs_of_its_report(run: Path, tmp_path: Path) -> None:
    tasks = {}
    for name in ("whole", "captures"):
        written = export_jobs(run / name, tmp_path / name, format="steptask")
        for file in written.files:
            if file.source is not None:
                with closing(sqlite3.connect(file.path)) as database:
                    tasks[file.source] = database.execute(
                        "SELECT count(*), min(startNs) FROM StepTaskInfo"
                    ).fetchone()
    for report in (run / "whole").rglob("*.sqlite"):
        captures = [
            tasks[path] for path in tasks if path.name.startswith(f"{report.stem}.") and path != report
        ]
        assert sum(count for count, _ in captures) == tasks[report][0]
        assert len(captures) == len(_CAPTURES)
        assert all(0 < start < 10_000_000 for _, start in captures)


def test_a_trace_has_one_row_for_each_process(run: Path, tmp_path: Path, importer: Importer) -> None:
    drawn = []
    for name in ("whole", "captures"):
        nsys_pp.merge(run / name, tmp_path / f"{name}.pftrace")
        slices = slices_by_machine(importer, tmp_path / f"{name}.pftrace").filter(
            ~pl.col("path").str.contains("steps$")  # the last one of a capture ends with it
        )
        drawn.append(slices.select("path", "ts", "dur", "name").sort("path", "ts", "dur", "name"))
    assert drawn[1].equals(drawn[0])
    assert len(drawn[0]) > 1000

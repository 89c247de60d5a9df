"""Runs of machines that share nothing: no output has a number that compares times of different groups of clocks."""

from __future__ import annotations

import sqlite3
import warnings
from pathlib import Path

import polars as pl
import pytest

import nsys_pp
from fixtures.simulate import main as simulate
from nsys_pp.commands.pipeline import PipelineResult
from nsys_pp.output.chart.content import describe_run
from nsys_pp.output.trace.run_tracks import RUN, GpuRow, draw_training
from tests.cli.calls import call
from tests.importer.importer import Importer
from tests.importer.readback import read_flows, read_tracks

NOTE = "2 groups of clocks, not comparable with each other"
_SHARED = "value LIKE '%AllReduce%' OR value LIKE '%AllGather%' OR value LIKE '%ReduceScatter%'"
_SMALL = "--steps 3 --layers 1 --micro-batches 8 --no-norm --brief-truth --schema 3.28.1"

pytestmark = pytest.mark.usefixtures("reports_read_once")


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two replicas on a machine each, of different runs, without the collectives that they share."""
    folder = tmp_path_factory.mktemp("replicas")
    for seed, missing in ((1, "2,3"), (2, "0,1")):
        machines = "--order pp-dp-tp --machines node1,node2 --gpus 2 --jitter 0.1"
        run = f"--pp 2 --dp 2 {machines} {_SMALL} --seed {seed} --missing-ranks {missing}"
        simulate([str(folder / str(seed)), "--no-truth", *run.split()])
    for path in folder.rglob("*.sqlite"):
        with sqlite3.connect(path) as database:
            names = f"SELECT id FROM StringIds WHERE {_SHARED}"
            database.execute(f"DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE shortName IN ({names})")
    return folder


@pytest.fixture(scope="module")
def torn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline of five machines, of which the middle one was not recorded."""
    folder = tmp_path_factory.mktemp("torn")
    machines = "--machines node1,node2,node3,node4,node5 --gpus 1 --offset-us node4=4200"
    simulate([str(folder), *f"--pp 5 {machines} {_SMALL} --missing-ranks 2".split()])
    return folder


def analyse(folder: Path, **options: str) -> PipelineResult:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nsys_pp.pipeline([folder], **options)  # type: ignore[arg-type]


def group_of(result: PipelineResult) -> dict[int, int]:
    return dict(result.training.lanes.select("lane", "clock_group").iter_rows())


@pytest.mark.parametrize("layout", ["", "pp=2,dp=2,order=pp-dp-tp"])
def test_replicas_that_share_nothing_are_not_compared(layout: str, replicas: Path) -> None:
    result = analyse(replicas, **({"layout": layout} if layout else {}))
    training, group = result.training, group_of(result)
    assert [group[lane] for lane in training.lanes.sort("rank")["lane"]] == [0, 0, 1, 1]
    transfers = training.transfers
    assert len(transfers) == (2 * 2 * 3 * 8 if layout else 0)  # without stages, no message has a partner
    assert all(group[a] == group[b] for a, b in transfers.select("sender", "receiver").iter_rows())
    assert (transfers["bound_ns"] == 0).all()  # lanes of one machine, on its system clock
    assert transfers["transfer_ns"].null_count() == 0
    check_tables(result)
    if not layout:
        assert training.lanes["stage"].null_count() == 4
        assert any(
            "clocks are not known well enough to order the first forwards" in note for note in training.notes
        )


@pytest.mark.few(1)
@pytest.mark.parametrize("layout", ["", "pp=5"])
def test_parts_of_a_pipeline_that_share_nothing_are_not_compared(layout: str, torn: Path) -> None:
    result = analyse(torn, **({"layout": layout} if layout else {}))
    training, group = result.training, group_of(result)
    assert [group[lane] for lane in training.lanes.sort("rank")["lane"]] == [0, 0, 1, 1]
    pairs = training.transfers.select("sender", "receiver").unique()
    assert all(group[a] == group[b] for a, b in pairs.iter_rows())
    assert len(pairs) == (4 if layout else 0)
    bounds = training.lanes.select(pl.col("bound_ns").sum().over("clock_group"))["bound_ns"].unique()
    assert set(training.transfers["bound_ns"]) == set(bounds if layout else ())
    check_tables(result)


def check_tables(result: PipelineResult) -> None:
    """Check that tables compare no times of two groups, and say so."""
    training, group = result.training, group_of(result)
    tables = result.tables()
    assert tables["steps"].select("start_ns", "span_ns").null_count().row(0) == (3, 3)
    assert tables["steps"]["bubble_fraction"].null_count() == 0
    assert tables["critical"].is_empty()
    assert tables["critical_path"].is_empty()
    waits = training.lane_states.drop_nulls("waits_for").select("lane", "waits_for").unique()
    assert training.transfers.is_empty() or len(waits)
    assert all(group[lane] == group[other] for lane, other in waits.iter_rows())
    assert sum(note.startswith(f"{NOTE}: ") for note in training.notes) == 1
    assert NOTE in describe_run(training)
    assert not any("agree within" in fact for fact in describe_run(training))


def test_messages_between_groups_are_paired_without_times(tmp_path: Path, importer: Importer) -> None:
    """Communicators name the peers; recorded UTC alone does not make times comparable."""
    run = f"--pp 2 --machines node1,node2 --gpus 1 --nccl-payload --init-communicators {_SMALL}"
    simulate([str(tmp_path / "run"), *run.split()])
    result = analyse(tmp_path / "run", clock="utc")
    transfers = result.training.transfers
    assert len(transfers) == 2 * 3 * 8
    compared = ["send_wait_ns", "receive_wait_ns", "transfer_ns", "is_buffered", "bound_ns"]
    assert transfers.select(compared).null_count().row(0) == (len(transfers),) * len(compared)
    links = result.tables(["links"])["links"]
    assert (
        links.select("message_count", "timed_count", "median_wait_ns", "is_slow").rows()
        == [(24, 0, None, False)] * 2
    )
    trace = tmp_path / "run.pftrace"
    assert call("merge", tmp_path / "run", "-o", trace, "--clock", "utc").code == 0
    assert not read_flows(importer, trace)
    for name in ("run.html", "run.svg"):
        assert call("chart", tmp_path / "run", "-o", tmp_path / name, "--clock", "utc").code == 0


def test_every_command_reports_the_groups(torn: Path, tmp_path: Path, importer: Importer) -> None:
    aligned = call("align", torn, env={"COLUMNS": "120"})
    assert "Group" in aligned.stdout
    whole = call("align", Path(__file__).parents[2] / "fixtures" / "clocks", env={"COLUMNS": "120"})
    assert "Group" not in whole.stdout
    assert NOTE in call("pipeline", torn).stderr
    trace = tmp_path / "run.pftrace"
    merged = call("merge", torn, "-o", trace)
    assert merged.code == 0, merged
    assert NOTE in merged.stderr
    assert b"clock.node4.group" in trace.read_bytes()
    training = analyse(torn).training
    rows = {lane: GpuRow(machine="node", row=str(lane)) for lane in training.lanes["lane"]}
    steps = draw_training(training, rows)[RUN].tracks[0]
    assert steps.description == f"from the first GPU to the last; {NOTE}"
    descriptions = read_tracks(importer, trace)["description"].drop_nulls()
    on_machine = [text for text in descriptions if "; node4, GPU" in text]
    assert on_machine[0].endswith(f"; group 1 of {NOTE}")
    chart = tmp_path / "chart.html"
    assert call("chart", torn, "-o", chart).code == 0
    assert NOTE in chart.read_text()

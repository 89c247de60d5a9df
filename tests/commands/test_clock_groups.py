"""Runs of machines that share nothing: no output has a number that compares times of different groups of clocks."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import polars as pl
import pytest

import nsys_pp
from fixtures.simulate import main as simulate
from nsys_pp.commands.pipeline import PipelineResult
from nsys_pp.output.chart.content import describe_run
from tests.cli.calls import call, succeed
from tests.importer import Importer, read_flows, read_tracks, slices_by_machine
from tests.sql import edit

NOTE = "2 groups of clocks, not comparable with each other"
_SHARED = "value LIKE '%AllReduce%' OR value LIKE '%AllGather%' OR value LIKE '%ReduceScatter%'"
_SMALL = "--steps 3 --layers 1 --micro-batches 8 --no-norm --brief-truth --schema 3.28.1"


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two replicas on a machine each, of different runs, without the collectives that they share."""
    folder = tmp_path_factory.mktemp("replicas")
    for seed, missing in ((1, "2,3"), (2, "0,1")):
        machines = "--order pp-dp-tp --machines node1,node2 --gpus 2 --jitter 0.1"
        run = f"--pp 2 --dp 2 {machines} {_SMALL} --seed {seed} --missing-ranks {missing}"
        simulate([str(folder / str(seed)), "--no-truth", *run.split()])
    for path in folder.rglob("*.sqlite"):
        names = f"SELECT id FROM StringIds WHERE {_SHARED}"
        edit(path, f"DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE shortName IN ({names})")
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


@pytest.mark.few(1)
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_every_command_reports_the_groups(torn: Path, tmp_path: Path, importer: Importer) -> None:
    assert "Group" in call("align", torn, env={"COLUMNS": "120"}).stdout
    whole = call("align", Path(__file__).parents[2] / "fixtures" / "clocks", env={"COLUMNS": "120"})
    assert "Group" not in whole.stdout
    assert NOTE in call("pipeline", torn).stderr
    trace = tmp_path / "run.pftrace"
    assert NOTE in succeed("merge", torn, "-o", trace).stderr
    assert b"clock.node4.group" in trace.read_bytes()
    descriptions = read_tracks(importer, trace)["description"].drop_nulls()
    assert f"from the first GPU to the last; {NOTE}" in descriptions.to_list()
    on_machine = [text for text in descriptions if "; node4, GPU" in text]
    assert on_machine[0].endswith(f"; group 1 of {NOTE}")
    chart = tmp_path / "chart.html"
    assert call("chart", torn, "-o", chart).code == 0
    assert NOTE in chart.read_text()


_RUN = "--pp 2 --dp 2 --machines 2 --micro-batches 3 --steps 6 --layers 1 --offsets-ms 5 --seed 5 --slow-rank 2=1.3 --brief-truth"
_CAPTURES = ("10:11", "12:13", "14:15")


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


def analyse_strictly(folder: Path) -> PipelineResult:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return nsys_pp.pipeline([folder])


def list_jobs(result: PipelineResult) -> pl.DataFrame:
    training = result.training
    columns = ("step", "kind", "micro_batch", "chunk", "outer_kind", "start_ns", "end_ns", "busy_ns")
    outer = training.jobs.select(outer="job", outer_kind="kind")
    return (
        training.jobs.join(outer, on="outer", how="left", maintain_order="left")
        .join(training.lanes, on="lane")
        .select("rank", "stage", *columns)
        .sort("rank", "start_ns", "end_ns")
    )


@pytest.mark.slow
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
    whole, several = analyse_strictly(folder / "whole"), analyse_strictly(folder / "captures")
    places = ("rank", "stage", "machine", "gpu", "label", "bound_ns")
    assert several.training.lanes.select(places[:-1]).equals(whole.training.lanes.select(places[:-1]))
    expected = list_jobs(whole)
    assert list_jobs(several).equals(expected)
    assert (expected["outer_kind"].count() > 0) == ("--recompute" in options)
    assert len(set(several.training.jobs["range_id"])) < len(several.training.jobs)  # of each report
    steps = [result.training.steps["step"].unique().sort().to_list() for result in (whole, several)]
    assert (steps[0], len(steps[0])) == (steps[1], 6)
    for result in (whole, several):
        assert result.verdict.lines[0].startswith("Rank 2 (stage 1, node1 GPU 0) computes")


def test_clocks_of_captures_are_those_of_one_capture(run: Path) -> None:
    """Where steps repeat, collectives alone place a capture a step apart."""
    whole, several = (nsys_pp.align(run / name).clocks for name in ("whole", "captures"))
    assert all(bound < 20_000 for bound in several["bound_ns"].to_list())
    facts = ("machine", "offset_ns")
    assert set(several.select(facts).iter_rows()) == set(whole.select(facts).iter_rows())


def test_a_trace_has_one_row_for_each_process(run: Path, tmp_path: Path, importer: Importer) -> None:
    drawn = []
    for name in ("whole", "captures"):
        nsys_pp.merge(run / name, tmp_path / f"{name}.pftrace", layout="pp=2,dp=2")
        slices = slices_by_machine(importer, tmp_path / f"{name}.pftrace").filter(
            ~pl.col("path").str.contains("steps$")  # the last one of a capture ends with it
        )
        drawn.append(slices.select("path", "ts", "dur", "name").sort("path", "ts", "dur", "name"))
    assert drawn[1].equals(drawn[0])
    assert len(drawn[0]) > 1000

"""From reports to the training in them: what is found equals what the simulator knows.

Reports are read, aligned and analysed as any command does it. Where clocks are exact, so must the
result be; where they are not, it may be wrong by what the alignment's bounds allow.
"""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from shutil import copyfile

import polars as pl
import pytest

import nsys_pp
from fixtures.simulate import main as simulate
from nsys_pp.frames.training import BUBBLE_CAUSES, Training
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from tests.commands.whole import WORK, causes_of, jobs_of, run, wrong_by
from tests.draws import count_draws
from tests.sql import edit, select
from tests.training.expected_training import PIPELINE, expected_training

SMALL = "--steps 3 --layers 1"
SCHEDULES = {
    "gpipe": "--schedule gpipe",
    "1f1b": "--schedule 1f1b",
    "interleaved": "--schedule interleaved --chunks 2",
    "zb-h1": "--schedule zb-h1",
    "dualpipev": "--schedule dualpipev --micro-batches 8",
}
NAMES = ("plain", "paddle", "megatron", "megatron-ids", "torch", "zero-bubble", "msprof")
TRAPS = {
    "a stall": "--stall 11=30",
    "a slow rank": "--slow-rank 2=1.3",
    "a slow link": "--slow-link 0,1=5",
    "a host that is late": "--host-bound 11=4",
    "buffered messages": "--buffered-bytes 100000000",
    "grouped messages": "--grouped-messages",
    "recomputation": "--recompute",
    "payload": "--nccl-payload --init-communicators --schema 3.25.0",
    "a report per machine": "--per machine --nccl-payload --init-communicators --schema 3.25.0",
    "graphs": "--graphs node",
    "graphs as wholes": "--graphs graph --schema 3.25.0",
    "a backward that is launched by two threads": "--autograd part",
}


def _list_combinations() -> list[tuple[str, str]]:
    """List the frameworks' names with each schedule; in the README's command, each name and each schedule in few of them.

    How a name is read does not depend on the schedule, but for the chunks that only some schedules have.
    """
    every = list(itertools.product(SCHEDULES, NAMES))
    few = {("interleaved", name) for name in NAMES} | {(schedule, "plain") for schedule in SCHEDULES}
    count = count_draws(len(every), least=len(few))
    return [combination for combination in every if combination in few or count == len(every)]


@pytest.mark.few(3)
@pytest.mark.draws
@pytest.mark.parametrize(("schedule", "names"), _list_combinations())
def test_every_framework_and_schedule_is_understood(schedule: str, names: str, tmp_path: Path) -> None:
    whole = run(tmp_path / "run", f"{SMALL} {SCHEDULES[schedule]} --names {names}")
    found, true = whole.found, whole.true
    assert found.preset == names.removesuffix("-ids")
    assert (found.schedule.name, found.schedule.stage_count) == (schedule, 4)
    stages = found.lanes.select("rank", "stage").sort("rank")
    assert stages.equals(true.lanes.select("rank", "stage").sort("rank"))
    assert jobs_of(found).equals(jobs_of(true))
    assert wrong_by(whole)["error_ns"].max() == 0
    times = [
        "send_start_ns",
        "send_end_ns",
        "receive_start_ns",
        "receive_end_ns",
        "receive_wait_ns",
        "transfer_ns",
    ]
    assert found.transfers.select(times).sort(times).equals(true.transfers.select(times).sort(times))


@pytest.mark.few(2)
@pytest.mark.parametrize("options", TRAPS.values(), ids=TRAPS)
def test_what_goes_wrong_in_a_run_is_told_as_it_was(options: str, tmp_path: Path) -> None:
    whole = run(tmp_path / "run", f"{SMALL} {options}")
    assert jobs_of(whole.found).equals(jobs_of(whole.true))
    wrong = wrong_by(whole)
    assert wrong["error_ns"].max() == 0, wrong.filter(pl.col("error_ns") > 0)


def test_replicas_and_tensor_slices_are_lanes_of_their_stage(tmp_path: Path) -> None:
    """Eight ranks of one machine; their clocks are aligned, which here moves some by a nanosecond."""
    whole = run(tmp_path / "run", f"{SMALL} --pp 2 --dp 2 --tp 2")
    found, true = jobs_of(whole.found), jobs_of(whole.true)
    assert found.drop("start_ns", "end_ns").equals(true.drop("start_ns", "end_ns"))
    for name in ("start_ns", "end_ns"):
        assert (found[name] - true[name]).abs().max() <= 10  # type: ignore[operator]
    assert wrong_by(whole)["error_ns"].max() <= 100  # type: ignore[operator]


def test_steps_without_numbers_are_counted(tmp_path: Path) -> None:
    """DeepSpeed does not number its steps: they are counted from 0, alike on all ranks."""
    whole = run(tmp_path / "run", f"{SMALL} --names deepspeed")
    assert jobs_of(whole.found).with_columns(pl.col("step") + 10).equals(jobs_of(whole.true))
    found = causes_of(whole.found).with_columns(pl.col("step") + 10)
    assert sorted(found.rows()) == sorted(causes_of(whole.true).rows())


@pytest.mark.slow
def test_clocks_that_drift_move_causes_within_their_bounds(tmp_path: Path) -> None:
    wild = "--pp 4 --dp 2 --machines 4 --steps 5 --offsets-ms 1000 --drift-ppm random:100 --utc-error-us 100 --skew-us 3"
    whole = run(tmp_path / "run", f"--layers 1 {wild}")
    found = whole.found
    assert found.lanes["bound_ns"].null_count() == 0
    bound = int(found.lanes["bound_ns"].max())  # type: ignore[arg-type]
    key = ["rank", "step", "kind", "micro_batch", "chunk"]
    assert jobs_of(found).select(key).sort(key).equals(jobs_of(whole.true).select(key).sort(key))
    waits = wrong_by(whole).filter(pl.col("cause").is_in(["message_wait", "message_transfer"]))
    messages = found.transfers.group_by("receiver", "step").len()["len"].max()
    assert waits["error_ns"].max() <= 2 * bound * messages  # type: ignore[operator]
    assert (found.transfers["receive_end_ns"] > found.transfers["send_start_ns"]).all()
    span = whole.true.lane_states.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item()
    assert wrong_by(whole)["error_ns"].sum() / 2 < 0.01 * span


def test_reports_without_jobs_are_told(tmp_path: Path) -> None:
    rules = tmp_path / "nothing.toml"
    rules.write_text('title = "nothing"\n[[job]]\nkind = "other"\npattern = "never"\n')
    result = nsys_pp.pipeline([PIPELINE], preset=rules)
    note = result.training.notes[0]
    assert note.startswith(
        "none of the 4 reports has an NVTX range that is known to be a forward or a backward"
    )
    assert "--infer-jobs" not in note  # messages have no ranges
    assert result.training.jobs["kind"].unique().to_list() == ["other"]  # ranges directly inside steps


VECTORS = {  # labels and phases that msprof-analyze gives, by stages, micro-batches and stage; without `logits`
    (2, 4, 0): "0/0 1/0 2/1 4/1 4b/2 4w/2 5/2 3F+5B/3 6F+0B/3 6B/4 7F+1B/4 7B/5 2B/6 3B/6",
    (2, 4, 1): "0/1 4/1 1/1 5/1 2F/3 4B/3 6F+0B/3 3F+5B/3 7F+1B/3 6B/5 2B/5 7B/6 3B/6",
    (4, 10, 0): "0/0 1/0 2/0 3/0 4/0 5/0 6/1 10/1 10b/2 10w/2 11/2 11b/2 11w/2 12/2 12b/2 12w/2 13/2 7F+13B/3"
    " 14F+0B/3 8F+14B/3 15F+1B/3 9F+15B/3 16F+2B/3 16B/4 17F+3B/4 17B/4 18F+4B/4 18B/4 19F+5B/4 19B/5 6B/6"
    " 7B/6 8B/6 9B/6",
    (4, 10, 3): "0/1 10/1 1/1 11/1 2/1 12/1 3/1 13/1 4F/3 10B/3 14F+0B/3 5F+11B/3 15F+1B/3 6F+12B/3 16F+2B/3"
    " 7F+13B/3 17F+3B/3 8F+14B/3 18F+4B/3 9F+15B/3 19F+5B/3 16B/5 6B/5 17B/5 7B/5 18B/6 8B/6 19B/6 9B/6",
}


@pytest.mark.few(1)
@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 4), (4, 10)])
def test_jobs_of_dualpipev_are_labelled_as_msprof_does(
    stages: int, micro_batches: int, tmp_path: Path
) -> None:
    options = f"--pp {stages} --micro-batches {micro_batches} --schedule dualpipev --names msprof --steps 1 --layers 1"
    training = run(tmp_path / "run", options).found
    jobs = training.jobs.filter(pl.col("kind").is_in(WORK)).join(training.lanes, on="lane")
    for (pp, mb, stage), labels in VECTORS.items():
        if (pp, mb) == (stages, micro_batches):
            own = jobs.filter(stage=stage).sort("compute_start_ns")
            assert [
                f"{label}/{phase}" for label, phase in own.select("label", "phase").rows()
            ] == labels.split()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("options", "is_tied"),
    [
        ("--missing-ranks 1", False),
        ("--missing-ranks 2 --nccl-payload --init-communicators --schema 3.25.0", False),
        ("--missing-ranks 2 --schedule interleaved --chunks 2", True),
        ("--missing-ranks 1 --schedule dualpipev --micro-batches 8", True),
    ],
)
def test_a_missing_rank_leaves_messages_alone_and_its_stage_is_kept_or_all_are_unknown(
    options: str, is_tied: bool, tmp_path: Path
) -> None:
    """In 1F1B, the missing rank leaves nothing that ties the clocks of the machines, so no order of stages is known."""
    whole = run(tmp_path / "run", f"{SMALL} {options}")
    found, true = whole.found, whole.true
    assert found.lanes["stage"].to_list() == (found.lanes["rank"].to_list() if is_tied else [None] * 3)
    assert found.lanes["stage_count"].to_list() == [4 if is_tied else None] * 3
    reason = "that there are 4 stages is inferred" if is_tied else "specify `--layout`"
    assert any(f"is missing; {reason}" in note for note in found.notes)
    times = ["send_start_ns", "send_end_ns", "receive_start_ns", "receive_end_ns"]
    assert len(true.transfers) >= 48
    if not is_tied and "nccl" not in options:  # neither stages nor peers: no message has a partner
        assert found.transfers.is_empty()
        return
    assert found.transfers.select(times).sort(times).equals(true.transfers.select(times).sort(times))
    assert wrong_by(whole)["error_ns"].max() == 0
    # what came from the missing rank, or went to it, is not split
    assert (causes_of(found).filter(cause="message")["total_ns"] > 0).any()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("schedule", "layout"),
    [
        ("dualpipev --micro-batches 8", None),
        ("dualpipev --micro-batches 8", "pp=4"),
        ("interleaved --chunks 2", "pp=4"),
    ],
)
def test_a_missing_last_stage_is_a_stage(schedule: str, layout: str | None, tmp_path: Path) -> None:
    """Its number is known from the layout, or from the names of both halves of a folded pipeline."""
    whole = run(
        tmp_path / "run", f"{SMALL} --names torch --missing-ranks 3 --schedule {schedule}", layout=layout
    )
    found, true = whole.found, whole.true
    assert found.lanes["stage"].to_list() == [0, 1, 2]
    assert found.lanes["stage_count"].to_list() == [4, 4, 4]
    times = ["send_start_ns", "send_end_ns", "receive_start_ns", "receive_end_ns"]
    assert found.transfers.select(times).sort(times).equals(true.transfers.select(times).sort(times))
    nameless = run(
        tmp_path / "nameless", f"{SMALL} --names plain --missing-ranks 3 --schedule {schedule}"
    ).found
    assert any("rank 3 is missing" in note for note in nameless.notes)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "options", ["--window-ms 20", "--window-ms 20 --names paddle", "--window-ms 15 --schedule zb-h1"]
)
def test_whole_steps_of_captures_that_differ_have_their_causes(options: str, tmp_path: Path) -> None:
    """But for collectives that not all captures hold: their last member is unknown."""
    whole = run(tmp_path / "run", f"{SMALL} {options}")
    lanes = whole.found.lanes.select("lane", "rank")
    is_partial = whole.found.steps.group_by("step").agg(pl.col("is_partial").any())
    assert len(lanes) == 4
    complete = is_partial.filter(~pl.col("is_partial"))["step"].to_list()
    assert complete
    assert wrong_by(whole).filter(pl.col("step").is_in(complete))["error_ns"].max() == 0


SMALL_STOCK = "--names megatron-stock --layers 1 --steps 2"
_TOLERANCE_NS = 10  # clocks of several reports are aligned


def compare(found: Training, true: Training) -> tuple[int, int, int]:
    """Count the true jobs, the found ones, and the found ones with the interval of a true one."""
    jobs = [
        training.jobs.filter(pl.col("kind").is_in(WORK))
        .join(training.lanes.select("lane", "rank"), on="lane")
        .select("rank", pl.col("kind").cast(pl.String), "compute_start_ns", "compute_end_ns")
        .sort("compute_start_ns")
        for training in (true, found)
    ]
    same = jobs[1].join_asof(
        jobs[0].with_columns(true_end_ns="compute_end_ns"),
        on="compute_start_ns",
        by=["rank", "kind"],
        strategy="nearest",
        tolerance=_TOLERANCE_NS,
        check_sortedness=False,
    )
    is_same = (pl.col("compute_end_ns") - pl.col("true_end_ns")).abs() <= _TOLERANCE_NS
    return len(jobs[0]), len(jobs[1]), len(same.filter(is_same))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "options",
    [
        "--schedule 1f1b --autograd fill",
        "--schedule 1f1b --autograd none --grouped-messages --recompute",
        "--schedule gpipe --autograd part --free-running",
        "--schedule interleaved --chunks 2 --loader-kernels",
        "--pp 2 --dp 2 --tp 2 --buckets 2 --small-ops 2 --lead-collectives 1",
    ],
)
def test_jobs_are_the_launches_between_messages(options: str, tmp_path: Path) -> None:
    """Also where receives are posted before the first kernel of a step, as here on all stages but the first."""
    whole = run(tmp_path / "run", f"{SMALL_STOCK} {options}", infer_jobs=True)
    true, found, same = compare(whole.found, whole.true)
    assert true == found == same > 0
    assert whole.found.jobs.filter(pl.col("kind").is_in(WORK))["is_inferred"].all()
    assert any("jobs are the launches between the ranges of messages" in note for note in whole.found.notes)
    name = options.split()[1] if "--schedule" in options else "1f1b"
    assert whole.found.schedule.name == name
    key = ["rank", "step", "kind", "micro_batch", "chunk"]
    found_ids, true_ids = (
        training.jobs.filter(pl.col("kind").is_in(WORK))
        .join(training.lanes.select("lane", "rank"), on="lane")
        .select(pl.col(key).exclude("chunk"), pl.col("chunk").fill_null(0))
        .sort(key)
        for training in (whole.found, whole.true)
    )
    assert found_ids.equals(true_ids)


def test_jobs_are_inferred_only_on_request(tmp_path: Path) -> None:
    found = run(tmp_path / "run", SMALL_STOCK).found
    assert not found.jobs["kind"].is_in(WORK).any()
    assert found.jobs["range_id"].null_count() == 0


def test_ranges_of_messages_on_some_stages_are_not_enough(tmp_path: Path) -> None:
    """Without ranges of messages that a stage does not send, its forwards and backwards are not apart."""
    rules = tmp_path / "rules.toml"
    names = [("send", "send"), ("recv", "receive")]
    rules.write_text(
        'title = "messages"\n'
        + "".join(
            f'[[job]]\nkind = "{kind}"\ndirection = "{direction}"\n'
            f"pattern = '(?:\\w+\\.)*{word}_{direction}'\n"
            for word, kind in names
            for direction in ("forward", "backward")
        )
        + "[[step]]\npattern = 'training_step_(?P<step>\\d+)'\n"
    )
    folder = tmp_path / "run"
    simulate([str(folder), "--names", "megatron", "--layers", "1", "--steps", "2", "--no-truth"])
    found = nsys_pp.pipeline([folder], preset=rules, infer_jobs=True, layout="pp=4").training
    assert not any("between the ranges of messages" in note for note in found.notes)


@pytest.fixture(scope="module")
def unmarked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy a report of the fixtures without its ranges."""
    path = tmp_path_factory.mktemp("unmarked") / "bare.sqlite"
    return edit(Path(copyfile(min(PIPELINE.rglob("*.sqlite")), path)), "DELETE FROM NVTX_EVENTS")


def test_a_report_without_ranges_has_lanes_states_and_gaps(unmarked: Path) -> None:
    result = nsys_pp.pipeline([unmarked])
    training = result.training
    assert training.jobs.is_empty() or training.jobs["is_inferred"].all()
    assert len(training.lanes) == 1
    states = training.lane_states.group_by("lane", "step").agg((pl.col("end_ns") - pl.col("start_ns")).sum())
    spans = training.steps.select("lane", "step", pl.col("end_ns") - pl.col("start_ns"))
    assert states.sort("lane", "step").equals(spans.sort("lane", "step"))
    assert training.notes[0].startswith(f"`{unmarked}` has no NVTX ranges: ")
    tables = result.tables()
    assert tables["steps"].height == training.steps["step"].n_unique() > 0
    # autograd's thread launches the backward, and the main thread waits for its message
    assert tables["lanes"]["message_ns"].sum() > 10 * tables["lanes"]["host_ns"].sum()
    gaps = tables["gaps"]
    assert gaps["length_ns"].is_sorted(descending=True)
    assert gaps["cause"].drop_nulls().is_in(BUBBLE_CAUSES).all()
    for share in ("cause_fraction", "range_fraction", "call_fraction", "os_call_fraction"):
        assert gaps[share].drop_nulls().is_between(0, 1.000001).all()


def test_the_longest_gaps_are_those_of_the_kernels(unmarked: Path) -> None:
    spans = select(
        unmarked,
        "SELECT k.start, k.end FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName"
        " WHERE s.value NOT LIKE 'nccl%' ORDER BY k.start",
    )
    tables = [f"SELECT start, end FROM CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET")]
    ((until, last),) = select(unmarked, f"SELECT min(start), max(end) FROM ({' UNION ALL '.join(tables)})")
    lengths = []
    for number, (start, end) in enumerate([*spans, (last, last)]):
        if start - until > 2_000 * (number > 0):
            lengths.append(start - until)
        until = max(until, end)
    found = nsys_pp.pipeline([unmarked]).tables(["gaps"])["gaps"]["length_ns"].to_list()
    assert found[:50] == sorted(lengths, reverse=True)[:50]


def test_charts_and_comparisons_answer(unmarked: Path, tmp_path: Path) -> None:
    assert nsys_pp.chart([unmarked], tmp_path / "x.svg").lanes == 1
    assert b"There is nothing to draw" not in (tmp_path / "x.svg").read_bytes()
    assert nsys_pp.compare([unmarked], [unmarked]).tables["steps"].height > 0


def test_slices_in_lockstep_are_paired_with_a_layout_only(tmp_path: Path) -> None:
    slices = "--pp 2 --tp 2 --sequence-parallel --jitter 0.001"
    simulate([str(tmp_path), "--no-truth", *f"{slices} --steps 2 --layers 1 --micro-batches 8".split()])
    unknown = nsys_pp.pipeline([tmp_path]).training
    assert unknown.transfers.is_empty()
    assert any("128 sends and receives" in note and "--layout" in note for note in unknown.notes)
    known = nsys_pp.pipeline([tmp_path], layout="pp=2,tp=2")
    assert len(known.training.transfers) == 64
    assert known.training.transfers["doubtful"].null_count() == 64
    assert known.tables(["links"])["links"]["message_count"].to_list() == [16] * 4


def test_all_names_are_explained() -> None:
    names = nsys_pp.explain_jobs(PIPELINE).names
    reports = [
        build_report(read_report(path, need=frozenset({"ranges"}))) for path in PIPELINE.rglob("*.sqlite")
    ]
    assert names["range_count"].sum() == sum(len(report.ranges) for report in reports)
    read = names.filter(pl.col("kind").is_not_null())
    assert dict(read.select("name", "kind").rows()) == {
        "step_#": "step",
        "forward_#": "forward",
        "backward_#": "backward",
        "send_forward_#": "send",
        "recv_forward_#": "receive",
        "send_backward_#": "send",
        "recv_backward_#": "receive",
        "optimizer": "optimizer",
        "zero_grad": "other",
    }
    assert set(read["preset"]) == {"plain"}
    assert names["kind"].is_null().is_sorted()
    unread = names.filter(pl.col("kind").is_null())
    assert unread["gpu_ns"].is_sorted(descending=True)
    assert unread["pattern"].null_count() == len(unread)


SMALL_MACHINES = "--steps 2 --layers 1 --per machine --brief-truth"


def run_with_layout(folder: Path, options: str, layout: str) -> tuple[Training, list[str]]:
    simulate([str(folder), *SMALL_MACHINES.split(), *options.split()])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = nsys_pp.pipeline([folder], layout=layout).training
    return found, [str(warning.message) for warning in caught]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("options", "layout", "order"),
    [
        ("--pp 4 --machines 1 --gpus 4", "pp=4", "by GPU order"),
        ("--pp 4", "pp=4", "by machine and GPU order"),
        ("--pp 2 --tp 2 --launcher none --names megatron", "pp=2,tp=2", "by machine and GPU order"),
    ],
)
def test_ranks_follow_machines_and_gpus(options: str, layout: str, order: str, tmp_path: Path) -> None:
    found, warned = run_with_layout(tmp_path, options, layout)
    place = ("rank", "stage", "replica", "tensor")
    true = expected_training(tmp_path).lanes
    assert found.lanes.select(place).sort("rank").equals(true.select(place).sort("rank"))
    assert found.lanes["stage_source"].unique().to_list() == ["--layout"]
    assert any(order in note for note in found.notes)
    assert not warned


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("options", "layout", "reason"),
    [
        ("--pp 4 --machines node9,node1", "pp=4", "it contradicts the first forwards"),
        (
            "--pp 2 --dp 4 --machines 4 --machine-ranks 3,1,2,2",
            "pp=2,dp=4",
            "several machines have the same stage",
        ),
    ],
)
def test_an_uncertain_order_is_not_used(options: str, layout: str, reason: str, tmp_path: Path) -> None:
    """Stages are found by the first forwards then."""
    found, _ = run_with_layout(tmp_path, options, layout)
    assert any("`--layout` is not used" in note and reason in note for note in found.notes)
    assert found.lanes["rank"].null_count() == len(found.lanes)
    assert found.lanes["replica"].null_count() == len(found.lanes)
    places = ("machine", "gpu", "stage")
    true = expected_training(tmp_path).lanes
    assert found.lanes.select(places).sort(places).equals(true.select(places).sort(places))

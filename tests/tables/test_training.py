"""Trainings whose captures cut steps."""

from __future__ import annotations

import statistics
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nsys_pp
from fixtures.serving.reports import write_reports
from fixtures.serving.simulate import draw_serving, serve
from fixtures.serving.truth import ACTIVITIES, list_truth
from nsys_pp.commands.pipeline import PipelineResult
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import (
    BUBBLE_CAUSES,
    CAUSES,
    IDEAL,
    POSITION,
    Schedule,
    Training,
)
from nsys_pp.tables.analysis import (
    CAUSE_COLUMNS,
    POSITION_COLUMNS,
    Evidence,
    select_whole_steps,
    sum_lane_steps,
)
from nsys_pp.tables.compare import describe_training, sample_training
from nsys_pp.tables.compare_verdict import ComparisonError, compare_facts
from nsys_pp.tables.noise import compare_members
from nsys_pp.tables.page import build_rank_steps, choose_steps, measure_steps
from nsys_pp.tables.registry import TRAINING_TABLES as TABLES
from nsys_pp.tables.training import (
    UTILISATION_TABLE,
    Work,
    build_iteration_table,
    ideal_bubble_fraction,
)
from nsys_pp.training.numbering import describe_cuts
from tests.draws import count_draws
from tests.output.large_training import make_large_training
from tests.training.expected_training import (
    PIPELINE,
    Row,
    build_small_training,
    leave_out_events,
    simulate_training,
)


def cut_training(training: Training, cut: pl.Expr, *, share: float = 0.5) -> Training:
    """Let captures begin inside the steps of a training.

    Args:
        training: The training.
        cut: Mask of `RUN_STEPS` that the capture cuts.
        share: Part of a cut step that lies before the capture; its jobs and states are absent.
    """
    steps = training.steps.with_columns(is_partial=cut).with_columns(
        start_ns=pl.col("start_ns")
        + pl.when("is_partial")
        .then(share * (pl.col("end_ns") - pl.col("start_ns")))
        .otherwise(0)
        .cast(pl.Int64)
    )
    begins = steps.select("lane", "step", begin_ns="start_ns")
    recorded = {
        name: getattr(training, name)
        .join(begins, on=["lane", "step"], how="left", maintain_order="left")
        .filter(pl.col("begin_ns").is_null() | (pl.col("start_ns") >= pl.col("begin_ns")))
        .drop("begin_ns")
        for name in ("jobs", "lane_states")
    }
    return replace(training, steps=steps, **recorded)


def build(name: str, training: Training) -> pl.DataFrame:
    return TABLES[name].build(training)


@pytest.fixture
def training() -> Training:
    return simulate_training()


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_the_columns_it_describes(name: str) -> None:
    table = TABLES[name]
    full = table.build(simulate_training())
    assert dict(full.schema) == {column.name: column.dtype for column in table.columns}
    assert all(column.meaning for column in table.columns)
    # the truth has neither kernels, calls, nor batches, nor the limits of a capture
    assert full.is_empty() == name.endswith(("families", "gaps", "iterations", "coverage"))
    nothing = table.build(leave_out_events(simulate_training()))
    assert (nothing.schema, nothing.height) == (full.schema, 1 if name == "schedule" else 0)


@pytest.mark.parametrize("name", TABLES)
def test_units_are_in_the_names(name: str) -> None:
    for column, dtype in build(name, simulate_training()).schema.items():
        if dtype.is_float():
            endings = ("_ns", "_fraction", "_per_s", "_requests", "_tokens")
            assert column.endswith(endings) or column == "fraction", column


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from(CAUSES),
            st.integers(1, 10**12),
            st.sampled_from(POSITION.categories.to_list()),
        ),
        min_size=1,
        max_size=40,
    )
)
@settings(deadline=None, max_examples=50)
def test_whatever_the_pieces_they_add_up(drawn: list[tuple[int, str, int, str]]) -> None:
    now = [0, 0, 0]
    rows: list[Row] = []
    for lane, cause, length, _ in drawn:
        rows.append((lane, cause, now[lane], now[lane] + length, None))
        now[lane] += length
    made = build_small_training(rows)
    positions = pl.Series([position for *_, position in drawn], dtype=POSITION)
    sums = sum_lane_steps(replace(made, lane_states=made.lane_states.with_columns(position=positions)))
    for row in sums.rows(named=True):
        assert row["span_ns"] == now[row["lane"]] == sum(row[column] for column in CAUSE_COLUMNS)
        assert row["bubble_ns"] == sum(row[column] for column in POSITION_COLUMNS)
        assert row["span_ns"] == row["compute_ns"] + row["pause_ns"] + row["bubble_ns"]


def test_the_sums_of_a_lane_are_those_of_the_truth(training: Training) -> None:
    totals: dict[tuple[int, str], int] = {}
    for lane, cause, start, end in training.lane_states.select("lane", "cause", "start_ns", "end_ns").rows():
        totals[lane, cause] = totals.get((lane, cause), 0) + end - start
    for row in build("lanes", training).rows(named=True):
        assert row["step_count"] == 4
        for cause in ("compute", *BUBBLE_CAUSES):
            assert row[f"{cause}_ns"] == pytest.approx(totals.get((row["lane"], cause), 0) / 4)


def test_a_step_lasts_from_its_first_lane_to_its_last(training: Training) -> None:
    spans = training.steps.group_by("step").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("step")
    steps = build("steps", training)
    assert steps["step"].to_list() == [10, 11, 12, 13]
    assert steps["span_ns"].to_list() == (spans["end_ns"] - spans["start_ns"]).to_list()
    assert steps["start_ns"].to_list() == (spans["start_ns"] - training.zero_ns).to_list()
    for row in steps.rows(named=True):
        assert row["compute_fraction"] + row["bubble_fraction"] == pytest.approx(
            1, abs=1e-3
        )  # no pauses here
        assert row["bubble_fraction"] <= row["worst_bubble_fraction"] < 1


@pytest.mark.parametrize("options", ["--layers 1", "--jitter 0.1", "--micro-batches 1", "--pp 1 --dp 4"])
def test_a_step_without_a_slow_stage_has_no_slowest_one(options: str) -> None:
    # the loss is computed by the last stage: it is left out
    training = simulate_training(f"{options} --seed 3")
    last = training.lanes["stage"].max()
    lanes = training.lanes.with_columns(
        stage=pl.when(pl.col("stage") < last).then("stage") if last else pl.col("stage")
    )
    assert build("steps", replace(training, lanes=lanes))["slowest_stage"].null_count() == 4


def test_of_two_equally_slow_stages_neither_is_the_slowest() -> None:
    table = build("steps", simulate_training("--stage-costs 1,1.3,1.3,1"))
    assert table["slowest_stage"].null_count() == len(table)


def test_kinds_are_those_of_the_jobs(training: Training) -> None:
    kinds = build("kinds", training)
    assert kinds["job_count"].sum() == training.jobs.height
    first = training.jobs.join(training.lanes.select("lane", "stage"), on="lane").filter(
        stage=0, kind="forward"
    )
    compute = first["compute_end_ns"] - first["compute_start_ns"]
    row = kinds.filter(stage=0, kind="forward").row(0, named=True)
    assert (row["median_ns"], row["min_ns"], row["max_ns"], row["total_ns"]) == (
        compute.median(),
        compute.min(),
        compute.max(),
        compute.sum(),
    )


def test_the_ideal_bubble_is_what_lanes_do_not_spend_in_jobs(training: Training) -> None:
    jobs = training.jobs.filter(pl.col("lane") < 2).group_by("lane", "step", maintain_order=True).first()
    length = pl.when(pl.col("lane") == 0).then(30).otherwise(10)
    ideal = conform(jobs.with_columns(start_ns=pl.lit(0), end_ns=length), IDEAL)
    assert build("lanes", replace(training, ideal=ideal))["ideal_bubble_ns"].to_list() == [0, 20, *[None] * 6]
    steps = build("steps", replace(training, ideal=ideal))
    assert steps["ideal_bubble_fraction"].to_list() == pytest.approx([20 / 60] * 4)


@pytest.mark.parametrize(
    ("name", "chunks", "expected"),
    [
        ("1f1b", 1, 3 / 11),
        ("gpipe", 1, 3 / 11),
        ("interleaved", 2, 3 / 19),
        ("zb-h1", 1, None),
        ("unknown", 0, None),
    ],
)
def test_ideal_bubbles_have_the_published_closed_forms(
    name: str, chunks: int, expected: float | None
) -> None:
    schedule = Schedule(
        name=name, source="given", stage_count=4, micro_batch_count=8, chunk_count=chunks, agreement=1.0
    )
    _, closed = ideal_bubble_fraction(schedule)
    assert closed == expected


def test_an_unknown_schedule_says_why() -> None:
    unknown = Schedule(
        name="unknown",
        source="",
        stage_count=0,
        micro_batch_count=0,
        chunk_count=0,
        agreement=0.0,
        reason="no stage is known",
    )
    row = build("schedule", replace(simulate_training(), schedule=unknown)).row(0, named=True)
    assert (row["sentence"], row["stage_count"], row["formula"]) == ("no stage is known", None, None)
    assert row["bubble_fraction"] > 0


def test_links_hold_the_waits_and_transfers_of_their_messages(training: Training) -> None:
    links = build("links", training)
    assert links["message_count"].sum() == training.transfers.height
    for row in links.rows(named=True):
        transfers = training.transfers.filter(sender=row["sender"], receiver=row["receiver"])
        assert row["median_wait_ns"] == transfers["receive_wait_ns"].median()
        assert row["median_transfer_ns"] == transfers["transfer_ns"].median()
    between = links.filter("is_between_machines").select("sender_stage", "receiver_stage").unique()
    assert sorted(between.rows()) == [(1, 2), (2, 1)]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[PipelineResult, pl.DataFrame]:
    """Two ranks of vLLM, whose iterations have no numbers."""
    folder = tmp_path_factory.mktemp("served")
    drawn = draw_serving(13, engine="vllm", count=24)
    load = replace(drawn.load, tp=2, graphs="full", sync_every=1, late_sync=False)
    # the second rank is captured later
    serving = replace(drawn, load=load, first=(0, 3), offset_ns=(0, 7_000_000), is_one_report=False)
    workers = serve(serving, 13)
    write_reports(folder, serving, workers)
    return nsys_pp.pipeline([folder]), list_truth(serving, workers)


def _list_complete(training: Training, truth: pl.DataFrame) -> pl.DataFrame:
    """List the truth of batches that are complete: neither the last one of a rank, nor of a partial step."""
    partial = training.steps.filter("is_partial").join(training.lanes.select("lane", "rank"), on="lane")
    cut = [*partial.select("rank", "step").rows()]
    return truth.drop_nulls("gap_ns").filter(
        ~pl.struct("rank", "batch").map_elements(
            lambda row: (row["rank"], row["batch"]) in cut, return_dtype=pl.Boolean
        )
    )


def test_ranks_share_the_numbers_of_iterations(served: tuple[PipelineResult, pl.DataFrame]) -> None:
    result, truth = served
    training = result.training
    batches = training.batches.join(training.lanes.select("lane", "rank"), on="lane")
    found = batches.sort("rank", "step").select("rank", "step").rows()
    assert found == truth.sort("rank", "batch").select("rank", "batch").rows()


def test_iterations_are_described_by_kind(served: tuple[PipelineResult, pl.DataFrame]) -> None:
    result, truth = served
    table = build_iteration_table(result.training)
    complete = _list_complete(result.training, truth)
    assert table["lane_iteration_count"].sum() == len(complete)
    for row in table.rows(named=True):
        rows = complete.filter(kind=row["batch"]).rows(named=True)
        times, gaps = [one["end_ns"] - one["start_ns"] for one in rows], [one["gap_ns"] for one in rows]
        counts = (row["lane_iteration_count"], row["iteration_count"])
        assert counts == (len(rows), len({one["batch"] for one in rows}))
        assert (row["median_ns"], row["median_gap_ns"]) == (statistics.median(times), statistics.median(gaps))
        assert row["gap_fraction"] == pytest.approx(sum(gaps) / (sum(times) + sum(gaps)))
        for name in ACTIVITIES:
            share = sum(one[f"{name}_ns"] for one in rows) / sum(gaps)
            assert row[f"{name}_fraction"] == pytest.approx(share, abs=0.02)
        tokens = sum(one["context_tokens"] + one["generation_tokens"] for one in rows)
        assert row["tokens_per_s"] == pytest.approx(tokens / ((sum(times) + sum(gaps)) / 1e9))
        assert row["mean_generation_requests"] == pytest.approx(
            sum(one["generation_requests"] for one in rows) / len(rows)
        )
        kernels = sum(one["kernel_ns"] for one in rows)
        assert row["graph_fraction"] == pytest.approx(sum(one["graph_ns"] for one in rows) / kernels)
    decode = table.filter(batch="decode").row(0, named=True)
    assert decode["graph_fraction"] > 0.5
    assert decode["graph_launch_fraction"] == pytest.approx(1 / 3)  # and two kernels that sample


@pytest.fixture(scope="module")
def result() -> PipelineResult:
    return nsys_pp.pipeline([PIPELINE])


def test_families_of_jobs_add_up_to_their_kernels(result: PipelineResult) -> None:
    table = TABLES["families"].build(result.training)
    assert table["total_ns"].sum() == result.training.kernels.drop_nulls("step")["total_ns"].sum()
    of_kind = table.group_by("kind").agg(pl.col("fraction").sum())
    assert of_kind["fraction"].to_list() == pytest.approx([1.0] * len(of_kind))
    # the simulator's forwards and backwards have products, their messages nothing but communication
    rows = {(row["kind"], row["family"]) for row in table.rows(named=True)}
    assert {("forward", "GEMM"), ("backward", "attention"), ("optimizer", "optimizer")} <= rows
    assert {family for kind, family in rows if kind in ("send", "receive")} == {"communication"}
    assert "unknown" not in table["family"]


_CUTS: dict[str, pl.Expr] = {
    "none": pl.lit(value=False),
    "one step": pl.col("step") == 10,
    "every step on some lane": pl.when(step=10).then(pl.col("lane") < 3).otherwise(pl.col("lane") >= 3),
    "all": pl.lit(value=True),
}


@pytest.fixture(params=_CUTS)
def cut(request: pytest.FixtureRequest) -> tuple[str, Training, Training]:
    training = simulate_training("--steps 2 --micro-batches 4 --dp 2 --jitter 0.01")
    return request.param, training, cut_training(training, _CUTS[request.param])


def test_means_are_those_of_whole_steps_of_the_run(cut: tuple[str, Training, Training]) -> None:
    name, full, training = cut
    whole = {
        "none": pl.lit(value=True),
        "one step": pl.col("step") == 11,
        "every step on some lane": (pl.col("step") == 10) == (pl.col("lane") >= 3),
        "all": pl.lit(value=True),  # of what is recorded
    }[name]
    rows = sum_lane_steps(training if name == "all" else full).filter(whole).to_dicts()
    selected = select_whole_steps(training)
    assert [(row["lane"], row["step"]) for row in selected.to_dicts()] == [
        (row["lane"], row["step"]) for row in rows
    ]
    assert selected["span_ns"].to_list() == [row["span_ns"] for row in rows]
    lanes = TABLES["lanes"].build(training)
    for lane in lanes.to_dicts():
        own = [row["span_ns"] for row in rows if row["lane"] == lane["lane"]]
        assert lane["span_ns"] == pytest.approx(sum(own) / len(own))
    assert TABLES["stages"].build(training)["lane_count"].sum() == lanes.height
    is_gray = build_rank_steps(Evidence(training)).filter(~pl.col("is_complete")).height
    assert is_gray == {"none": 0, "one step": 8, "every step on some lane": 8, "all": 16}[name]


def test_samples_are_those_of_whole_steps_of_the_run(cut: tuple[str, Training, Training]) -> None:
    name, full, training = cut
    samples = sample_training(training)["ranks"]
    of_run = sample_training(full)["ranks"]
    key = ["subject", "metric", "step"]
    assert samples.rows() == of_run.join(samples, on=key, how="semi", maintain_order="left").rows()
    assert samples.height == {"none": 16, "one step": 8, "every step on some lane": 8, "all": 0}[name]
    facts, of_run_facts = describe_training(training), describe_training(full)
    if name == "all":
        with pytest.raises(ComparisonError, match="run B has no complete step"):
            compare_facts(of_run_facts, facts)
    else:
        assert len(compare_facts(of_run_facts, facts))


def test_a_run_of_cut_steps_has_a_note(cut: tuple[str, Training, Training]) -> None:
    name, _, training = cut
    assert describe_cuts(training.steps) == {
        "none": [],
        "one step": [],
        "every step on some lane": [
            "every step is cut by the capture on some rank: means of stages and lanes are of the 8 of 8 ranks with a whole step"
        ],
        "all": [
            "every step is cut by the capture on every rank: times of steps are those of the recorded parts"
        ],
    }.get(name)
    assert describe_cuts(training.steps.clear()) == []


def test_a_part_of_a_step_has_no_utilisation(cut: tuple[str, Training, Training]) -> None:
    name, _, training = cut
    gpus = ("NVIDIA H100 80GB HBM3",) * 8
    work = Work(flops=1e12, formula="", data_type="bf16", gpus=gpus, gpu_count=8)
    table = UTILISATION_TABLE.build(training, work)
    assert table["step"].to_list() == ([11] if name == "one step" else [10, 11])
    assert table["mfu_fraction"].is_not_null().to_list() == [name in ("none", "one step")] * len(table)


def test_a_micro_batch_without_its_forward_is_not_compared() -> None:
    """The capture of lane 0 begins after the forwards of a GPipe step: of its micro-batches, only backwards are recorded."""
    training = simulate_training("--steps 1 --micro-batches 4 --dp 2 --schedule gpipe --jitter 0.01")
    own = Evidence(cut_training(training, pl.col("lane") == 0)).own_compute
    assert sorted(own["lane"].unique()) == training.lanes["lane"].to_list()[1:]
    assert compare_members(own, member="lane", group=["stage"], least=0.03).slow == []


WAITS = (
    "message",
    "message_wait",
    "message_transfer",
    "collective",
    "collective_wait",
    "collective_transfer",
)


def with_slow_rank(training: Training, lane: int, since: int, factor: float) -> Training:
    """Make the jobs of a rank longer since a step."""
    is_slow = (pl.col("lane") == lane) & (pl.col("step") >= since)
    longer = pl.when(is_slow).then((pl.col("compute_ns") * factor).cast(pl.Int64)).otherwise("compute_ns")
    return replace(training, jobs=training.jobs.with_columns(compute_ns=longer))


def own_excess(training: Training, lane: int, step: int) -> float | None:
    """Compare the own compute of a lane with its peers, micro-batch by micro-batch."""
    stages = dict(training.lanes.select("lane", "stage").iter_rows())
    own: dict[tuple[int, int | None], int] = {}
    for job in training.jobs.filter(step=step).to_dicts():
        if job["kind"] in ("forward", "backward") and job["compute_start_ns"] is not None:
            key = job["lane"], job["micro_batch"]
            own[key] = own.get(key, 0) + job["compute_ns"]
    excesses = []
    for (of_lane, batch), value in own.items():
        if of_lane != lane or value <= 0:
            continue
        others = {
            other: time for (other, at), time in own.items() if at == batch and other != lane and time > 0
        }
        peers = [time for other, time in others.items() if stages[other] == stages[lane]]
        if not peers:  # alone on its stage: the fastest ranks of the other stages
            fastest: dict[int | None, int] = {}
            for other, time in others.items():
                fastest[stages[other]] = min(time, fastest.get(stages[other], time))
            peers = [*fastest.values()]
        if peers:
            excesses.append(value / statistics.median(peers) - 1)
    return statistics.median(excesses) if excesses else None


@given(
    lanes=st.integers(1, 6),
    per_stage=st.integers(1, 3),
    steps=st.integers(1, 3),
    slow=st.tuples(st.integers(0, 5), st.integers(0, 2), st.sampled_from([1.0, 1.3, 2.0])),
)
@settings(max_examples=count_draws(40))
def test_values_are_those_of_the_definition(
    lanes: int, per_stage: int, steps: int, slow: tuple[int, int, float]
) -> None:
    made = make_large_training(lanes=lanes, steps=steps, micro_batches=2, per_stage=per_stage)
    training = with_slow_rank(made, *slow)
    rows = build_rank_steps(Evidence(training))
    assert rows.select("lane", "step").rows() == [
        (lane, step) for lane in range(lanes) for step in range(steps)
    ]
    for row in rows.to_dicts():
        excess = own_excess(training, row["lane"], row["step"])
        assert row["excess_fraction"] == (None if excess is None else pytest.approx(excess))
        states = training.lane_states.filter(lane=row["lane"], step=row["step"]).to_dicts()
        for name, causes in (("wait_ns", WAITS), ("late_ns", ("host", "data"))):
            times = (state["end_ns"] - state["start_ns"] for state in states if state["cause"] in causes)
            assert row[name] == sum(times)
        assert row["end_ns"] - row["start_ns"] == row["span_ns"]


def test_many_steps_are_combined() -> None:
    training = make_large_training(lanes=2, steps=5, micro_batches=2, per_stage=2)
    single, blocks = build_rank_steps(Evidence(training)), build_rank_steps(Evidence(training), most_cells=4)
    assert blocks.select("lane", "step", "last_step").rows() == [
        (lane, first, min(first + 2, 4)) for lane in (0, 1) for first in (0, 3)
    ]
    first = single.filter(pl.col("lane") == 0, pl.col("step") < 3)
    row = blocks.row(0, named=True)
    assert row["bubble_ns"] == pytest.approx(first["bubble_ns"].mean())
    assert row["excess_fraction"] == first["excess_fraction"].max()
    assert (row["start_ns"], row["end_ns"]) == (first["start_ns"].min(), first["end_ns"].max())


@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=7))
@settings(max_examples=count_draws(40))
def test_shown_steps_have_the_median_and_the_greatest_length(lengths: list[int]) -> None:
    base = make_large_training(lanes=2, steps=len(lengths), micro_batches=1, per_stage=2)
    of_step = pl.col("step").replace_strict(dict(enumerate(lengths)), return_dtype=pl.Int64)
    steps = base.steps.with_columns(end_ns=pl.col("start_ns") + of_step * 1_000_000_000)
    training = replace(base, steps=steps)
    ordered = sorted((length, step) for step, length in enumerate(lengths))
    typical = ordered[(len(ordered) - 1) // 2]
    longest = max(lengths)
    expected = [("typical", typical[1])] + [("worst", lengths.index(longest))] * (longest > typical[0])
    shown = choose_steps(training, measure_steps(Evidence(training)))
    assert [(step.role, step.step) for step in shown] == expected
    for step in shown:
        rows = sum_lane_steps(training).filter(step=step.step)
        assert step.start_ns == rows["start_ns"].min() - training.zero_ns  # type: ignore[operator]
        assert step.end_ns == rows["end_ns"].max() - training.zero_ns  # type: ignore[operator]
        assert step.span_ns == step.end_ns - step.start_ns

from __future__ import annotations

import polars as pl
import pytest

from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.training import JOBS, LANES, ROSTER_WITH_BOUNDS, STEPS, Training
from nsys_pp.training.lanes import build_lanes
from tests.training.scheduled_runs import RUNS, build_scheduled_run, fill_columns, simulate_run

_JOBS = build_schema({"report": pl.UInt32, **JOBS})
_STEPS = build_schema({"report": pl.UInt32, **STEPS})
_KEYS = ("report", "process_key", "device_id")
KNOWN = ("stage", "replica", "tensor")


def roster(rows: list[dict[str, object]]) -> pl.DataFrame:
    usual = {
        "machine": "node",
        "machine_order": 0,
        "process_key": 1,
        "device_id": 0,
        "pid": 1,
        "gpu": "GPU 0",
        "clock_group": 0,
        "bound_ns": 0,
    }
    return fill_columns(
        pl.DataFrame(
            [usual | {"report": at, "clock": at} | row for at, row in enumerate(rows)],
            infer_schema_length=None,
        ),
        ROSTER_WITH_BOUNDS,
    )


def roster_of(
    training: Training, *, unknown: tuple[str, ...] = KNOWN, bound_ns: int | None = 1_000
) -> pl.DataFrame:
    """The roster of a simulated run, of which nothing tells some columns; in no special order."""
    lanes = training.lanes.with_columns(
        *(pl.lit(None).alias(name) for name in unknown),
        machine_order=pl.col("machine").rank("dense"),
        stage_source=pl.lit(None if "stage" in unknown else "--layout"),
        clock="report",
        clock_group=pl.lit(0),
        bound_ns=pl.lit(bound_ns),
        pid="process_key",
    )
    return fill_columns(lanes.sample(fraction=1, shuffle=True, seed=1), ROSTER_WITH_BOUNDS)


def jobs_of(training: Training, *, unknown: tuple[str, ...] = ("virtual_stage", "stage")) -> pl.DataFrame:
    jobs = training.jobs.join(training.lanes.select("lane", *_KEYS), on="lane").with_columns(
        pl.lit(None).alias(name) for name in unknown
    )
    return fill_columns(jobs, _JOBS)


def stages(lanes: pl.DataFrame) -> list[int | None]:
    return lanes.sort("report")["stage"].to_list()


def true_stages(training: Training) -> list[int | None]:
    return training.lanes.sort("report")["stage"].to_list()


def test_stages_of_the_roster_come_first_and_order_the_lanes() -> None:
    training = simulate_run("--schedule 1f1b --dp 2 --tp 2 --order dp-tp-pp")
    lanes, notes = build_lanes(roster_of(training, unknown=()), jobs_of(training))
    names = ("lane", "rank", *KNOWN, "stage_source", "label", "report", "process_key", "device_id", "machine")
    assert lanes.select(names).equals(training.lanes.select(names))
    assert lanes.schema == LANES
    assert not notes


@pytest.mark.parametrize("run", RUNS)
def test_first_forwards_tell_stages(run: str) -> None:
    training = simulate_run(RUNS[run])
    lanes, notes = build_lanes(roster_of(training), jobs_of(training))
    assert stages(lanes) == true_stages(training)
    assert lanes["stage_source"].unique().to_list() == ["first forwards"]
    assert not notes


def test_stages_against_the_order_of_ranks_are_noted() -> None:
    training = simulate_run(RUNS["1f1b"])
    backwards = roster_of(training).with_columns(rank=pl.col("rank").max() - pl.col("rank"))
    lanes, notes = build_lanes(backwards, jobs_of(training))
    assert stages(lanes) == true_stages(training)
    assert len(notes) == 1
    assert "inferred from when GPUs begin" in notes[0]


@pytest.mark.few(6)
@pytest.mark.parametrize(
    "trouble",
    [
        "--stall 10=30",
        "--stage-costs 1,3,0.3,1",
        *(f"--slow-rank {rank}=1.3" for rank in range(8)),
        "--slow-rank 3=1.6",
        "--jitter 0.3",
    ],
)
def test_first_forwards_tell_stages_whatever_goes_wrong(trouble: str) -> None:
    training = simulate_run(f"--schedule 1f1b --dp 2 --steps 3 {trouble}")
    lanes, _ = build_lanes(roster_of(training), jobs_of(training))
    assert stages(lanes) == true_stages(training)


@pytest.mark.parametrize("run", ["interleaved", "interleaved in 3", "dualpipev", "1f1b"])
def test_virtual_stages_in_names_tell_stages(run: str) -> None:
    training = simulate_run(RUNS[run])
    count = training.schedule.stage_count
    stage = pl.col("lane").replace_strict(dict(training.lanes.select("lane", "stage").iter_rows()))

    def place(chunk: str) -> pl.Expr:
        if training.schedule.name == "dualpipev":
            return (
                pl.when(pl.col(chunk) == 1).then(2 * count - 1 - stage).when(pl.col(chunk) == 0).then(stage)
            )
        return pl.col(chunk) * count + stage

    named = training.jobs.with_columns(
        virtual_stage=place("chunk"), backward_virtual_stage=place("backward_chunk"), lane="lane"
    )
    jobs = fill_columns(named.join(training.lanes.select("lane", *_KEYS), on="lane"), _JOBS)
    lanes, notes = build_lanes(roster_of(training, bound_ns=None), jobs)
    assert stages(lanes) == true_stages(training)
    assert lanes["stage_source"].unique().to_list() == ["job names"]
    assert not notes


def test_stages_in_names_tell_stages() -> None:
    training = simulate_run(RUNS["gpipe"])
    jobs = jobs_of(training).with_columns(stage=3 - pl.col("report").cast(pl.Int64))
    lanes, _ = build_lanes(roster_of(training), jobs)
    assert stages(lanes) == [3, 2, 1, 0]


def test_captures_that_begin_in_different_steps_do_not_matter() -> None:
    training = simulate_run("--schedule 1f1b --steps 4")
    jobs = jobs_of(training).filter((pl.col("report") != 1) | (pl.col("step") > 11))
    first = pl.col("step").min().over("report")
    counted = jobs.with_columns(step=pl.col("step") - first)
    lanes, _ = build_lanes(roster_of(training), counted)
    assert stages(lanes) == true_stages(training)


def test_steps_that_are_cut_do_not_count() -> None:
    training = simulate_run("--schedule 1f1b --steps 2")
    jobs = jobs_of(training).filter(
        (pl.col("report") != 0) | (pl.col("step") == 11) | (pl.col("micro_batch") > 4)
    )
    steps = fill_columns(
        pl.DataFrame(
            [
                {**dict(zip(_KEYS, key, strict=True)), "step": step, "is_partial": key[0] == 0 and step == 10}
                for key in training.lanes.select(_KEYS).rows()
                for step in (10, 11)
            ]
        ),
        _STEPS,
    )
    lanes, _ = build_lanes(roster_of(training), jobs, steps)
    assert stages(lanes) == true_stages(training)
    wrong, _ = build_lanes(roster_of(training), jobs)
    assert stages(wrong) != true_stages(training)


def test_groups_of_unequal_size_are_no_stages() -> None:
    training = simulate_run("--schedule 1f1b --dp 2")
    found = roster_of(training).filter(pl.col("report") != 3)
    lanes, notes = build_lanes(found, jobs_of(training))
    assert lanes["stage"].null_count() == len(lanes) == 7
    assert lanes["stage_source"].null_count() == 7
    assert "groups of one size" in notes[0]


@pytest.mark.parametrize("bound_ns", [None, 10_000_000])
def test_clocks_that_are_not_known_well_tell_no_stages(bound_ns: int | None) -> None:
    training = simulate_run("--schedule 1f1b")
    lanes, notes = build_lanes(roster_of(training, bound_ns=bound_ns), jobs_of(training))
    assert lanes["stage"].null_count() == len(lanes)
    assert "clocks are not known well enough" in notes[0]


def test_lanes_of_one_clock_need_no_bounds() -> None:
    training = simulate_run("--schedule 1f1b")
    roster = roster_of(training, bound_ns=None).with_columns(clock=pl.lit(0, pl.UInt32))
    lanes, _ = build_lanes(roster, jobs_of(training))
    assert lanes.sort("rank")["stage"].to_list() == [0, 1, 2, 3]


def test_clocks_of_different_groups_tell_no_stages() -> None:
    training = simulate_run("--schedule 1f1b")
    groups = roster_of(training, bound_ns=0).with_columns(clock_group=pl.col("rank").cast(pl.UInt32) // 2)
    lanes, notes = build_lanes(groups, jobs_of(training))
    assert lanes["stage"].null_count() == len(lanes)
    assert "clocks are not known well enough" in notes[0]


def delay_replica(training: Training, share: float) -> pl.DataFrame:
    """Return the jobs of a run whose second replica begins later, by a share of a forward."""
    late = training.lanes.filter(replica=1)["report"].implode()
    jobs = jobs_of(training)
    forward = jobs.filter(kind="forward").select((pl.col("end_ns") - pl.col("start_ns")).median()).item()
    moved = pl.when(pl.col("report").is_in(late)).then(int(share * forward)).otherwise(0)
    times = ("start_ns", "end_ns", "compute_start_ns", "compute_end_ns")
    return jobs.with_columns(pl.col(name) + moved for name in times)


@pytest.mark.parametrize("share", [0.9, 1.5])
def test_replicas_that_begin_at_different_times_are_no_stages(share: float) -> None:
    training = simulate_run("--schedule 1f1b --dp 2 --jitter 0")
    lanes, notes = build_lanes(roster_of(training), delay_replica(training, share))
    assert lanes["stage"].null_count() == len(lanes)
    assert "groups of one size" in notes[0]


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_a_stage_begins_after_a_forward_of_the_previous_stage(share: float) -> None:
    """A replica that is late by less than a forward cannot be of a later stage."""
    training = simulate_run("--schedule 1f1b --dp 2 --jitter 0")
    lanes, _ = build_lanes(roster_of(training), delay_replica(training, share))
    assert stages(lanes) == true_stages(training)


def test_a_lane_without_jobs_has_no_stage_and_stands_last() -> None:
    training = simulate_run("--schedule 1f1b")
    first = training.lanes["report"][0]
    jobs = jobs_of(training).filter(pl.col("report") != first)
    lanes, _ = build_lanes(roster_of(training), jobs)
    assert lanes.select("rank", "stage").rows() == [(1, 0), (2, 1), (3, 2), (0, None)]


def test_stages_that_the_roster_lacks_for_some_are_told() -> None:
    training = simulate_run("--schedule 1f1b")
    is_known = pl.col("rank") < 2
    some = roster_of(training, unknown=()).with_columns(
        pl.when(is_known).then(name).alias(name) for name in ("stage", "stage_source")
    )
    lanes, notes = build_lanes(some, jobs_of(training))
    assert lanes.select("rank", "stage").rows() == [(0, 0), (1, 1), (2, None), (3, None)]
    assert notes == ["the stages of 2 GPU processes that ran jobs are unknown; specify `--layout`"]


def test_every_device_of_a_process_is_a_lane_and_reports_without_any_are_none() -> None:
    rows: list[dict[str, object]] = [
        {"gpu": "GPU 10", "device_id": 1, "report": 0},
        {"gpu": "GPU 9", "device_id": 0, "report": 0},
        {"process_key": None, "device_id": None, "report": 1},
    ]
    lanes, notes = build_lanes(roster(rows), _JOBS.to_frame())
    assert lanes.select("lane", "device_id", "label").rows() == [(0, 0, "node GPU 9"), (1, 1, "node GPU 10")]
    assert not notes


def test_labels_are_short_and_unique() -> None:
    rows: list[dict[str, object]] = [
        {"rank": 3},
        {"rank": 4, "gpu": "GPU 0"},
        {"rank": 4, "gpu": "GPU 1"},
        {"gpu": "GPU 2", "pid": 7},
        {"gpu": "GPU 2", "pid": 8},
        {"gpu": "GPU 3", "pid": 8, "machine": "node2", "machine_order": 1},
        {"gpu": "GPU 4", "pid": 9},
        {"gpu": "GPU 4", "pid": 9},
    ]
    lanes, _ = build_lanes(roster(rows), _JOBS.to_frame())
    assert lanes["label"].to_list() == [
        "rank 3",
        "rank 4, GPU 0",
        "rank 4, GPU 1",
        "node GPU 2, process 7",
        "node GPU 2, process 8",
        "node GPU 4, process 9, lane 5",
        "node GPU 4, process 9, lane 6",
        "node2 GPU 3",
    ]


def test_no_reports_no_lanes() -> None:
    lanes, notes = build_lanes(ROSTER_WITH_BOUNDS.to_frame(), _JOBS.to_frame())
    assert lanes.equals(LANES.to_frame())
    assert not notes


def test_one_lane_alone_has_no_stage() -> None:
    training = build_scheduled_run("1f1b", stages=1, micro_batches=4)
    found = roster([{"rank": 0}])
    jobs = fill_columns(training.jobs.with_columns(report=0, process_key=1, device_id=0), _JOBS)
    lanes, notes = build_lanes(found, jobs)
    assert lanes["stage"].to_list() == [None]
    assert not notes


@pytest.mark.parametrize(
    ("gone", "bound_ns", "why"),
    [
        ({0}, None, "rank 0 is missing"),
        ({1, 2}, None, "rank 1 is missing, and 1 more"),
        (
            {1, 2},
            1_000,
            "rank 1 is missing, and 1 more",
        ),  # ranks 0 and 3 are the first and last of 2 or of 4 stages
    ],
)
def test_first_forwards_tell_no_stages_where_ranks_are_missing(
    gone: set[int], bound_ns: int | None, why: str
) -> None:
    """The reason is the missing rank, also where clocks are unknown: it has a remedy."""
    training = simulate_run("--schedule 1f1b")
    found = roster_of(training, bound_ns=bound_ns).filter(~pl.col("rank").is_in(list(gone)))
    lanes, notes = build_lanes(found, jobs_of(training))
    assert lanes["stage"].null_count() == len(lanes) == 4 - len(gone)
    assert notes == [f"stages are unknown: {why}; specify `--layout`"]


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_stages_are_found_where_one_grid_of_ranks_fits_those_that_are_there(gone: int) -> None:
    training = simulate_run("--schedule 1f1b")
    lanes, notes = build_lanes(
        roster_of(training, bound_ns=1_000).filter(pl.col("rank") != gone), jobs_of(training)
    )
    assert stages(lanes) == [stage for stage in true_stages(training) if stage != gone]  # of one rank each
    assert lanes["stage_count"].to_list() == [4] * 3
    assert notes == [
        f"rank {gone} is missing; that there are 4 stages is inferred from when GPUs begin their first forwards"
    ]


def test_a_lane_of_unknown_rank_may_be_the_missing_one() -> None:
    training = simulate_run("--schedule 1f1b")
    found = roster_of(training).with_columns(rank=pl.when(pl.col("rank") != 1).then("rank"))
    lanes, _ = build_lanes(found, jobs_of(training))
    assert stages(lanes) == true_stages(training)

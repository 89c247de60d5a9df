from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.training import CAUSES, PAUSE_NS, Training
from nsys_pp.tables.critical_path import find_critical_path
from nsys_pp.tables.training import build_critical_table, build_path_table
from tests.training.expected_training import Row, build_small_training, simulate_training


def path_of(training: Training) -> list[tuple[object, ...]]:
    return find_critical_path(training).select("lane", "cause", "kind", "start_ns", "end_ns").rows()


# states of lanes, jobs of lanes, and the path
PATHS: dict[str, tuple[list[Row], list[tuple[int, str, int, int]], list[tuple[object, ...]]]] = {
    "it goes on with the lane that was late": (
        [
            (0, "compute", 0, 20, None),
            (0, "idle", 20, 50, None),
            (1, "message_wait", 0, 22, 0),
            (1, "message_transfer", 22, 25, None),
            (1, "compute", 25, 50, None),
        ],
        [(0, "forward", 0, 10), (0, "forward", 10, 20), (1, "forward", 25, 35), (1, "backward", 35, 50)],
        [
            (0, "compute", "forward", 0, 10),
            (0, "compute", "forward", 10, 20),
            (0, "host", None, 20, 22),  # the message was sent late
            (1, "message_transfer", None, 22, 25),
            (1, "compute", "forward", 25, 35),
            (1, "compute", "backward", 35, 50),
        ],
    ),
    "what the sender computes meanwhile has no part in it": (
        [
            (0, "compute", 0, 10, None),
            (0, "message_wait", 10, 12, 1),
            (0, "compute", 12, 30, None),
            (1, "message_wait", 0, 15, 0),
            (1, "compute", 15, 40, None),
        ],
        [(0, "forward", 0, 10), (0, "backward", 12, 30), (1, "forward", 15, 40)],
        [(0, "compute", "forward", 0, 10), (0, "host", None, 10, 15), (1, "compute", "forward", 15, 40)],
    ),
    "a send that seems to begin before its job ended is of that job": (
        [(0, "compute", 0, 20, None), (1, "message_wait", 0, 19, 0), (1, "compute", 19, 40, None)],
        [(0, "forward", 0, 20), (1, "forward", 19, 40)],
        [(0, "compute", "forward", 0, 19), (1, "compute", "forward", 19, 40)],
    ),
    "a late member of a collective takes it": (
        [
            (0, "compute", 0, 30, None),
            (0, "collective_transfer", 30, 35, None),
            (0, "compute", 35, 39, None),
            (1, "compute", 0, 10, None),
            (1, "collective_wait", 10, 30, 0),
            (1, "collective_transfer", 30, 35, None),
            (1, "compute", 35, 40, None),
        ],
        [],
        [
            (0, "compute", None, 0, 30),
            (1, "collective_transfer", None, 30, 35),
            (1, "compute", None, 35, 40),
        ],
    ),
    "pauses belong to the compute around them": (
        [(0, "compute", 0, 4, None), (0, "pause", 4, 5, None), (0, "compute", 5, 10, None)],
        [(0, "forward", 0, 10)],
        [(0, "compute", "forward", 0, 10)],
    ),
    "a pause after a job belongs to it": (
        [(0, "compute", 0, 9_000, None)],
        [(0, "forward", 0, 1_000), (0, "forward", 2_000, 4_000), (0, "forward", 7_000, 8_000)],
        [
            (0, "compute", "forward", 0, 2_000),
            (0, "compute", "forward", 2_000, 4_000),
            (0, "compute", None, 4_000, 7_000),
            (0, "compute", "forward", 7_000, 9_000),
        ],
    ),
    "before its first step a lane is idle": (
        [(0, "compute", 0, 4, None), (0, "idle", 4, 30, None), (1, "compute", 10, 30, None)],
        [],
        [(1, "idle", None, 0, 10), (1, "compute", None, 10, 30)],
    ),
}


@pytest.mark.parametrize(("states", "jobs", "path"), PATHS.values(), ids=PATHS)
def test_paths_of_a_few_states(
    states: list[Row], jobs: list[tuple[int, str, int, int]], path: list[tuple[object, ...]]
) -> None:
    assert path_of(build_small_training(states, jobs)) == path


def test_messages_within_a_stage_are_exchanged_inside_of_jobs() -> None:
    training = build_small_training(
        [
            (0, "compute", 0, 10, None),
            (0, "message_wait", 10, 50, 2),  # for the next input of the stage
            (0, "compute", 50, 90, None),
            (1, "compute", 0, 48, None),
            (1, "message_wait", 48, 55, 0),  # for its neighbour in the ring
            (1, "compute", 55, 100, None),
            (2, "compute", 0, 50, None),
        ],
        [(0, "forward", 0, 10), (0, "forward", 50, 90), (1, "forward", 52, 100), (2, "forward", 0, 50)],
    )
    stages = training.lanes.with_columns(stage=pl.Series([0, 0, 1], dtype=pl.Int64))
    assert path_of(replace(training, lanes=stages)) == [
        (2, "compute", "forward", 0, 50),
        (0, "compute", "forward", 50, 55),
        (1, "compute", "forward", 55, 100),
    ]


def test_lanes_that_wait_for_each_other_do_not_loop() -> None:
    training = build_small_training(
        [
            (0, "compute", 0, 5, None),
            (0, "message_wait", 5, 20, 1),
            (0, "compute", 20, 30, None),
            (1, "compute", 0, 4, None),
            (1, "message_wait", 4, 20, 0),
            (1, "compute", 20, 25, None),
        ]
    )
    segments = path_of(training)
    assert (segments[0][3], segments[-1][4]) == (0, 30)
    assert [one[1] for one in segments] == ["compute", "message_wait", "compute"]


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "options",
    [
        "",
        "--schedule gpipe",
        "--schedule interleaved",
        "--schedule zb-h1",
        "--schedule dualpipev --micro-batches 8",
        "--slow-rank 5=1.2",
    ],
)
def test_the_path_tiles_every_simulated_step(options: str) -> None:
    training = simulate_training(options)
    assert_tiles(training)
    path = find_critical_path(training)
    duration = pl.col("end_ns") - pl.col("start_ns")
    assert path.filter(cause="message_wait").is_empty()  # somebody else was late in each
    compute = path.filter(cause="compute").select(duration.sum()).item()
    assert compute > 0.9 * path.select(duration.sum()).item()
    work = path.drop_nulls("job")
    jobs = training.jobs.select("job", "kind", "lane", job_start_ns="start_ns", job_end_ns="end_ns")
    within = work.join(jobs, on=["job", "kind", "lane"]).filter(
        pl.col("job_start_ns") <= pl.col("start_ns"), pl.col("end_ns") <= pl.col("job_end_ns") + PAUSE_NS
    )
    assert within.height == work.height


def test_the_path_of_gpipe_is_what_its_schedule_says() -> None:
    """The first micro-batch to the slowest stage, all that one has to do, and the last one back."""
    training = simulate_training("--schedule gpipe --stage-costs 1,1,1,1.3 --steps 1")
    jobs = find_critical_path(training).group_by("stage", "kind").agg(pl.col("job").n_unique())
    for kind in ("forward", "backward"):
        assert jobs.filter(kind=kind).sort("stage")["job"].to_list() == [1, 1, 1, 4]


def test_a_slow_stage_takes_the_path() -> None:
    table = build_critical_table(simulate_training("--stage-costs 1,1.5,1,1 --micro-batches 8"))
    share = table.filter(cause="compute").group_by("stage").agg(pl.col("fraction").sum()).sort("fraction")
    assert share["stage"].to_list()[-1] == 1
    assert share["fraction"].to_list()[-1] > 0.5
    assert table["fraction"].sum() == pytest.approx(1)
    assert table["most_gain_ns"].to_list() == pytest.approx((table["time_ns"] / 10).to_list())


def assert_tiles(training: Training) -> None:
    """Check that the segments of every step follow each other from its first start to its last end."""
    spans = training.steps.group_by("step").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("step")
    path = find_critical_path(training)
    found = path.group_by("step", maintain_order=True).agg(
        pl.col("start_ns").first(),
        pl.col("end_ns").last(),
        is_joined=(pl.col("start_ns").slice(1) == pl.col("end_ns").slice(0, pl.len() - 1)).all(),
        total_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
    )
    assert found.select("step", "start_ns", "end_ns").equals(spans)
    assert found["is_joined"].all()
    assert found["total_ns"].to_list() == (spans["end_ns"] - spans["start_ns"]).to_list()
    assert (path["end_ns"] > path["start_ns"]).all()


lanes_of_states = st.lists(
    st.tuples(
        st.integers(0, 5),  # when the lane begins
        st.lists(
            st.tuples(st.sampled_from(CAUSES), st.integers(1, 9), st.none() | st.integers(0, 2)),
            min_size=1,
            max_size=12,
        ),
    ),
    min_size=1,
    max_size=3,
)


@given(
    lanes_of_states,
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from(["forward", "backward", "forward_backward", "send"]),
            st.integers(0, 60),
            st.integers(0, 20),
        ),
        max_size=12,
    ),
)
@settings(deadline=None, max_examples=100)
def test_whatever_the_pieces_the_path_tiles_the_step(
    lanes: list[tuple[int, list[tuple[str, int, int | None]]]], jobs: list[tuple[int, str, int, int]]
) -> None:
    rows: list[Row] = []
    for lane, (now, lane_states) in enumerate(lanes):
        for cause, length, late in lane_states:
            rows.append((lane, cause, now, now + length, late))
            now += length
    training = build_small_training(
        rows, [(lane, kind, start, start + length) for lane, kind, start, length in jobs]
    )
    if any(row[1] == "compute" for row in rows):
        assert_tiles(training)
    else:
        assert find_critical_path(training).is_empty()


def test_work_on_the_path_has_the_role_of_its_job() -> None:
    training = build_small_training(
        [(0, "compute", 0, 20, None), (0, "idle", 20, 21, None), (0, "compute", 21, 50, None)],
        [(0, "forward", 0, 10), (0, "forward", 10, 20), (0, "backward", 21, 50)],
    )
    assert build_critical_table(training)["role"].null_count() == len(build_critical_table(training))
    roles = ["reference", "actor", "actor"]
    of_roles = replace(training, jobs=training.jobs.with_columns(role=pl.Series(roles)))
    assert build_path_table(of_roles).select("kind", "role", "end_ns").drop_nulls("kind").rows() == [
        ("forward", "reference", 10),
        ("forward", "actor", 20),
        ("backward", "actor", 50),
    ]
    sums = build_critical_table(of_roles).drop_nulls("kind").select("kind", "role", "segment_count")
    assert sorted(sums.rows()) == [
        ("backward", "actor", 1),
        ("forward", "actor", 1),
        ("forward", "reference", 1),
    ]

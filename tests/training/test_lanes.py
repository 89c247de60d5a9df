"""Lanes and their stages, against simulated runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.training import (
    GATHERED_FRAMES,
    JOBS,
    LANES,
    ROSTER_WITH_BOUNDS,
    STEPS,
    Training,
)
from nsys_pp.training.lanes import build_lanes, find_rank_grid, find_stages_of_peers
from nsys_pp.training.numbering import (
    describe_restart,
    number_steps,
)
from tests.training.expected_training import RUNS, STEPS_BY_LANE, fill_columns, simulate_run

_JOBS = build_schema({"report": pl.UInt32, **JOBS})


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


@pytest.fixture
def training() -> Training:
    return simulate_run("--schedule 1f1b")


def test_stages_of_the_roster_come_first_and_order_the_lanes() -> None:
    training = simulate_run("--schedule 1f1b --dp 2 --tp 2 --order dp-tp-pp")
    lanes, notes = build_lanes(roster_of(training, unknown=()), jobs_of(training))
    names = ("lane", "rank", *KNOWN, "stage_source", "label", "report", "process_key", "device_id", "machine")
    assert lanes.select(names).equals(training.lanes.select(names))
    assert lanes.schema == LANES
    assert not notes


def test_stages_against_the_order_of_ranks_are_noted() -> None:
    training = simulate_run(RUNS["1f1b"])
    backwards = roster_of(training).with_columns(rank=pl.col("rank").max() - pl.col("rank"))
    lanes, notes = build_lanes(backwards, jobs_of(training))
    assert (stages(lanes), len(notes)) == (true_stages(training), 1)
    assert "inferred from how many forwards GPUs run before their first backward" in notes[0]


@pytest.mark.parametrize("run", ["1f1b --dp 2", "interleaved --chunks 2", "zb-h1", "gpipe"])
def test_forwards_before_the_first_backward_need_no_clock(run: str) -> None:
    training = simulate_run(f"--schedule {run}")
    lanes, _ = build_lanes(roster_of(training, bound_ns=None), jobs_of(training))
    expected = [None] * len(lanes) if run == "gpipe" else true_stages(training)
    assert stages(lanes) == expected


def test_forwards_before_the_first_backward_tell_nothing_where_a_rank_is_missing() -> None:
    training = simulate_run("--schedule 1f1b")
    roster, jobs = (frame.filter(pl.col("report") != 0) for frame in (roster_of(training), jobs_of(training)))
    lanes, _ = build_lanes(roster.with_columns(run_size=pl.lit(4, pl.Int64)), jobs)
    assert set(lanes["stage_source"]) <= {None, "first forwards"}


@pytest.mark.few(3)
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


def test_steps_that_are_cut_do_not_count() -> None:
    training = simulate_run("--schedule gpipe --steps 2")
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
        build_schema({"report": pl.UInt32, **STEPS}),
    )
    lanes, _ = build_lanes(roster_of(training), jobs, steps)
    assert stages(lanes) == true_stages(training)
    wrong, _ = build_lanes(roster_of(training), jobs)
    assert stages(wrong) != true_stages(training)


def delay_replica(training: Training, share: float) -> pl.DataFrame:
    """Return the jobs of a run whose second replica begins later, by a share of a forward."""
    late = training.lanes.filter(replica=1)["report"].implode()
    jobs = jobs_of(training)
    forward = jobs.filter(kind="forward").select((pl.col("end_ns") - pl.col("start_ns")).median()).item()
    moved = pl.when(pl.col("report").is_in(late)).then(int(share * forward)).otherwise(0)
    times = ("start_ns", "end_ns", "compute_start_ns", "compute_end_ns")
    return jobs.with_columns(pl.col(name) + moved for name in times)


@pytest.mark.parametrize(
    ("options", "share", "bound_ns", "words"),
    [
        ("", 0, None, "clocks are not known well enough"),
        ("", 0, 10_000_000, "clocks are not known well enough"),
        # replicas that begin at different times are no stages
        ("--dp 2 --jitter 0", 0.9, 1_000, "groups of one size"),
        ("--dp 2 --jitter 0", 1.5, 1_000, "groups of one size"),
    ],
)
def test_times_that_are_not_comparable_tell_no_stages(
    options: str, share: float, bound_ns: int | None, words: str
) -> None:
    training = simulate_run(f"--schedule gpipe {options}")
    lanes, notes = build_lanes(roster_of(training, bound_ns=bound_ns), delay_replica(training, share))
    assert lanes["stage"].null_count() == len(lanes)
    assert words in notes[0]


def test_a_lane_without_jobs_has_no_stage_and_stands_last(training: Training) -> None:
    jobs = jobs_of(training).filter(pl.col("report") != training.lanes["report"][0])
    lanes, _ = build_lanes(roster_of(training), jobs)
    assert lanes.select("rank", "stage").rows() == [(1, 0), (2, 1), (3, 2), (0, None)]


def test_stages_that_the_roster_lacks_for_some_are_told(training: Training) -> None:
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
    gone: set[int], bound_ns: int | None, why: str, training: Training
) -> None:
    """The reason is the missing rank, also where clocks are unknown: it has a remedy."""
    found = roster_of(training, bound_ns=bound_ns).filter(~pl.col("rank").is_in(list(gone)))
    lanes, notes = build_lanes(found, jobs_of(training))
    assert lanes["stage"].null_count() == len(lanes) == 4 - len(gone)
    assert notes == [f"stages are unknown: {why}; specify `--layout`"]


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_stages_are_found_where_one_grid_of_ranks_fits_those_that_are_there(
    gone: int, training: Training
) -> None:
    lanes, notes = build_lanes(
        roster_of(training, bound_ns=1_000).filter(pl.col("rank") != gone), jobs_of(training)
    )
    assert stages(lanes) == [stage for stage in true_stages(training) if stage != gone]  # of one rank each
    assert lanes["stage_count"].to_list() == [4] * 3
    assert notes == [
        f"rank {gone} is missing; that there are 4 stages is inferred from when GPUs begin their first "
        "forwards"
    ]


def test_a_lane_of_unknown_rank_may_be_the_missing_one(training: Training) -> None:
    found = roster_of(training).with_columns(rank=pl.when(pl.col("rank") != 1).then("rank"))
    lanes, _ = build_lanes(found, jobs_of(training))
    assert stages(lanes) == true_stages(training)


_KEY_TYPES = {"report": pl.UInt32, "process_key": pl.Int64, "device_id": pl.Int32}


_STEP_NS, _FORWARD_NS, _PAUSE_NS = 10_000, 1_000, 100


Message = tuple[int, str, int, int]  # lane, verb, peer lane, time in the step


def list_messages(chains: list[list[int]], *, is_ring: bool) -> list[Message]:
    """List the messages of one micro-batch: activations along each chain of lanes, gradients back.

    A ring also around its ends.
    """
    messages: list[Message] = []
    for chain in chains:
        edges = list(itertools.pairwise(chain))
        for before, (sender, receiver) in enumerate([*edges, *([(chain[-1], chain[0])] if is_ring else [])]):
            sent = (before + 1) * _FORWARD_NS
            messages += [(sender, "send", receiver, sent), (receiver, "receive", sender, sent)]
            back = _STEP_NS // 2 + (len(chain) - before) * _FORWARD_NS // 2
            messages += [(receiver, "send", sender, back), (sender, "receive", receiver, back)]
    return messages


def find(
    chains: list[list[int]],
    messages: Iterable[Message],
    *,
    steps: int = 3,
    is_paired: bool = False,
    ranks: list[int | None] | None = None,
    starts: Callable[[int], int] = lambda stage: stage * _FORWARD_NS + 2 * _PAUSE_NS,
) -> dict[int, int]:
    """Return the stage found of each lane.

    `is_paired`: a communicator for each two lanes, else for each chain.
    """
    stage_of = {lane: stage for chain in chains for stage, lane in enumerate(chain)}
    chain_of = {lane: number for number, chain in enumerate(chains) for lane in chain}
    ranks = ranks or list(range(len(stage_of)))
    keys = {"process_key": 1, "device_id": 0}
    lanes = pl.DataFrame([{**keys, "report": lane, "rank": ranks[lane]} for lane in sorted(stage_of)])
    first_forwards = pl.DataFrame(
        [
            {
                **keys,
                "report": lane,
                "step": step,
                "start_ns": step * _STEP_NS + starts(stage),
                "host_end_ns": step * _STEP_NS + starts(stage) + _FORWARD_NS,
            }
            for lane, stage in stage_of.items()
            for step in range(steps)
        ]
    )
    rows = []
    for lane, verb, peer, at in messages:
        members = sorted((lane, peer)) if is_paired else sorted(chains[chain_of[lane]])
        if peer not in members:
            members = sorted((lane, peer))
        for step in range(steps):
            rows.append(
                {
                    **keys,
                    "report": lane,
                    "step": step,
                    "verb": verb,
                    "communicator": hash(tuple(members)) % 2**63,
                    "peer": members.index(peer),
                    "launch_ns": step * _STEP_NS + at - _PAUSE_NS,
                    "start_ns": step * _STEP_NS + at - _PAUSE_NS,
                    "end_ns": step * _STEP_NS + at + _PAUSE_NS,
                }
            )
    found = find_stages_of_peers(
        fill_columns(lanes, build_schema({**_KEY_TYPES, "rank": pl.Int64})),
        fill_columns(
            first_forwards,
            build_schema({**_KEY_TYPES, "step": pl.Int64, "start_ns": pl.Int64, "host_end_ns": pl.Int64}),
        ),
        fill_columns(pl.DataFrame(rows, infer_schema_length=None), GATHERED_FRAMES["messages"]),
    )
    return dict(found.select("report", "stage").iter_rows())


@given(
    pp=st.integers(2, 6), replicas=st.integers(1, 4), is_ring=st.booleans(), is_paired=st.booleans(),
    is_spread=st.booleans(),
)  # fmt: skip
def test_stages_of_pipelines_are_found(
    pp: int, replicas: int, is_ring: bool, is_paired: bool, is_spread: bool
) -> None:
    """Interleaved pipelines are rings; ranks are laid out along the pipeline, or across it."""
    numbers = range(pp * replicas)
    chains = [list(numbers[first::replicas]) if is_spread else list(numbers[first * pp : (first + 1) * pp])
              for first in range(replicas)]  # fmt: skip
    is_ring = is_ring and pp > 2  # of two stages, a message around the ends is one between neighbours
    found = find(chains, list_messages(chains, is_ring=is_ring), is_paired=is_paired)
    assert found == {lane: stage for chain in chains for stage, lane in enumerate(chain)}


PAIR = [[0, 1], [2, 3]]


@given(
    stride=st.integers(1, 4),
    count=st.integers(1, 6),
    outer=st.integers(1, 4),
    data=st.data(),
)
def test_a_grid_of_ranks_has_the_true_stages_or_none(
    stride: int, count: int, outer: int, data: st.DataObject
) -> None:
    size = stride * count * outer
    gone = data.draw(st.sets(st.integers(0, size - 1), max_size=size - 1))
    ranks = [rank for rank in range(size) if rank not in gone]
    true = [rank // stride % count for rank in ranks]
    groups = [sorted(set(true)).index(stage) for stage in true]
    grid = find_rank_grid(pl.DataFrame({"rank": ranks, "stage": groups}), len(gone))
    if grid is not None:
        assert (grid["stage"].to_list(), grid["stage_count"].unique().to_list()) == (true, [count])
    else:
        assert len(gone) > 1 or size < 3  # one missing rank leaves no doubt


def test_an_exchange_within_a_stage_is_no_pipeline() -> None:
    """As of ring attention: both lanes begin their forward, then each receives from the other."""
    ring = [
        (lane, verb, peer, 2 * _FORWARD_NS)
        for pair in PAIR
        for lane, peer in (pair, pair[::-1])
        for verb in ("send", "receive")
    ]
    assert find(PAIR, ring) == {}
    assert find(PAIR, ring, starts=lambda _: 5 * _FORWARD_NS) == {}  # both before their forward


@pytest.mark.parametrize(
    "extra",
    [
        (0, "send", 2, 4_000),  # between pipelines
        (0, "receive", 2, 4_000),
    ],
)
def test_messages_between_pipelines_leave_stages_unknown(extra: Message) -> None:
    lane, verb, peer, at = extra
    opposite = (peer, "receive" if verb == "send" else "send", lane, at)
    assert find(PAIR, list_messages(PAIR, is_ring=False))
    assert find(PAIR, [*list_messages(PAIR, is_ring=False), extra, opposite]) == {}


def test_unknown_ranks_and_missing_messages_leave_stages_unknown() -> None:
    messages = list_messages(PAIR, is_ring=False)
    assert find(PAIR, messages, ranks=[0, None, 2, 3]) == {}
    assert find(PAIR, messages[:4]) == {}  # the second pipeline has none
    assert find(PAIR, [message for message in messages if message[:2] != (1, "receive")]) == {}


def steps(*rows: tuple[int, int, int, int, bool]) -> pl.DataFrame:
    """(lane, step, start, end, is numbered)"""
    frame = pl.DataFrame(rows, schema=["lane", "step", "start_ns", "end_ns", "is_numbered"], orient="row")
    return fill_columns(frame.with_columns(is_partial=False), STEPS_BY_LANE)


def of_reports(frame: pl.DataFrame, *, is_one: bool = False) -> pl.DataFrame:
    report = pl.lit(0, pl.UInt32) if is_one else pl.col("lane")
    return frame.select("lane", report=report, rank=pl.lit(None, pl.Int64)).unique()


def numbers(frame: pl.DataFrame, *, is_one: bool = False) -> list[tuple[int, int, int]]:
    return number_steps(frame, of_reports(frame, is_one=is_one)).rows()


def test_gpus_of_one_report_that_work_in_turn_share_no_step() -> None:
    """Three steps on the first GPU, then four on the second one."""
    found = steps(
        *((0, at, 100 * at, 100 * at + 100, False) for at in range(3)),
        *((1, at, 1000 + 100 * at, 1100 + 100 * at, False) for at in range(4)),
    )
    assert [number for _, _, number in numbers(found, is_one=True)] == [*range(7)]
    assert [number for _, _, number in numbers(found)] == [0, 1, 2, 0, 1, 2, 3]  # captures of two programs


# (lane, step, start, end, is numbered) and the numbers in this order
NUMBERED = {
    "lane 1 begins its second capture a step later than lane 0": (
        [
            *[(0, 0, 100, 200, False), (0, 1, 200, 300, False), (0, 3, 1000, 1100, False)],
            *[(0, 4, 1100, 1200, False), (1, 0, 110, 210, False), (1, 1, 210, 310, False)],
            (1, 3, 1110, 1210, False),
        ],
        [0, 1, 2, 3, 0, 1, 3],
    ),
    "counted steps take the numbers of those that are named": (
        [
            *[(0, 10, 100, 200, True), (0, 20, 200, 300, True), (1, 0, 10, 105, False)],
            *[(1, 1, 105, 205, False), (1, 2, 205, 305, False), (1, 3, 305, 405, False)],
        ],
        [10, 20, 9, 10, 20, 21],
    ),
    "steps without a name on a lane that names others lie before and after": (
        [(0, 0, 50, 100, False), (0, 10, 100, 200, True), (0, 11, 200, 300, True), (0, 1, 300, 340, False)],
        [9, 10, 11, 12],
    ),
}


@pytest.mark.parametrize(("rows", "expected"), NUMBERED.values(), ids=NUMBERED)
def test_steps_are_numbered_by_time_and_name(
    rows: list[tuple[int, int, int, int, bool]], expected: list[int]
) -> None:
    assert [number for *_, number in numbers(steps(*rows))] == expected


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6), st.integers(-40, 40)), min_size=1, max_size=5),
    st.booleans(),
)
def test_counted_steps_get_the_number_of_the_step_that_they_are(
    captures: list[tuple[int, int, int]], is_first_numbered: bool
) -> None:
    """Lanes begin in any step and lag by up to two fifths of a step; the first one sees all."""
    rows = [(0, step, 100 * step, 100 * step + 100, is_first_numbered) for step in range(16)]
    for lane, (first, count, lag) in enumerate(captures, 1):
        rows += [
            (lane, at, 100 * (first + at) + lag, 100 * (first + at) + 100 + lag, False) for at in range(count)
        ]
    expected = [(lane, step, step + (captures[lane - 1][0] if lane else 0)) for lane, step, *_ in rows]
    assert numbers(steps(*rows)) == expected


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.booleans(), st.permutations(range(8)), st.integers(1, 8), st.integers(-5, 5)),
        min_size=1,
        max_size=4,
    )
)
def test_a_number_is_of_one_step_of_a_lane(captures: list[tuple[bool, list[int], int, int]]) -> None:
    """Numbers in names in any order, and counted steps of other captures at any time."""
    rows = [
        (lane, names[at] if is_named else at, 100 * (first + at), 100 * (first + at) + 100, is_named)
        for lane, (is_named, names, count, first) in enumerate(captures)
        for at in range(count)
    ]
    found = numbers(steps(*rows))
    assert [(lane, step) for lane, step, _ in found] == [(lane, step) for lane, step, *_ in rows]
    assert len({(lane, number) for lane, _, number in found}) == len(rows)


def test_names_of_a_counter_that_restarts_identify_no_steps() -> None:
    """The first lane records steps 10, 11 and 12, the second one 12, and 10 and 11 after a restart."""
    found = steps(
        *((0, 10 + at, 100 * at, 100 * at + 100, True) for at in range(3)),
        *((1, step, 100 * at + 1, 100 * at + 101, True) for at, step in [(2, 12), (3, 10), (4, 11)]),
    )
    assert numbers(found) == [(0, 10, 0), (0, 11, 1), (0, 12, 2), (1, 12, 2), (1, 10, 3), (1, 11, 4)]
    (note,) = describe_restart(found, number_steps(found, of_reports(found)))
    assert "restart during the run" in note


def test_a_number_that_the_lane_has_already_is_given_to_no_other_step() -> None:
    found = steps(
        (0, 10, 100, 200, True), (1, 10, 100, 140, True), (1, 0, 60, 90, False), (1, 11, 210, 220, True)
    )
    assert (1, 0, 10) not in numbers(found)
    assert [step for lane, step, _ in numbers(found) if lane == 1 and step != 0] == [10, 11]

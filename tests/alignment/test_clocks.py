"""Clocks against the truth, on clusters drawn from distributions."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from numpy.typing import NDArray

from nsys_pp.alignment.clocks import Alignment, align_clocks
from nsys_pp.alignment.events import RECEIVE, SEND, START_WITHOUT_UTC_NS, guess_clocks
from nsys_pp.alignment.fit import find_groups
from nsys_pp.alignment.solution import bound_groups
from nsys_pp.frames.clock import ANCHORS, CLOCKS
from nsys_pp.frames.report import Session
from tests.alignment.cluster import (
    Cluster,
    Recording,
    errors_ns,
    record,
    report_bounds_ns,
    to_trace_ns,
)
from tests.draws import count_draws
from tests.training.expected_training import PIPELINE, survey

US = 1_000


def align(recording: Recording) -> Alignment:
    return align_clocks(recording.reports, recording.anchors)


@cache
def record_and_align(cluster: Cluster) -> tuple[Recording, Alignment]:
    """Record and align a cluster once for all tests of this module that change neither."""
    recording = record(cluster)
    return recording, align(recording)


def hold_bounds(recording: Recording, alignment: Alignment) -> NDArray[np.float64]:
    """Hold that no clock is wrong by more than its bound; return the errors."""
    errors = errors_ns(alignment, recording.clocks)
    assert (errors <= report_bounds_ns(alignment)).all()
    return errors


CLUSTERS = {
    "two machines": Cluster(machines=2, gpus=1),
    "three steps": Cluster(machines=2, gpus=2, steps=3),
    "sixteen machines, four stages": Cluster(machines=16, gpus=2, stages=4),
    "tensor parallel, dense on every machine": Cluster(machines=4, gpus=4, tensor=4),
    "a report per machine": Cluster(machines=6, gpus=4, tensor=2, per_machine=True),
    "system clocks": Cluster(machines=4, gpus=4, stages=2, shares_system_clock=True),
    "captures of different windows": Cluster(machines=8, gpus=2, stages=2, window_ns=1_500_000_000),
    "NCCL tells communicators": Cluster(machines=4, gpus=4, stages=2, tensor=2, has_communicators=True),
    "no collective of all ranks": Cluster(machines=8, gpus=2, stages=2, has_world=False),
    "buffered messages": Cluster(machines=4, gpus=2, stages=4, buffered=True),
    "many wrong ends": Cluster(machines=8, gpus=1, steps=40, outliers=0.05),
    "a long run": Cluster(machines=4, gpus=1, steps=200, step_ns=500_000_000),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS)
def test_clocks_are_known_to_microseconds_and_the_bound_holds(cluster: Cluster) -> None:
    recording, alignment = record_and_align(cluster)
    errors = hold_bounds(recording, alignment)
    assert alignment.clocks["group"].n_unique() == 1
    assert np.median(errors) <= 5 * US
    assert np.quantile(errors, 0.99) <= 20 * US


@pytest.mark.few(6)
@pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS)
def test_no_message_arrives_before_it_is_sent(cluster: Cluster) -> None:
    recording, alignment = record_and_align(cluster)
    clock_map = alignment.report_clocks
    for sender, start, receiver, end in recording.messages:
        assert to_trace_ns(clock_map[sender], start) <= to_trace_ns(clock_map[receiver], end)


@pytest.mark.draws
def test_the_bound_holds_for_nearly_every_clock_of_many_clusters() -> None:
    inside, clocks = 0, 0
    for seed, machines in itertools.product(range(count_draws(12, least=2)), (2, 5, 12)):
        recording = record(Cluster(machines=machines, gpus=1 + seed % 2, steps=8, seed=seed))
        alignment = align(recording)
        errors, bounds = errors_ns(alignment, recording.clocks), report_bounds_ns(alignment)
        inside += int((errors <= bounds).sum())
        clocks += len(errors)
    assert inside >= 0.99 * clocks


def test_a_session_with_few_operations_has_a_bound_by_the_others_of_its_machine() -> None:
    """Its bound is that of the best of them, and the error of recorded UTC."""
    recording = record(Cluster(machines=1, gpus=4, steps=6))
    anchors = [*recording.anchors[:3], recording.anchors[3].filter(pl.col("kind") == "collective").head(2)]
    alignment = align_clocks(recording.reports, anchors)
    hold_bounds(recording, alignment)
    assert alignment.clocks["group"].n_unique() == 1
    assert report_bounds_ns(alignment).max() <= 2_500 * US


@pytest.mark.parametrize("travel_us", [10, 150])
@pytest.mark.parametrize("seed", range(3))
def test_messages_from_buffers_align_where_nothing_else_is_shared(seed: int, travel_us: int) -> None:
    """Sends end before their messages arrive: bounds hold the time of the transfer, or are unknown."""
    cluster = Cluster(
        machines=3,
        gpus=1,
        stages=3,
        has_world=False,
        buffered=True,
        travel_ns=travel_us * US,
        early_ns=20_000 * US,
        offset_ns=300 * US,
        seed=seed,
    )
    recording, alignment = record_and_align(cluster)
    assert not any((frame["kind"] == "collective").any() for frame in recording.anchors)
    errors = hold_bounds(recording, alignment)
    assert alignment.clocks["group"].n_unique() == 1
    assert alignment.clocks["source"].to_list() == ["send/receive"] * 3
    if travel_us == 10:
        assert errors.max() <= 50 * US  # two transfers


def test_three_exact_operations_outweigh_many_near_ones() -> None:
    """Neighbours of neighbours share only the gradient norms of three steps; messages between others agree to 25 us."""
    parts = [survey(PIPELINE / name) for name in ("node2/rank0.sqlite", "node10/rank2.sqlite")]
    alignment = align_clocks(
        [part.facts.session for part in parts], [part.frames["anchors"] for part in parts]
    )
    assert alignment.clocks["collective_count"].to_list() == [3, 3]
    assert alignment.clocks["offset_ns"].to_list() == [0, 0]
    assert report_bounds_ns(alignment).max() < 30 * US


def test_mapped_times_never_run_backwards() -> None:
    for clock_map in align(record(Cluster(machines=6, gpus=1))).report_clocks:
        assert (np.diff(clock_map.from_ns) > 0).all()
        assert (np.diff(clock_map.offset_ns) >= 0).all()
        assert np.diff(clock_map.offset_ns).max(initial=0) <= 1_001  # steps between pieces are limited


def test_one_bad_machine_moves_no_other() -> None:
    """A report with ends scattered by milliseconds is not matched, or has a large bound."""
    recording = record(Cluster(machines=6, gpus=1, steps=40))
    random = np.random.Generator(np.random.PCG64(5))
    noise = pl.Series(random.normal(0, 3e6, len(recording.anchors[2])).astype(np.int64))
    recording.anchors[2] = recording.anchors[2].with_columns(end_ns=pl.col("end_ns") + noise)
    alignment = align(recording)
    errors, bounds = errors_ns(alignment, recording.clocks), report_bounds_ns(alignment)
    assert (errors[[0, 1, 3, 4, 5]] <= 5 * US).all()
    assert errors[2] <= bounds[2]


def test_machines_that_share_nothing_are_left_where_utc_puts_them() -> None:
    recording = record(Cluster(machines=2, gpus=1))
    other = record(Cluster(machines=2, gpus=1, seed=9))
    reports = [*recording.reports, *(replace(one, machine="x" + one.machine) for one in other.reports)]
    alone = replace(reports[0], machine="alone")
    clocks = align_clocks([*reports, alone], [*recording.anchors, *other.anchors, ANCHORS.to_frame()]).clocks
    assert (clocks["group"].n_unique(), clocks["source"].to_list()) == (3, ["collectives"] * 4 + ["UTC"])
    assert (clocks["bound_ns"].is_null().to_list(), clocks["offset_ns"][4]) == ([False] * 4 + [True], 0)


def test_a_regular_run_does_not_fool_it() -> None:
    """With nearly equal steps, an offset of a whole step fits as well: then UTC is used."""
    for seed in range(8):
        cluster = Cluster(machines=3, gpus=1, steps=12, step_ns=20_000_000, jitter=1e-6, buckets=1, seed=seed)
        hold_bounds(*record_and_align(cluster))


@pytest.mark.few(1)
@pytest.mark.draws
@pytest.mark.parametrize("lockstep_ns", [100 * US, 270 * US, 600 * US])
def test_groups_of_stages_in_lockstep_do_not_place_sessions_that_recorded_utc_places(
    lockstep_ns: int,
) -> None:
    """Without communicators, the groups of all stages look like one; what all ranks share, and recorded UTC, say otherwise."""
    for seed in range(count_draws(12, least=3)):
        cluster = Cluster(
            machines=1,
            gpus=8,
            stages=4,
            tensor=2,
            steps=2,
            buckets=0,
            lockstep_ns=lockstep_ns,
            skew_ns=500,
            drift_ppm=0,
            utc_error_ns=5 * US,
            outliers=0.0,
            seed=seed,
        )
        assert hold_bounds(*record_and_align(cluster)).max() < 20 * US


def test_a_single_shared_operation_is_used_with_caution() -> None:
    recording, alignment = record_and_align(Cluster(machines=2, gpus=1, steps=1, buckets=0, drift_ppm=0))
    assert errors_ns(alignment, recording.clocks).max() <= 20 * US
    assert alignment.clocks["collective_count"].to_list() == [1, 1]
    assert (alignment.clocks["bound_ns"] >= 100 * US).all()


def test_utc_can_be_taken_as_it_is() -> None:
    recording = record(Cluster(machines=2, gpus=1))
    alignment = align_clocks(recording.reports, recording.anchors, mode="utc")
    assert [int(clock_map.offset_ns[0]) for clock_map in alignment.report_clocks] == [
        one.utc_epoch_ns for one in recording.reports
    ]
    assert alignment.clocks["source"].to_list() == ["UTC", "UTC"]


def test_without_any_clock_sessions_start_together() -> None:
    recording = record(Cluster(machines=2, gpus=1))
    alignment = align_clocks(recording.reports, recording.anchors, mode="none")
    assert len({int(clock_map.offset_ns[0]) for clock_map in alignment.report_clocks}) == 1
    assert not alignment.is_utc
    assert alignment.clocks["source"].to_list() == ["nothing", "nothing"]


def test_a_given_offset_stands_whatever_else_is_known() -> None:
    recording = record(Cluster(machines=3, gpus=1, drift_ppm=0))
    overridden = align_clocks(recording.reports, recording.anchors, overrides_ns={"node1": -1_200_000})
    epoch = recording.reports[1].utc_epoch_ns
    assert epoch is not None
    assert overridden.clocks["source"].to_list() == ["collectives", "given", "collectives"]
    assert abs(int(overridden.report_clocks[1].offset_ns[0]) - epoch + 1_200_000) < 1_000


def test_reports_without_utc_are_placed_by_what_they_share() -> None:
    recording = record(Cluster(machines=3, gpus=1, offset_ns=100_000_000))
    recording.reports[1] = replace(recording.reports[1], utc_epoch_ns=None)
    alignment = align(recording)
    assert errors_ns(alignment, recording.clocks).max() <= 10 * US
    assert alignment.without_utc == [1]


def test_the_order_of_reports_does_not_matter() -> None:
    recording = record(Cluster(machines=5, gpus=1, steps=6))
    order = [3, 0, 4, 1, 2]
    turned = Recording(
        [recording.reports[at] for at in order],
        [recording.anchors[at] for at in order],
        [recording.clocks[at] for at in order],
    )
    one, other = align(recording), align(turned)
    assert errors_ns(other, turned.clocks).max() <= 5 * US
    for at, row in enumerate(order):
        apart = one.report_clocks[row].offset_ns[0] - other.report_clocks[at].offset_ns[0]
        assert (
            abs(int(apart) - int(one.report_clocks[3].offset_ns[0] - other.report_clocks[0].offset_ns[0]))
            < 2 * US
        )


def test_clocks_are_as_good_after_the_recorded_end_of_a_capture() -> None:
    """Events may be later than a duration says: damaged reports, and exports whose times were shifted by hand."""
    recording = record(CLUSTERS["a long run"])
    early = [replace(session, capture_end_ns=session.time_shift_ns + 1) for session in recording.reports]
    assert hold_bounds(recording, align_clocks(early, recording.anchors)).max() <= 20 * US


def test_one_report_needs_no_clock() -> None:
    recording, alignment = record_and_align(Cluster(machines=1, gpus=1))
    assert (alignment.clocks.schema, alignment.clocks["source"].to_list()) == (CLOCKS, ["alone"])
    assert alignment.report_clocks[0].offset_ns.tolist() == [recording.reports[0].utc_epoch_ns]


def test_a_session_that_shares_nothing_stands_like_others_of_its_machine() -> None:
    recording = record(Cluster(machines=2, gpus=2, drift_ppm=50))
    recording.anchors[1] = ANCHORS.to_frame()
    alignment = align(recording)
    assert alignment.clocks["source"].to_list() == [
        "collectives",
        "same machine",
        "collectives",
        "collectives",
    ]
    assert report_bounds_ns(alignment)[1] > 1_000_000
    assert hold_bounds(recording, alignment)[1] < 300 * US  # each session reads UTC separately


@pytest.mark.draws
def test_sessions_of_one_machine_are_never_far_apart() -> None:
    """Three steps of a run that nearly repeats itself a micro-batch later."""
    for seed in range(count_draws(9, least=3)):
        cluster = Cluster(machines=4, gpus=2, stages=4, steps=3, micro_batches=4, seed=seed)
        hold_bounds(*record_and_align(cluster))


@pytest.mark.parametrize("step_ns", [3_000_000, 8_600_000])
def test_utc_may_be_stepped_between_sessions_of_one_machine(step_ns: int) -> None:
    """In a run that nearly repeats itself: the operations of each session decide."""
    cluster = Cluster(
        machines=4, gpus=2, stages=4, steps=3, micro_batches=8, step_ns=60 * 10**6, jitter=0.003, skew_ns=US
    )
    recording = record(cluster)
    for number in range(1, len(recording.reports), 2):
        report = recording.reports[number]
        assert report.utc_epoch_ns is not None
        recording.reports[number] = replace(report, utc_epoch_ns=report.utc_epoch_ns + step_ns)
    alignment = align(recording)
    assert alignment.clocks["group"].n_unique() == 1
    assert hold_bounds(recording, alignment).max() < 100 * US


def make_session(
    epoch: int | None,
    shift: int = 0,
    *,
    machine: str = "node1",
    system: int | None = None,
    origin: int | None = None,
) -> Session:
    return Session(
        machine=machine,
        machine_source="hostname",
        utc_epoch_ns=epoch,
        system_clock_ns=system,
        origin_ns=origin,
        time_shift_ns=shift,
        capture_end_ns=10**9 + shift,
    )


def test_reports_of_one_machine_meet_on_its_system_clock() -> None:
    """Sessions read UTC separately, 30 us apart; they share the system clock."""
    first = make_session(5_000_000_000, system=1_000_000_000)
    second = make_session(5_700_030_000, 100, system=1_700_000_000)
    guess = guess_clocks([first, second, make_session(5_000_000_000, machine="node2", system=1_000_000_000)])
    assert guess.domain_of == [0, 0, 1]
    assert (guess.base_ns[1] + 100) - guess.base_ns[0] == 700_000_000
    assert guess.base_ns[0] in (5_000_000_000, 5_000_030_000)


def test_utc_need_not_be_believed() -> None:
    guess = guess_clocks([make_session(5 * 10**18), make_session(7 * 10**18, 50)], use_utc=False)
    assert [guess.base_ns[0], guess.base_ns[1] + 50] == [START_WITHOUT_UTC_NS] * 2


def test_captures_of_one_session_share_its_clock() -> None:
    """Origins as of three captures by nsys 2024.2, the second exported with a shift; then another session, and another machine."""
    sessions = [
        make_session(1795663238315963744, origin=1795663238024160581),
        make_session(1795663239771542010, 77, origin=1795663238024160581),
        make_session(1795663241088291648, origin=1795663238024160576),
        make_session(1795663242088291648, origin=1795663238024260581),
        make_session(1795663238315963744, machine="node2", origin=1795663238024160581),
        make_session(1795663238315963744, origin=1795663238024160581),  # at the time of the first one
    ]
    guess = guess_clocks(sessions)
    assert guess.domain_of == [0, 0, 0, 1, 2, 3]
    assert guess.base_ns[1] + 77 - guess.base_ns[0] == 1795663239771542010 - 1795663238315963744


def test_a_thousand_sessions_that_share_nothing_stay_at_utc() -> None:
    session = record(Cluster(machines=1, gpus=1, steps=2)).reports[0]
    sessions = [replace(session, machine=f"node{number}") for number in range(1_000)]
    assert align_clocks(sessions, [ANCHORS.to_frame()] * 1_000).clocks["source"].to_list() == ["UTC"] * 1_000


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 9)), max_size=30))
def test_groups_are_the_connected_clocks(seen: list[tuple[int, int]]) -> None:
    clock, instance = (np.array([pair[i] for pair in seen], dtype=np.int64) for i in (0, 1))
    group = find_groups(clock, instance, 8)
    together = {(a, a) for a in range(8)}
    for (a, i), (b, j) in itertools.product(seen, seen):
        if i == j:
            together.add((a, b))
    for k, a, b in itertools.product(range(8), range(8), range(8)):
        if (a, k) in together and (k, b) in together:
            together.add((a, b))
    assert all(((a, b) in together) == (group[a] == group[b]) for a in range(8) for b in range(8))
    assert (np.diff(np.bincount(group)) <= 0).all()


messages = st.lists(
    st.tuples(
        st.tuples(st.integers(0, 5), st.integers(0, 5)),  # clocks
        st.integers(-5, 100_000),
        st.integers(-9_000, 9_000) | st.sampled_from([90_000, math.nan]),
    ),
    max_size=9,
).flatmap(lambda few: st.integers(1, 9).map(lambda repeats: few * repeats))


@given(messages)
def test_reach_is_the_shortest_way_over_messages_in_both_directions_or_ended_together(
    sent: list[tuple[tuple[int, int], int, int]],
) -> None:
    sender, receiver = (np.array([row[0][i] for row in sent], dtype=np.int64) for i in range(2))
    slack, apart = (np.array([row[i] for row in sent], dtype=np.float64) for i in (1, 2))
    is_buffered = np.isnan(apart)
    reach = bound_groups(
        clock=np.append(sender, receiver),
        instance=np.tile(np.arange(len(sent)), 2),
        kind=np.repeat([SEND, RECEIVE], len(sent)),
        start_times=np.zeros(2 * len(sent)),
        ended=np.append(slack - np.where(is_buffered, 0, apart), slack),
        is_buffered=np.tile(is_buffered, 2),
        group=np.arange(6),
    )
    width = {}
    for a, b in itertools.product(range(6), range(6)):
        there = [max(0, s) for clocks, s, _ in sent if clocks == (a, b)]
        back = [max(0, s) for clocks, s, _ in sent if clocks == (b, a)]
        width[a, b] = max(min(there), min(back)) if there and back else math.inf
        apart_ns = [abs(ns) for clocks, _, ns in sent if clocks in ((a, b), (b, a)) and not math.isnan(ns)]
        if len(apart_ns) >= 8 and a != b and (largest := np.quantile(apart_ns, 0.95)) <= 20_000:
            width[a, b] = min(width[a, b], 2 * largest)
    shortest = [0.0 if a == 0 else math.inf for a in range(6)]
    for _ in range(6):
        shortest = [min([shortest[b], *(shortest[a] + width[a, b] for a in range(6))]) for b in range(6)]
    assert reach.tolist() == shortest

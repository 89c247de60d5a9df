"""Choice of the units that a timeline grows by: the shortcuts compare less, and find the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest

from nsys_pp.alignment import collectives, next_units
from nsys_pp.alignment.choice import Choice, choose
from nsys_pp.alignment.clocks import Alignment, align_clocks
from nsys_pp.alignment.events import Events
from nsys_pp.alignment.lines import Line
from nsys_pp.alignment.prior import Prior
from nsys_pp.alignment.timeline import RivalDistances, Timeline
from tests.alignment.cluster import Cluster, Recording, record

# clocks and ends without errors: what all ranks share is enough for a clear correction, and what neighbours share says more
PIPELINE = Cluster(
    machines=8,
    gpus=4,
    stages=8,
    steps=16,
    micro_batches=8,
    jitter=0.001,
    offset_ns=0,
    drift_ppm=0.0,
    utc_error_ns=0,
    skew_ns=0,
    outliers=0.0,
)


def _align(recording: Recording) -> tuple[Alignment, list[int]]:
    """Align a recording; also return the number of units of each comparison with a timeline."""
    compared: list[int] = []

    def count_and_choose(
        timeline: Timeline, joint: list[Timeline], prior: Prior, scatter_ns: float | None, *, threads: int = 1
    ) -> Choice | None:
        compared.append(len(joint))
        return choose(timeline, joint, prior, scatter_ns, threads=threads)

    with patch.object(collectives, "choose", count_and_choose):
        return align_clocks(recording.reports, recording.anchors), compared


@contextmanager
def _compare_all() -> Iterator[None]:
    """Compare all units before each choice: the definition."""
    with patch.object(next_units, "_EXPECTED", 0.0):
        yield


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "cluster",
    [
        PIPELINE,
        Cluster(machines=6, gpus=1, stages=3, drift_ppm=0.0, offset_ns=0),
        Cluster(machines=8, gpus=2, stages=4, tensor=2, has_communicators=True, steps=6),
        Cluster(machines=4, gpus=4, stages=4, buffered=True, has_world=False, steps=6),
        Cluster(machines=12, gpus=1, steps=12, jitter=0.0, outliers=0.05),
    ],
    ids=["pipeline", "no drift", "communicators", "buffered", "repeats"],
)
def test_clocks_are_those_of_comparing_all_units(cluster: Cluster) -> None:
    recording = record(cluster)
    found, compared = _align(recording)
    with _compare_all():
        expected, all_compared = _align(recording)
    assert len(compared) <= len(all_compared)
    assert found.clocks.equals(expected.clocks)
    for own, other in zip(found.report_clocks, expected.report_clocks, strict=True):
        assert own.from_ns.tolist() == other.from_ns.tolist()
        assert np.abs(own.offset_ns - other.offset_ns).max() <= 1


def test_machines_of_a_pipeline_are_compared_at_most_twice() -> None:
    """Each is compared with the first one, and with the stages before it, not with each timeline in between."""
    machines, within = PIPELINE.machines, PIPELINE.machines * (PIPELINE.gpus - 1)
    recording = record(PIPELINE)
    assert len(_align(recording)[1]) <= within + 2 * (machines - 1)
    with _compare_all():
        assert len(_align(recording)[1]) >= within + 3 * (machines - 1)


def test_operations_of_a_timeline_are_at_the_median_of_their_members() -> None:
    events = _draw_events(np.random.default_rng(1))
    count = len(events)
    rows_of = [np.flatnonzero(events.domain == domain) for domain in range(3)]
    timeline = Timeline(
        events=events,
        instance=np.full(count, -1),
        machine=np.zeros(3, dtype=np.int64),
        channel=events.channel.copy(),
    )
    for domain in (1, 2, 0):
        timeline.add(domain, rows_of[domain], Line(offset_ns=10.0 * domain, rate=1e-6 * domain), None)
        timeline.rival_distances[domain], timeline.rivals[domain] = RivalDistances(), []
        merged = timeline.merge_operations()
        members: dict[int, list[float]] = {}
        for added in timeline.lines:
            for row in rows_of[added].tolist():
                end = events.end[row]
                members.setdefault(int(timeline.instance[row]), []).append(
                    float(end + timeline.lines[added].at(end))
                )
        assert merged.end.tolist() == [
            sorted(members[instance])[(len(members[instance]) - 1) // 2] for instance in sorted(members)
        ]
        assert merged.key.tolist() == events.key[sorted(members)].tolist()
    assert max(map(len, members.values())) > 1
    others = timeline.without([2])
    assert len(others.merge_operations()) < len(merged)


def _draw_events(random: np.random.Generator) -> Events:
    """Draw operations of three domains that share most of them, each at about the same time."""
    ends = np.sort(random.uniform(0, 1e9, 40))
    kept = random.random((3, len(ends))) < 0.8
    domain, number = np.nonzero(kept)
    end = ends[number] + random.uniform(0, 2_000, len(number))
    zeros = np.zeros(len(domain), dtype=np.int64)
    return Events(
        origin_ns=0,
        domain=domain,
        report=domain,
        channel=domain,
        key=zeros,
        kind=zeros,
        start=end - 1e6,
        end=end,
        gap_before=np.full(len(domain), np.nan),
        gap_rank=zeros,
        has_communicator=zeros,
        rank=zeros - 1,
        peer=zeros - 1,
    )

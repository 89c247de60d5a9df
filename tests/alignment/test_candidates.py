"""Candidates of one comparison, whatever else happens to match."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.alignment.candidates import find_candidates
from nsys_pp.alignment.events import COLLECTIVE, RECEIVE, SEND, Events
from nsys_pp.alignment.near import Line, Reference, build_reference


def _draw_events(seed: int) -> Events:
    """Draw the collectives and messages of some channels, at irregular times."""
    random = np.random.default_rng(seed)
    channel = np.sort(random.integers(0, 4, 120))
    end = np.zeros(len(channel))
    gap = np.full(len(channel), np.nan)
    for number in range(4):
        own = channel == number
        end[own] = np.sort(random.uniform(0, 5e8, own.sum()))
        gap[own] = np.diff(end[own], prepend=np.nan)
    zeros = np.zeros(len(channel), dtype=np.int64)
    return Events(
        origin_ns=0,
        domain=zeros,
        report=zeros,
        channel=channel,
        key=channel // 2,
        kind=np.array([COLLECTIVE, COLLECTIVE, SEND, RECEIVE])[channel],
        start=end - 1e5,
        end=end,
        gap_before=gap,
        gap_rank=zeros + 1,
        has_communicator=zeros,
        rank=zeros - 1,
        peer=zeros - 1,
    )


def _observe(events: Events, seed: int) -> Reference:
    """Return a timeline on which other members have the events of a clock that is late, and some that nobody shares."""
    random = np.random.default_rng(seed)
    times = events.end + 3e6 + random.normal(0, 2_000.0, len(events))
    times = np.where(random.random(len(events)) < 0.2, random.uniform(0, 5e8, len(events)), times)
    kind = np.where(events.kind == SEND, RECEIVE, np.where(events.kind == RECEIVE, SEND, events.kind))
    others = Events(
        **{name: getattr(events, name) for name in events.__struct_fields__ if name not in ("kind", "end")},
        kind=kind,
        end=times,
    )
    return build_reference(others, times, others.channel + 10, np.arange(len(others)))


@given(st.integers(0, 2**32 - 1), st.sampled_from([None, 1_500.0]))
def test_the_best_candidate_is_the_line_of_the_shared_operations(seed: int, scatter_ns: float | None) -> None:
    events = _draw_events(seed)
    found = find_candidates(events, _observe(events, seed), Line(), 1e8, scatter_ns)
    assert abs(found[0].line.offset_ns - 3e6) < 20_000


def draw_comparison(seed: int, stranger_count: int) -> tuple[Events, Reference]:
    """Draw two channels whose operations are shared and end 9 us apart, and as many strangers that match at another offset to 2 us."""
    random = np.random.default_rng(seed)
    ends = [np.sort(random.uniform(0, 1e9, 80)) for _ in range(2)]
    events = _list_collectives([0, 1], ends)
    shared = [end + 3e6 + random.normal(0, 9_000.0, len(end)) for end in ends]
    strangers = [
        end[:stranger_count] + 203e6 + random.normal(0, 1_900.0, len(end))[:stranger_count] for end in ends
    ]
    others = _list_collectives([10, 11, 12, 13], [*shared, *strangers])
    return events, build_reference(others, others.end, others.channel, np.arange(len(others)))


def _list_collectives(channels: list[int], ends: list[np.ndarray]) -> Events:
    """List collectives of one key without communicators, by channel."""
    end = np.concatenate(ends)
    zeros = np.zeros(len(end), dtype=np.int64)
    return Events(
        origin_ns=0,
        domain=zeros,
        report=zeros,
        channel=np.repeat(channels, [len(own) for own in ends]),
        key=zeros,
        kind=np.full(len(end), COLLECTIVE),
        start=end - 1e5,
        end=end,
        gap_before=np.concatenate([np.diff(own, prepend=np.nan) for own in ends]),
        gap_rank=zeros + 1,
        has_communicator=zeros,
        rank=zeros - 1,
        peer=zeros - 1,
    )


@given(st.integers(0, 2**32 - 1))
def test_sharper_strangers_take_no_evidence_from_the_best_line(seed: int) -> None:
    """Their scatter is not that of the shared operations, which clocks that are slewed spread over some microseconds."""
    alone, among = (find_candidates(*draw_comparison(seed, count), Line(), 1e9, None)[0] for count in (0, 40))
    assert abs(among.line.offset_ns - 3e6) < 20_000
    assert among.evidence > 0.9 * alone.evidence

"""Candidates of one comparison: the same from one thread and from several."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.alignment import candidates
from nsys_pp.alignment.candidates import find_candidates
from nsys_pp.alignment.events import COLLECTIVE, RECEIVE, SEND, Events
from nsys_pp.alignment.lines import Line
from nsys_pp.alignment.reference import Reference, build_reference


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
def test_several_threads_find_the_same_candidates(seed: int, scatter_ns: float | None) -> None:
    events = _draw_events(seed)
    reference = _observe(events, seed)
    one, several = (
        find_candidates(events, reference, Line(), 1e8, scatter_ns, threads=threads) for threads in (1, 3)
    )
    with patch.object(candidates, "LINES", 1_000_000):
        assert find_candidates(events, reference, Line(), 1e8, scatter_ns, threads=3) == one == several
    assert abs(one[0].line.offset_ns - 3e6) < 20_000

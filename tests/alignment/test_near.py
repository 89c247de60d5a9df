"""Operations near each other, against the definition in plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.alignment.events import COLLECTIVE, RECEIVE, SEND, Events
from nsys_pp.alignment.lines import Line
from nsys_pp.alignment.near import find_near, prepare
from nsys_pp.alignment.near_columns import prepare_columns
from nsys_pp.alignment.reference import build_reference
from nsys_pp.frames.clock import SKEW_NS
from tests.arrays.ways import use_numpy

Row = tuple[int, int, int, int]
rows = st.lists(
    st.tuples(
        st.integers(0, 3),  # key
        st.integers(0, 400),  # end
        st.integers(0, 2),  # channel within the key
        st.sampled_from([COLLECTIVE, SEND, RECEIVE]),
    ),
    max_size=12,
)


def build_events(rows: list[Row]) -> Events:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4)
    zeros = np.zeros(len(rows), dtype=np.int64)
    names = ("domain", "report", "gap_rank", "has_communicator", "rank", "peer")
    times = columns[:, 1].astype(np.float64)
    return Events(
        origin_ns=0,
        key=columns[:, 0],
        channel=3 * columns[:, 0] + columns[:, 2],
        kind=columns[:, 3],
        start=times - 1,
        end=times,
        gap_before=times,
        **dict.fromkeys(names, zeros),
    )


def is_same_side(kind: int, other: int) -> bool:
    return kind == other and kind in (SEND, RECEIVE)


@given(rows, rows, st.integers(-50, 50), st.integers(0, 100), st.booleans())
def test_pairs_are_the_nearest_of_each_other_in_two_channels(
    own: list[Row], others: list[Row], offset: int, tolerance: int, is_compiled: bool
) -> None:
    events, known = build_events(own), build_events(others)
    reference = build_reference(known, known.end, known.channel, np.arange(len(known)))
    with pytest.MonkeyPatch.context() as patch:
        if not is_compiled:
            use_numpy(patch)
        near = find_near(prepare(events, reference), Line(offset_ns=offset), tolerance)
    pairs: list[tuple[float, int, int]] = []
    for event in range(len(events)):
        for row in range(len(reference)):
            distance = float(reference.times[row] - events.end[event] - offset)
            if (
                events.key[event] == reference.key[row]
                and abs(distance) <= tolerance
                and not is_same_side(int(events.kind[event]), int(reference.kind[row]))
            ):
                pairs.append((distance, event, row))
    pairs.sort(key=lambda pair: abs(pair[0]))
    for side in (1, 2):  # the nearest of each event, then of each operation
        seen = set()
        kept = []
        for pair in pairs:
            link = events.channel[pair[1]], reference.channels[pair[2]], pair[side]
            kept += [pair] if link not in seen else []
            seen.add(link)
        pairs = kept
    found = zip(near.residual_ns.tolist(), near.event_row.tolist(), near.reference_row.tolist(), strict=True)
    assert sorted(found) == sorted(pairs)
    assert near.count.sum() == len(pairs)


@given(rows)
def test_repeats_are_the_events_of_a_key_at_the_same_time(own: list[Row]) -> None:
    events = build_events([(key, 50_000 * end, channel, kind) for key, end, channel, kind in own])
    expected = [
        sum(
            key == other and abs(end - at) <= SKEW_NS
            for other, at in zip(events.key, events.end, strict=True)
        )
        for key, end in zip(events.key, events.end, strict=True)
    ]
    reference = build_reference(events, events.end, events.channel, np.arange(len(events)))
    assert (1 / prepare_columns(events, reference).share).tolist() == expected

"""Pairs near a line and their evidence, votes and fitted lines, against their definitions in plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.alignment.candidates import find_candidates, list_windows, vote
from nsys_pp.alignment.events import COLLECTIVE, RECEIVE, SEND, SEND_RECEIVE, Events
from nsys_pp.alignment.near import (
    MAX_DRIFT,
    Comparison,
    Line,
    Reference,
    build_reference,
    fit_line,
)
from nsys_pp.frames.clock import SKEW_NS

US = 1_000


Row = tuple[int, int, int, int, bool]


rows = st.lists(
    st.tuples(
        st.integers(0, 3),  # key
        st.integers(0, 400),  # end, us
        st.integers(0, 2),  # channel within the key
        st.sampled_from([COLLECTIVE, SEND, RECEIVE, SEND_RECEIVE]),
        st.booleans(),  # whether its communicator is known
    ),
    max_size=14,
)


def build_events(rows: list[Row]) -> Events:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 5)
    zeros = np.zeros(len(rows), dtype=np.int64)
    times = (columns[:, 1] * US).astype(np.float64)
    return Events(
        origin_ns=0,
        key=columns[:, 0],
        channel=3 * columns[:, 0] + columns[:, 2],
        kind=columns[:, 3],
        start=times - 1,
        end=times,
        gap_before=times,
        has_communicator=columns[:, 4],
        **dict.fromkeys(("domain", "gap_rank"), zeros),
    )


def observe(events: Events) -> Reference:
    return build_reference(events, events.end, events.channel, np.arange(len(events)))


def list_pairs(events: Events, known: Reference, offset: float) -> list[tuple[float, int, int]]:
    """List the pairs within `SKEW_NS` that are the nearest of each other, in each pair of channels."""
    pairs: list[tuple[float, int, int]] = []
    for event in range(len(events)):
        for row in range(len(known)):
            residual = float(known.times[row] - events.end[event] - offset)
            is_same_side = events.kind[event] == known.kind[row] and events.kind[event] in (SEND, RECEIVE)
            if events.key[event] == known.key[row] and abs(residual) <= SKEW_NS and not is_same_side:
                pairs.append((residual, event, row))
    pairs.sort(key=lambda pair: abs(pair[0]))
    for side in (1, 2):  # the nearest of each event, then of each operation
        seen, kept = set(), []
        for pair in pairs:
            link = events.channel[pair[1]], known.channels[pair[2]], pair[side]
            kept += [pair] if link not in seen else []
            seen.add(link)
        pairs = kept
    return pairs


def weigh_link(
    events: Events, known: Reference, offset: float, own: list[tuple[float, int, int]], scatter: float
) -> float:
    """Weigh the pairs of two channels, as `near.py` says."""
    count = len(own)
    channel, other = events.channel[own[0][1]], known.channels[own[0][2]]
    predicted = events.end + offset
    since = max(predicted.min(), known.times.min()) - SKEW_NS
    until = min(predicted.max(), known.times.max()) + SKEW_NS
    own_count = max(sum((events.channel == channel) & (predicted >= since) & (predicted <= until)), count)
    is_inside = (known.times >= since) & (known.times <= until)
    other_count = max(sum((known.channels == other) & is_inside), count)
    only_one = own_count + other_count - 2 * count
    is_message = events.is_message[events.channel == channel].any()
    missing = -0.2 * max(only_one - count, 0) if is_message else -2.0 * only_one
    closeness = 0.0
    for residual, _, _ in own:
        one = math.log(0.3675 / scatter) - 2 * math.log1p((residual / scatter) ** 2 / 3)
        closeness += one + math.log(2 * 9.2 * max(abs(residual), scatter))
    spread = math.sqrt((sum(pair[0] ** 2 for pair in own) + 2 * scatter**2) / (count + 2))
    rate = max(own_count, other_count) / max(until - since, 1.0)
    first = max(math.log(1 / (2 * 9.2 * rate * max(spread, scatter))), 0.0)
    shares = [
        1 / sum((events.key == events.key[event]) & (abs(events.end - events.end[event]) <= SKEW_NS))
        for _, event, _ in own
    ]
    independent = min(1.0, (8 + 2 * math.sqrt(count)) / count)
    return float((closeness * independent + first + missing) * sum(shares) / count)


def contradict(events: Events, known: Reference, offset: float, paired: set[int]) -> float:
    """Return the evidence against a line by collectives of one communicator at other times."""
    is_tested = (events.has_communicator > 0) & ~events.is_message
    is_tested &= ~np.isin(events.channel, [*paired])
    against = 0.0
    for key in {*events.key[is_tested].tolist()}:
        own, times = events.end[is_tested & (events.key == key)] + offset, known.times[known.key == key]
        if len(times):
            since, until = max(own.min(), times[0]), min(own.max(), times[-1])
            against -= min(2.0 * min(sum((side >= since) & (side <= until)) for side in (own, times)), 30.0)
    return against


@given(rows, rows, st.integers(-50, 50), st.sampled_from([1_500.0, 12_000.0]))
def test_pairs_and_their_evidence_are_their_definition(
    own: list[Row], others: list[Row], offset_us: int, scatter: float
) -> None:
    events, known, offset = build_events(own), observe(build_events(others)), float(offset_us * US)
    links: dict[tuple[int, int], list[tuple[float, int, int]]] = {}
    for pair in list_pairs(events, known, offset) if len(known) else []:
        links.setdefault((int(events.channel[pair[1]]), int(known.channels[pair[2]])), []).append(pair)
    weights = {link: weigh_link(events, known, offset, pairs, scatter) for link, pairs in links.items()}
    best: dict[int, tuple[int, int]] = {}
    for link, weight in weights.items():
        if weight > 0 and weight > weights.get(best.get(link[0], (-1, -1)), 0.0):
            best[link[0]] = link
    chosen = sorted((pair[1], pair[2]) for link in best.values() for pair in links[link])
    expected = sum(weights[link] for link in best.values())
    expected += contradict(events, known, offset, {*best}) if len(known) else 0.0
    comparison = Comparison(events, known)
    for _ in range(2):  # the same again, in the same arrays
        pairs = comparison.pair(Line(offset_ns=offset), (scatter,))
        assert pairs.evidence == pytest.approx(expected, rel=1e-9, abs=1e-9)
    if not any(abs(a - b) < 1e-9 for a in weights.values() for b in weights.values() if a is not b):
        assert sorted(zip(pairs.event_row.tolist(), pairs.reference_row.tolist(), strict=True)) == chosen
    assert comparison.weigh(Line(offset_ns=offset), scatter)[0] == pairs.evidence
    assert comparison.start(Line(offset_ns=offset)).line == Line(offset_ns=offset)


def test_pairs_beyond_the_room_are_found() -> None:
    """Each event is near an operation of each of many channels, more than there is room for at first."""
    events = build_events([(0, at, 0, COLLECTIVE, False) for at in range(60)])
    channels = np.repeat(np.arange(200), 60)
    columns = {name: np.tile(getattr(events, name), 200) for name in ("end", "key", "kind", "gap_before")}
    order = np.argsort(columns["end"], kind="stable")
    known = Reference(
        key=columns["key"][order],
        times=columns["end"][order],
        gap_before=columns["gap_before"][order],
        kind=columns["kind"][order],
        channels=channels[order],
        instances=np.arange(len(order)),
    )
    assert Comparison(events, known).pair(Line(), (1_500.0,)).event_row.tolist() == [*range(60)]


def test_operations_out_of_order_are_refused() -> None:
    events = build_events([(0, 1, 0, COLLECTIVE, False), (0, 2, 0, COLLECTIVE, False)])
    known = observe(events)
    with pytest.raises(ValueError, match="not in order"):
        Comparison(events, known.select(np.array([1, 0])))


@given(st.integers(0, 2**32 - 1))
def test_the_windows_with_most_votes_are_their_definition(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 40))
    events = build_events(
        [
            (int(random.integers(0, 3)), int(at), 0, COLLECTIVE, False)
            for at in random.integers(0, 10**5, count)
        ]
    )
    known = observe(build_events([(key, int(at) + 700, 1, COLLECTIVE, False) for key, at in zip(
        events.key.tolist(), (events.end / US).tolist(), strict=True)]))  # fmt: skip
    half_width = float(random.choice([1e5, 1e7, 1e9]))
    votes = vote(events, np.ones(count, dtype=bool), known, Line(), half_width)
    listed = [
        (float(known.times[row] - events.end[event]), event)
        for event in range(count)
        for row in range(len(known))
        if events.key[event] == known.key[row] and abs(known.times[row] - events.end[event]) <= half_width
    ]
    if not listed:
        assert votes is None
        return
    assert votes is not None
    voters = [event for _, event in listed]
    span = events.end[voters].max() - events.end[voters].min()
    half_ns, least = (4 * SKEW_NS + MAX_DRIFT * span) / 2, min(listed)[0]
    sums: dict[int, float] = {}
    for offset, event in listed:
        section = int((offset - least) / half_ns)
        sums[section] = sums.get(section, 0.0) + 1 / voters.count(event)
    most = max(sums[section] + sums.get(section + 1, 0.0) for section in sums)
    assert votes.weight[list_windows(votes.half, votes.weight)[0]].sum() == pytest.approx(most)
    assert (np.diff(votes.offset_ns) >= 0).all()


def test_points_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        fit_line(np.arange(3.0), np.array([0.0, np.nan, 1.0]), Line(), floor_ns=1.0)


def _draw(random: np.random.Generator, first_instance: int) -> Reference:
    """Draw operations of some keys; many have equal times, and gaps are equal or none."""
    count = int(random.integers(0, 30))
    key, times = np.sort(random.integers(0, 4, count)), random.integers(0, 9, count).astype(np.float64)
    return Reference(
        key=key,
        times=times[np.lexsort((times, key))],
        gap_before=random.choice([1.0, 2.0, np.nan], count),
        kind=random.integers(0, 4, count),
        channels=random.integers(0, 5, count),
        instances=first_instance + np.arange(count),
    )


@given(st.integers(0, 2**32 - 1))
def test_operations_are_inserted_after_their_key_and_before_equal_times(seed: int) -> None:
    random = np.random.default_rng(seed)
    own, other = _draw(random, 0), _draw(random, 100)
    joined = own.insert(other)
    order = np.lexsort(
        (
            np.concatenate([np.ones(len(own)), np.zeros(len(other))]),  # new ones first
            np.concatenate([own.times, other.times]),
            np.concatenate([own.key, other.key]),
        )
    )
    for name in Reference.__struct_fields__:
        expected = np.concatenate([getattr(own, name), getattr(other, name)])[order]
        assert np.array_equal(getattr(joined, name), expected, equal_nan=name == "gap_before"), name


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
        channel=channel,
        key=channel // 2,
        kind=np.array([COLLECTIVE, COLLECTIVE, SEND, RECEIVE])[channel],
        start=end - 1e5,
        end=end,
        gap_before=gap,
        gap_rank=zeros + 1,
        has_communicator=zeros,
    )


def _observe(events: Events, seed: int) -> Reference:
    """Return a timeline on which other members have the events of a clock that is late, and some that nobody shares."""
    random = np.random.default_rng(seed)
    times = events.end + 3e6 + random.normal(0, 2_000.0, len(events))
    times = np.where(random.random(len(events)) < 0.2, random.uniform(0, 5e8, len(events)), times)
    others = Events(
        **{name: getattr(events, name) for name in events.__struct_fields__ if name not in ("kind", "end")},
        kind=np.where(events.kind == SEND, RECEIVE, np.where(events.kind == RECEIVE, SEND, events.kind)),
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
        channel=np.repeat(channels, [len(own) for own in ends]),
        key=zeros,
        kind=np.full(len(end), COLLECTIVE),
        start=end - 1e5,
        end=end,
        gap_before=np.concatenate([np.diff(own, prepend=np.nan) for own in ends]),
        gap_rank=zeros + 1,
        has_communicator=zeros,
    )


@given(st.integers(0, 2**32 - 1))
def test_sharper_strangers_take_no_evidence_from_the_best_line(seed: int) -> None:
    """Their scatter is not that of the shared operations, which clocks that are slewed spread over some microseconds."""
    alone, among = (find_candidates(*draw_comparison(seed, count), Line(), 1e9, None)[0] for count in (0, 40))
    assert abs(among.line.offset_ns - 3e6) < 20_000
    assert among.evidence > 0.9 * alone.evidence

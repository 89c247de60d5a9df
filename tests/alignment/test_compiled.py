"""The compiled search, votes and fits of alignment: equal to the last bit to the functions that define them, evidence to rounding."""

from __future__ import annotations

import itertools
from unittest.mock import patch

import msgspec.structs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.alignment import fitted_starts, lines, near, votes
from nsys_pp.alignment.events import Events
from nsys_pp.alignment.evidence import list_starts, pair_by_line, weigh_lines, weigh_start
from nsys_pp.alignment.lines import Line, find_line, find_lines, fit_line, list_lines, stack_lines
from nsys_pp.alignment.near import Comparison, find_near, prepare
from nsys_pp.alignment.near_columns import prepare_columns
from nsys_pp.alignment.reference import Reference
from nsys_pp.arrays import line_finder, near_finder, near_lines
from nsys_pp.arrays.core import load_core
from nsys_pp.arrays.near_lines import ContradictingPoints, LineStarts, join_starts
from nsys_pp.arrays.types import Floats, Int64s

needs_core = pytest.mark.skipif(load_core() is None, reason="without compiled functions")


def _draw_points(seed: int, least: int) -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    """Draw points near a line with outliers; of many, all sums by halves occur, and some values are equal."""
    random = np.random.default_rng(seed)
    count = int(random.choice([least, 5, 8, 9, 100, 129, 300, 1_500]))
    times = np.sort(random.uniform(0, 1e10, count))
    values = 3e4 + 2e-5 * times + random.normal(0, float(random.choice([0.0, 500.0, 1e5])), count)
    values[random.random(count) < 0.2] = float(random.choice([0.0, 1e7]))
    return random, times, values


@needs_core
@given(st.integers(0, 2**32 - 1))
def test_a_fitted_line_is_that_of_numpy(seed: int) -> None:
    random, times, values = _draw_points(seed, 2)
    noise = random.choice([1_500.0, 4_000.0], len(times)) if random.random() < 0.5 else None
    start = Line(offset_ns=2e4, rate=1e-6, center_ns=5e9)
    expected = lines._fit_points(times, values, start, 2_000.0, noise)
    assert fit_line(times, values, start, floor_ns=2_000.0, noise=noise) == expected


@needs_core
@given(st.integers(0, 2**32 - 1))
def test_a_found_line_is_that_of_numpy(seed: int) -> None:
    _, times, values = _draw_points(seed, 1)
    width, center = 240_000.0, lines.find_median(times)
    span = float(np.max(np.abs(times - center)))
    count = 1 if len(times) < 3 else int(min(401, 1 + 2 * np.ceil(lines.MAX_DRIFT * span / (width / 4))))
    rates = sorted(np.linspace(-lines.MAX_DRIFT, lines.MAX_DRIFT, count) if count > 1 else [0.0], key=abs)
    expected = lines._try_rates(times, values, np.array(rates), width, center)
    assert find_line(times, values, width=width) == expected


@needs_core
def test_numbers_without_an_order_are_left_to_numpy() -> None:
    core, times, line = load_core(), np.arange(3.0), (0.0, 0.0, 0.0)
    assert core is not None
    for wrong in (np.inf, np.nan):
        values = np.array([0.0, wrong, 1.0])
        found = line_finder.fit_line(core, times, values, line, floor=1.0, drift=1.0, rounds=2, noise=None)
        assert found is None
        assert line_finder.find_line(core, times, values, np.zeros(1), 1.0) is None
    with pytest.raises(ValueError, match="columns of different lengths"):
        line_finder.fit_line(core, times, times[:2], line, floor=1.0, drift=1.0, rounds=2, noise=None)
    with pytest.raises(ValueError, match="columns of different lengths"):
        line_finder.find_line(core, times, times[:2], np.zeros(1), 1.0)


@needs_core
@given(st.integers(0, 2**32 - 1))
def test_operations_near_events_are_those_of_numpy(seed: int) -> None:
    random = np.random.default_rng(seed)
    events, reference = _draw_events(random, 80), _draw_reference(random, 60)
    line = Line(offset_ns=float(random.integers(-9, 9) * 10_000), rate=1e-6, center_ns=4e6)
    comparison = prepare(events, reference)
    compiled = find_near(comparison, line, 60_000.0)
    plain = find_near(_by_numpy(comparison), line, 60_000.0)
    for name in near.Near.__struct_fields__:
        assert getattr(compiled, name).tolist() == getattr(plain, name).tolist(), name


@needs_core
@given(st.integers(0, 2**32 - 1))
def test_evidence_is_that_of_numpy(seed: int) -> None:
    random = np.random.default_rng(seed)
    comparison = prepare(_draw_events(random, 80), _draw_reference(random, 60))
    plain = _by_numpy(comparison)
    for offset in random.integers(-9, 9, 3).tolist():  # one after the other, in the same arrays
        line = Line(offset_ns=offset * 10_000.0, rate=1e-6, center_ns=4e6)
        pairs, expected = (pair_by_line(one, line, (1_500.0, 12_000.0)) for one in (comparison, plain))
        _assert_close(pairs, expected, ("evidence", "exchange_evidence"))
        start, begun = (weigh_start(one, line) for one in (comparison, plain))
        assert start.evidence == pytest.approx(begun.evidence, rel=1e-9, abs=1e-9)
        assert [[column.tolist() for column in link] for link in start.sharpest] == [
            [column.tolist() for column in link] for link in begun.sharpest
        ]


@needs_core
@given(st.integers(0, 2**32 - 1))
def test_many_lines_have_the_evidence_of_each(seed: int) -> None:
    comparison, lines = _draw_comparison(seed)
    scatters = (1_500.0, 12_000.0)
    weights = weigh_lines(comparison, stack_lines(lines), scatters)
    for number, line in enumerate(lines):
        pairs = [pair_by_line(comparison, line, (scatter,)) for scatter in scatters]
        assert weights.evidence[number].tolist() == [one.evidence for one in pairs]
        assert weights.exchange_evidence[number].tolist() == [one.exchange_evidence for one in pairs]
        assert weights.sharpest[number].tolist() == [one.sharpest_ns for one in pairs]
    plain = weigh_lines(_by_numpy(comparison), stack_lines(lines), scatters)
    _assert_close(weights, plain, ("evidence", "exchange_evidence"))


@needs_core
@given(st.integers(0, 2**32 - 1))
def test_many_lines_have_the_starts_of_each(seed: int) -> None:
    comparison, lines = _draw_comparison(seed)
    room = int(np.random.default_rng(seed).choice([0, 8]))  # without room, there is more with each call
    with patch.object(near_lines, "_ROOM", room):
        starts = list_starts(comparison, stack_lines(lines))
    for number, (line, bounds) in enumerate(zip(lines, starts.bounds.tolist(), strict=True)):
        start = weigh_start(comparison, line)
        assert starts.evidence[number] == start.evidence
        assert [
            (starts.point[first:stop].tolist(), starts.residual[first:stop].tolist())
            for first, stop in itertools.pairwise(bounds)
            if first < stop
        ] == [(rows.tolist(), residual_ns.tolist()) for rows, residual_ns in start.sharpest]
    plain = list_starts(_by_numpy(comparison), stack_lines(lines))
    _assert_close(starts, plain, ("evidence",))
    rows = np.arange(len(lines))
    joined = join_starts([starts.select(rows[::2]), starts.select(rows[1::2])])
    _assert_close(joined, joined.select(np.arange(len(lines))), ())
    assert joined.evidence.tolist() == [*starts.evidence[::2], *starts.evidence[1::2]]
    for number, bounds in zip([*rows[::2], *rows[1::2]], joined.bounds.tolist(), strict=True):
        first, *_, stop = starts.bounds[number].tolist()
        assert joined.residual[bounds[0] : bounds[-1]].tolist() == starts.residual[first:stop].tolist()


@needs_core
@given(st.integers(0, 2**32 - 1))
def test_lines_fitted_to_many_starts_are_those_of_each(seed: int) -> None:
    comparison, lines = _draw_comparison(seed)
    starts = list_starts(comparison, stack_lines([*lines, *lines[:2]]))
    fits = fitted_starts.fit_starts(comparison, starts, 4_000.0)
    pairs = starts.point, starts.residual
    expected = [
        fitted_starts._fit_start(comparison, line, bounds, *pairs, 4_000.0)
        for line, bounds in zip([*lines, *lines[:2]], starts.bounds.tolist(), strict=True)
    ]
    assert [list_lines(own) for own in fits.lines] == expected
    for number, line in enumerate(list_lines(fits.weighed)):
        weighed = pair_by_line(comparison, line, (4_000.0,))
        assert fits.weights.evidence[number].tolist() == [weighed.evidence]
        assert fits.weights.exchange_evidence[number].tolist() == [weighed.exchange_evidence]
        assert fits.weights.sharpest[number].tolist() == [weighed.sharpest_ns]
    plain = _by_numpy(comparison)
    assert [list_lines(own) for own in fitted_starts.fit_starts(plain, starts, 4_000.0).lines] == expected


@needs_core
def test_pairs_beyond_the_room_are_found_with_more() -> None:
    random = np.random.default_rng(3)
    events, reference = _draw_events(random, 80), _draw_reference(random, 60)
    lines = stack_lines([Line(), Line(offset_ns=50_000.0)])
    expected = list_starts(prepare(events, reference), lines)
    with patch.object(near_finder, "_ROOM", 1 - 2 * len(events)):
        starts = list_starts(prepare(events, reference), lines)
    _assert_close(starts, expected, ())
    assert len(starts.point) > 1


@needs_core
def test_starts_and_tested_points_that_are_not_there_are_refused() -> None:
    comparison, _ = _draw_comparison(1)
    finder = comparison.finder
    assert isinstance(finder, near_finder.NearFinder)
    lines, one = np.zeros((1, 3)), np.ones(1)
    for point, bounds in (([10_000], [0, 1]), ([0], [0, 2]), ([0], [1, 0])):
        starts = LineStarts(
            lines=lines, evidence=one, bounds=np.array([bounds]), point=np.array(point), residual=one
        )
        with pytest.raises(ValueError, match="pairs that are not there"):
            near_lines.fit_starts(finder, starts, 1.0, 1.0, scatter=1.0, floor=1.0, drift=1.0, rounds=1)
        tested = ContradictingPoints(point=np.array(point), bounds=np.array(bounds), most=1.0)
        with pytest.raises(ValueError, match="tested points that are not there"):
            near_lines.weigh_lines(finder, lines, 1.0, 1.0, one, tested=tested)


@needs_core
@given(st.integers(0, 2**32 - 1))
def test_lines_found_in_many_windows_are_those_of_each(seed: int) -> None:
    random, times, values = _draw_points(seed, 1)
    times = times * float(random.choice([1e-4, 0.1, 1.0]))
    windows = [
        random.permutation(len(times))[: random.integers(1, len(times) + 1)]
        for _ in range(random.integers(5))
    ]
    width = float(random.choice([240_000.0, 30_000_000.0]))
    expected = [find_line(times[window], values[window], width=width) for window in windows]
    assert list_lines(find_lines(times, values, windows, width=width)) == expected


@needs_core
def test_windows_without_an_order_are_left_to_numpy_and_wrong_ones_refused() -> None:
    core, times, rows = load_core(), np.arange(3.0), np.arange(3)
    assert core is not None
    for values, row, bound in ((times[:2], 0, 3), (times, 1, 3), (times, 0, 2)):
        with pytest.raises(ValueError, match="columns of different lengths"):
            line_finder.find_lines(
                core, times, values, rows + row, np.array([0, bound]), 1.0, most=1.0, most_rates=3
            )
    values, bounds = np.array([0.0, np.inf, 1.0]), np.array([0, 3])
    assert line_finder.find_lines(core, times, values, rows, bounds, 1.0, most=1.0, most_rates=3) is None


@needs_core
@given(st.integers(0, 2**32 - 1))
def test_sums_of_sections_are_those_of_numpy(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.normal(size=int(random.integers(0, 900)))
    bounds = np.sort(random.integers(0, len(values) + 1, 5))
    core = load_core()
    assert core is not None
    assert line_finder.sum_sections(core, values, bounds).tolist() == [
        values[first:stop].sum() for first, stop in itertools.pairwise(bounds.tolist())
    ]
    with pytest.raises(ValueError, match="a section that is not there"):
        line_finder.sum_sections(core, values, np.array([0, len(values) + 1]))


def _draw_comparison(seed: int) -> tuple[Comparison, list[Line]]:
    """Draw a comparison, in half of the cases with communicators, and lines that are near its operations, two of them equal."""
    random = np.random.default_rng(seed)
    events, reference = _draw_events(random, 80), _draw_reference(random, 60)
    known = random.integers(0, 2, len(events)) * int(random.integers(0, 2))
    comparison = prepare(msgspec.structs.replace(events, has_communicator=known), reference)
    offsets = random.integers(-9, 9, 3).tolist()
    lines = [Line(offset_ns=offset * 10_000.0, rate=1e-6, center_ns=4e6) for offset in offsets]
    return comparison, [*lines, lines[0]]


def _by_numpy(comparison: Comparison) -> Comparison:
    """Return a comparison with the search that defines the compiled one, and compare what both are prepared with."""
    defined = prepare_columns(comparison.events, comparison.reference)
    for name in ("channel", "share", "is_message", "is_exchange", "other_channel_count"):
        own, other = (np.asarray(getattr(one, name)) for one in (comparison.finder, defined))
        assert own.tolist() == other.tolist(), name
    return msgspec.structs.replace(comparison, finder=defined)


def _assert_close(found: msgspec.Struct, expected: msgspec.Struct, about: tuple[str, ...]) -> None:
    """Compare to the last bit, except sums of logarithms: those of products, in the compiled functions."""
    for name in found.__struct_fields__:
        own, other = (np.asarray(getattr(one, name)) for one in (found, expected))
        if name in about:
            assert own == pytest.approx(other, rel=1e-9, abs=1e-9), name
        else:
            assert own.tolist() == other.tolist(), name


@needs_core
@given(st.integers(0, 2**32 - 1))
def test_votes_are_those_of_numpy(seed: int) -> None:
    random = np.random.default_rng(seed)
    events, reference = _draw_events(random, 80), _draw_reference(random, 60)
    line, width = Line(offset_ns=float(random.integers(-9, 9) * 10_000)), float(random.choice([1e5, 1e10]))
    most = int(random.choice([40, 200_000]))
    few = int(random.choice([1, 3, 64]))  # windows; three times as many suffice
    with (
        patch.object(votes, "_MAX_VOTES", most),
        patch.object(votes, "_EXPECTED_NS", float(random.choice([0.0, 1e6]))),
        patch.object(votes, "WINDOWS", few),
        patch.object(votes, "_SUFFICIENT", 3 * few + 1),
    ):
        found = votes.vote(events, events.kind > 0, reference, line, width)
        with patch.object(votes, "load_core", lambda: None):
            expected = votes.vote(events, events.kind > 0, reference, line, width)
        assert (found is None) == (expected is None)
        if found is None or expected is None:
            return
        windows, plain = (votes.list_windows(one.halves) for one in (found, expected))
        for list_others in (
            lambda one, windows: windows,
            votes.list_agreeing,
            lambda one, windows: votes.list_expected(one, line, windows[: votes.CANDIDATES]),
        ):
            own, other = list_others(found, windows), list_others(expected, plain)
            for name in ("time", "voter", "offset_ns", "weight", "link"):
                assert [getattr(found, name)[rows].tolist() for rows in own] == [
                    getattr(expected, name)[rows].tolist() for rows in other
                ], name


def test_windows_with_most_votes_are_those_of_a_full_sort() -> None:
    random = np.random.default_rng(1)
    halves = votes.Halves(
        half=np.flatnonzero(random.random(9_000) < 0.7), bounds=np.arange(9_001), sums=np.zeros(0)
    )
    halves = msgspec.structs.replace(halves, sums=random.integers(0, 9, len(halves.half)) / 7)
    windows = votes.list_windows(halves)
    with patch.object(votes, "_SUFFICIENT", 10_000):
        assert [window.tolist() for window in votes.list_windows(halves)] == [
            window.tolist() for window in windows
        ]


def _draw_events(random: np.random.Generator, most: int) -> Events:
    count = int(random.integers(1, most))
    end = np.sort(random.integers(0, 200, count) * 50_000.0)
    zeros = np.zeros(count, dtype=np.int64)
    return Events(
        origin_ns=0,
        domain=zeros,
        report=zeros,
        channel=random.integers(0, 5, count),
        key=random.integers(0, 3, count),
        kind=random.integers(0, 4, count),
        start=end,
        end=end,
        gap_before=end,
        gap_rank=zeros,
        has_communicator=zeros,
        rank=zeros,
        peer=zeros,
    )


def _draw_reference(random: np.random.Generator, most: int) -> Reference:
    count = int(random.integers(1, most))
    key: Int64s = random.integers(0, 2, count)
    times: Floats = (random.integers(0, 200, count) * 50_000).astype(np.float64)
    order = np.lexsort((times, key))
    return Reference(
        key=key[order],
        times=times[order],
        gap_before=times,
        kind=random.integers(0, 4, count),
        channels=random.integers(0, 5, count),
        instances=np.arange(count),
    )

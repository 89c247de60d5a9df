"""Counters, colors and strings of drawings, against their definitions in plain loops."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.report import COUNTERS
from nsys_pp.output.colors import COLORS, chrome_names, perfetto_seeds
from nsys_pp.output.trace.drawing import SAMPLES, intern
from nsys_pp.output.trace.tracks import _MAX_SAMPLES, busy_percent, list_counters, thin

Interval = tuple[int, int]


intervals = st.lists(
    st.tuples(st.integers(-300, 300), st.integers(0, 60)).map(lambda pair: (pair[0], sum(pair))), max_size=25
)


scales = st.sampled_from([1, 3, 1_000, 999_983, 10**15])


def sample(slices: list[Interval]) -> pl.DataFrame:
    start, end = [one for one, _ in slices], [one for _, one in slices]
    return busy_percent(pl.Series(start, dtype=pl.Int64), pl.Series(end, dtype=pl.Int64))


def nice(length: int) -> int:
    """1, 2 or 5 times a power of ten, not below `length`."""
    lengths = [
        factor * power for power in (int(f"1{'0' * zeros}") for zeros in range(20)) for factor in (1, 2, 5)
    ]
    return min(one for one in lengths if one >= length)


def covered(slices: list[Interval], low: int, high: int) -> int:
    """How much of `[low, high)` lies in at least one slice."""
    total, reach = 0, low
    for start, end in sorted(slices):
        start, end = max(start, reach), min(end, high)
        if end > start:
            total, reach = total + end - start, end
    return total


def definition(slices: list[Interval]) -> list[tuple[int, float]]:
    first, last = min((one for one, _ in slices), default=0), max((one for _, one in slices), default=0)
    if last <= first:
        return []
    window = nice(-(-(last - first) // _MAX_SAMPLES))
    at, samples = first // window * window, []
    while at < last:
        samples.append((at, float(np.round(100 * covered(slices, at, at + window) / window, 1))))
        at += window
    samples.append((at, 0.0))
    return [
        one
        for one, before in zip(samples, [None, *samples[:-1]], strict=True)
        if not before or one[1] != before[1]
    ]


@settings(max_examples=150, deadline=None)
@given(intervals, scales)
def test_samples_are_their_definition(slices: list[Interval], scale: int) -> None:
    slices = [(start * scale, end * scale) for start, end in slices]
    samples = sample(slices)
    assert samples.schema == SAMPLES
    assert samples.rows() == definition(slices)


@settings(max_examples=100, deadline=None)
@given(intervals, st.integers(-(10**18), 10**18), scales)
def test_samples_are_few_and_end_at_zero(slices: list[Interval], shift: int, scale: int) -> None:
    samples = sample([(start * scale + shift, end * scale + shift) for start, end in slices])
    assert len(samples) <= _MAX_SAMPLES + 2
    assert samples["value"].is_between(0, 100).all()
    assert samples["time_ns"].is_sorted()
    if len(samples):
        assert samples["value"][-1] == 0


@pytest.mark.parametrize("slices", [[], [(5, 5)], [(-3, -3), (-3, -3)]])
def test_no_length_no_samples(slices: list[Interval]) -> None:
    assert sample(slices).equals(pl.DataFrame(schema=SAMPLES))


def test_what_touches_is_one() -> None:
    assert sample([(0, 10), (10, 20), (5, 15)]).rows() == [(0, 100.0), (20, 0.0)]


def test_a_moment_counts_nothing() -> None:
    assert sample([(0, 10), (15, 15), (20, 30)]).rows() == [(0, 100.0), (10, 0.0), (20, 100.0), (30, 0.0)]


def test_windows_have_round_lengths_and_begin_at_round_times() -> None:
    """A little more than a second is cut into milliseconds."""
    samples = sample([(100_123, 400_223), (1_000_100_122, 1_000_200_123)])
    assert samples.rows() == [(0, 30.0), (1_000_000, 0.0), (1_000_000_000, 10.0), (1_001_000_000, 0.0)]


def test_counters_are_split_by_name_and_unit() -> None:
    rows = [
        (1, 0, "power", "W", 5, 1.5),
        (1, 0, "power", "W", 3, 2.5),
        (1, 0, "memory", "bytes", 3, 7.0),
    ]
    counters = list_counters(pl.DataFrame(rows, schema=COUNTERS, orient="row"))
    assert [(counter.name, counter.unit, counter.samples.rows()) for counter in counters] == [
        ("power", "W", [(3, 2.5), (5, 1.5)]),
        ("memory", "bytes", [(3, 7.0)]),
    ]


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(-5, 5)), min_size=1, max_size=200),
    st.integers(4, 40),
)
def test_a_thinned_counter_keeps_the_borders_and_extremes_of_every_window(
    drawn: list[tuple[int, int]], most: int
) -> None:
    rows = sorted(drawn, key=lambda sample: sample[0])
    samples = pl.DataFrame(
        {"time_ns": [time for time, _ in rows], "value": [float(value) for _, value in rows]}, schema=SAMPLES
    )
    thinned = thin(samples, most=most).rows()
    if len(rows) <= most:
        assert thinned == samples.rows()
        return
    first = rows[0][0]
    width = (rows[-1][0] - first) // (most // 4) + 1
    windows: dict[int, list[tuple[int, float]]] = {}
    for time, value in samples.rows():
        windows.setdefault((time - first) // width, []).append((time, value))
    kept: dict[int, list[tuple[int, float]]] = {}
    for time, value in thinned:
        kept.setdefault((time - first) // width, []).append((time, value))
    assert kept.keys() == windows.keys()
    assert len(thinned) <= 4 * (most // 4 + 1)
    for window, of_window in windows.items():
        values = [value for _, value in of_window]
        assert kept[window][0] == of_window[0]
        assert kept[window][-1] == of_window[-1]
        assert max(value for _, value in kept[window]) == max(values)
        assert min(value for _, value in kept[window]) == min(values)
        assert set(kept[window]) <= set(of_window)
    assert [time for time, _ in thinned] == sorted(time for time, _ in thinned)


def ui_hash(text: str, modulus: int) -> int:
    """Hash as `ui/src/base/hash.ts` does, where the product is a double and wraps to 32 bits."""
    state = 18652613
    for character in text:
        state ^= ord(character)
        product = int(16777619.0 * (state - (1 << 32) if state >= 1 << 31 else state))
        state = int(float(product)) & 0xFFFFFFFF
    return abs(state - (1 << 32) if state >= 1 << 31 else state) % modulus


def hue_and_lightness(seed: str) -> tuple[int, int]:
    """Choose a colour as `proceduralColorScheme` of `ui/src/components/colorizer.ts` does."""
    return ui_hash(seed, 360), ui_hash(seed + "x", 40) + 40


@pytest.mark.parametrize(
    ("kind", "hue"),
    [("forward", 250), ("backward", 130), ("optimizer", 285), ("send", 36), ("communication", 20)],
)
def test_hues(kind: str, hue: int) -> None:
    assert abs(hue_and_lightness(COLORS[kind].seed)[0] - hue) <= 3


def test_kinds_look_different() -> None:
    looks = sorted(hue_and_lightness(color.seed) for color in COLORS.values())
    close = [(a, b) for a, b in pairwise(looks) if abs(a[0] - b[0]) < 8 and abs(a[1] - b[1]) < 8]
    assert not close
    assert len({color.cname for color in COLORS.values()}) == len(COLORS)
    assert len({color.rgb for color in COLORS.values()}) == len(COLORS)


def test_seeds_say_what_they_stand_for() -> None:
    assert all(color.seed.startswith(kind) for kind, color in COLORS.items())


def test_unknown_kinds() -> None:
    keys = pl.Series(["forward", "mine"])
    assert perfetto_seeds(keys) == [COLORS["forward"].seed, "mine"]
    assert chrome_names(keys).to_list() == [COLORS["forward"].cname, None]
    assert perfetto_seeds(keys.head(0)) == chrome_names(keys.head(0)).to_list() == []


@pytest.mark.parametrize("dtype", [pl.Categorical(), pl.String, pl.Enum(list("abcde"))])
@given(words=st.lists(st.one_of(st.none(), st.sampled_from("abcde")), max_size=40))
def test_numbers_of_strings_ascend_in_order_of_appearance(
    dtype: pl.DataType, words: list[str | None]
) -> None:
    distinct = list(dict.fromkeys(word for word in words if word is not None))
    expected = [0 if word is None else 1 + distinct.index(word) for word in words]
    texts, numbers = intern(pl.Series(words, dtype=dtype))
    assert (texts.to_list(), numbers.tolist()) == (distinct, expected)

"""Where reports stand on the common clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.align.clocks import Alignment, Recorded, align_by_utc

DAY = 86_400_000_000_000
moments = st.integers(0, 2 * 10**18)
shifts = st.integers(-(10**18), 2 * 10**18)


def recorded(*pairs: tuple[int | None, int]) -> list[Recorded]:
    return [Recorded(utc_epoch_ns=epoch, time_shift_ns=shift) for epoch, shift in pairs]


@given(st.lists(st.tuples(moments, shifts), min_size=1), st.integers(-(10**12), 10**15))
def test_an_event_stands_at_its_utc(pairs: list[tuple[int, int]], since_start: int) -> None:
    alignment = align_by_utc(recorded(*pairs))
    assert (alignment.is_utc, alignment.unplaced) == (True, [])
    assert alignment.zero_ns == min(epoch for epoch, _ in pairs)
    for (epoch, shift), offset in zip(pairs, alignment.offset_ns, strict=True):
        event = since_start + shift  # as the exporter wrote it
        assert event + offset == epoch + since_start


@given(st.lists(shifts, min_size=1))
def test_without_utc_all_sessions_start_together(pairs: list[int]) -> None:
    alignment = align_by_utc(recorded(*((None, shift) for shift in pairs)))
    assert (alignment.is_utc, alignment.unplaced, alignment.zero_ns) == (False, [], DAY)
    assert [shift + offset for shift, offset in zip(pairs, alignment.offset_ns, strict=True)] == [DAY] * len(
        pairs
    )


def test_who_lacks_utc_starts_with_the_earliest() -> None:
    alignment = align_by_utc(recorded((None, 7), (500, 0), (None, 0), (300, 100)))
    assert alignment == Alignment(offset_ns=[293, 500, 300, 200], zero_ns=300, is_utc=True, unplaced=[0, 2])


def test_the_epoch_of_1970_is_a_utc() -> None:
    assert align_by_utc(recorded((0, 0), (None, 0))).offset_ns == [0, 0]
    assert align_by_utc(recorded((0, 0))).is_utc

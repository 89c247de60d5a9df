"""First guesses of clocks from recorded times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.alignment.events import START_WITHOUT_UTC_NS, guess_clocks
from nsys_pp.frames.report import Session

moments = st.integers(0, 2 * 10**18)
shifts = st.integers(-(10**18), 2 * 10**18)


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


@given(st.lists(st.tuples(moments, shifts), min_size=1), st.integers(-(10**12), 10**15))
def test_an_event_stands_at_its_utc(pairs: list[tuple[int, int]], since_start: int) -> None:
    guess = guess_clocks([make_session(epoch, shift) for epoch, shift in pairs])
    assert [domain.reports for domain in guess.domains] == [(row,) for row in range(len(pairs))]
    for (epoch, shift), base in zip(pairs, guess.base_ns, strict=True):
        event = since_start + shift  # as the exporter wrote it
        assert event + base == epoch + since_start


@given(st.lists(shifts, min_size=1))
def test_without_utc_all_sessions_start_together(found: list[int]) -> None:
    guess = guess_clocks([make_session(None, shift) for shift in found])
    assert [shift + base for shift, base in zip(found, guess.base_ns, strict=True)] == [
        START_WITHOUT_UTC_NS
    ] * len(found)
    assert not any(domain.is_utc for domain in guess.domains)


def test_who_lacks_utc_starts_with_the_earliest() -> None:
    guess = guess_clocks(
        [make_session(None, 7), make_session(500), make_session(None), make_session(300, 100)]
    )
    assert guess.base_ns == [293, 500, 300, 200]
    assert [domain.is_utc for domain in guess.domains] == [False, True, False, True]


def test_the_epoch_of_1970_is_a_utc() -> None:
    guess = guess_clocks([make_session(0), make_session(None)])
    assert guess.base_ns == [0, 0]
    assert guess.domains[0].is_utc


def test_reports_of_one_machine_meet_on_its_system_clock() -> None:
    """Sessions read UTC separately, 30 us apart; they share the system clock."""
    first = make_session(5_000_000_000, system=1_000_000_000)
    second = make_session(5_700_030_000, 100, system=1_700_000_000)
    guess = guess_clocks([first, second, make_session(5_000_000_000, machine="node2", system=1_000_000_000)])
    assert guess.domain_of == [0, 0, 1]
    assert (guess.base_ns[1] + 100) - guess.base_ns[0] == 700_000_000
    assert guess.base_ns[0] in (5_000_000_000, 5_000_030_000)


def test_system_clocks_that_contradict_utc_are_private() -> None:
    """Containers have their own clocks, which start with them."""
    guess = guess_clocks([make_session(10**18, system=28 * 10**9), make_session(10**18, system=35 * 10**9)])
    assert guess.domain_of == [0, 1]
    assert guess.base_ns == [10**18, 10**18]


def test_utc_need_not_be_believed() -> None:
    guess = guess_clocks([make_session(5 * 10**18), make_session(7 * 10**18, 50)], use_utc=False)
    assert [guess.base_ns[0], guess.base_ns[1] + 50] == [START_WITHOUT_UTC_NS] * 2


def test_containers_with_clocks_of_their_own_are_not_one_clock_by_chance() -> None:
    """Their system clocks differ from UTC by amounts that happen to be 0.3 s apart."""
    sessions = [make_session(10**18, system=40 * 10**9), make_session(10**18, system=40 * 10**9 + 3 * 10**8)]
    assert len(guess_clocks(sessions).domains) == 2


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

"""What makes one doubt that reports are of one run."""

from __future__ import annotations

import pytest

from nsys_pp.frames.roster import Identity
from nsys_pp.roster.identity import MAX_GAP_NS, split_runs
from nsys_pp.roster.ranks import parse_layout
from nsys_pp.roster.roster import build_roster, find_inconsistencies
from tests.roster.identities import NS, identity


def _inconsistencies(*identities: Identity, layout: str | None = None) -> list[str]:
    how = parse_layout(layout) if layout else None
    return find_inconsistencies(identities, build_roster(identities, layout=how), layout=how)


def _rank(rank: int, world: int | None = None, pid: int | None = None, **more: object) -> Identity:
    pid = rank + 1 if pid is None else pid
    return identity(
        f"r{rank}-{pid}.sqlite",
        pids=[pid],
        ranks=[(pid, None, rank, "RANK", world)],
        **more,  # type: ignore[arg-type]
    )


def test_a_whole_run_leaves_no_doubt() -> None:
    ranks = [_rank(rank, 3) for rank in range(3)]
    assert _inconsistencies(*ranks) == []
    assert _inconsistencies(*ranks, layout="pp=3") == []
    assert _inconsistencies(_rank(5, 16)) == []  # one report is no run


@pytest.mark.parametrize(("gap_ns", "expected"), [(0, 1), (MAX_GAP_NS, 1), (MAX_GAP_NS + 1, 2)])
def test_runs_are_a_minute_apart(gap_ns: int, expected: int) -> None:
    sessions = [_rank(0).session, _rank(1, start_ns=NS + gap_ns).session, _rank(2, start_ns=None).session]
    assert len(split_runs(sessions)) == expected
    # a long capture holds together what lies in it
    around = identity("long.sqlite", start_ns=-NS, duration_ns=10 * NS + gap_ns).session
    assert split_runs([*sessions, around]) == [[3, 0, 1]]
    assert split_runs([]) == []


def test_reports_of_different_runs() -> None:
    old, new = [_rank(n, start_ns=7200 * NS * (n > 2)) for n in range(3)], _rank(3, start_ns=7300 * NS)
    [doubt] = _inconsistencies(*old, new)
    assert doubt == (
        "`r0-1.sqlite`, `r1-2.sqlite` and `r2-3.sqlite` ended 2 hours before `r3-4.sqlite` began:"
        " are they of one run?"
    )
    [doubt] = _inconsistencies(*old, new, _rank(4, start_ns=400_000 * NS))
    assert doubt.startswith("captures are of 3 times, up to 4 days apart, from `r0-1.sqlite`, ")


def test_numbers_of_ranks_that_differ() -> None:
    [doubt] = _inconsistencies(_rank(0, 8), _rank(1, 8), _rank(2, 16))
    assert doubt == (
        "the number of ranks differs: 8 in `r0-1.sqlite` and `r1-2.sqlite`; 16 in `r2-3.sqlite`:"
        " are they of one run?"
    )
    [doubt] = _inconsistencies(_rank(0, 2), _rank(1, 2), layout="pp=3")[:1]
    assert doubt == "the layout has 3 ranks, but `r0-1.sqlite` and `r1-2.sqlite` record 2"


def test_a_rank_that_two_claim() -> None:
    twice = [_rank(3, pid=7), _rank(3, pid=8)]
    assert _inconsistencies(*twice) == ["`r3-7.sqlite` and `r3-8.sqlite` claim rank 3"]
    # captures of one process are one rank, and another run has the same ranks
    again = [
        identity(f"r.{n}.sqlite", ranks=[(100, None, 3, "RANK", None)], start_ns=n * NS) for n in range(3)
    ]
    assert _inconsistencies(*again) == []
    assert len(_inconsistencies(_rank(3, pid=7), _rank(3, pid=8, start_ns=500 * NS))) == 1
    many = [_rank(rank, pid=rank * 2 + copy) for rank in range(11) for copy in (1, 2)]
    assert _inconsistencies(*many)[-1] == "3 more ranks are claimed by several reports"


def test_ranks_without_a_report() -> None:
    assert _inconsistencies(_rank(0, 4), _rank(2, 4)) == ["of 4 ranks, ranks 1, 3 have no report"]
    assert _inconsistencies(_rank(0), _rank(2), layout="pp=3") == ["of 3 ranks, rank 1 has no report"]
    assert _inconsistencies(_rank(0, 20), _rank(1, 20)) == [
        "of 20 ranks, ranks 2, 3, 4, 5, 6, 7, 8, 9 and 10 more have no report"
    ]
    assert _inconsistencies(_rank(0), _rank(2)) == []
    # counted files leave out none, and are not counted where some are missing
    files = [identity(f"{name}.sqlite", pids=[n]) for n, name in enumerate("ab")]
    assert _inconsistencies(*files, layout="pp=2") == []
    assert _inconsistencies(*files, layout="pp=4") == [
        "`--layout` cannot place 2 GPU processes of `a.sqlite` and `b.sqlite`: their ranks are unknown, and their order"
        " says nothing, as they are 2 of 4 ranks; specify `--rank-from`"
    ]


def test_machines_of_one_name_are_told() -> None:
    reports = [identity(f"machine{n}/{n}.sqlite", pids=[n]) for n in range(5)]
    assert _inconsistencies(*reports) == [
        "5 machines share the hostname `worker`, distinguished by folder:"
        " `machine0/0.sqlite`, `machine1/1.sqlite`, `machine2/2.sqlite` and 2 more"
    ]

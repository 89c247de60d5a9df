"""Pairs of sends and receives of MPI, against a simulation of the matching that the standard prescribes."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.training import MPI_PAIRS, RUN_MPI_MESSAGES
from nsys_pp.training.transfers import pair_mpi_messages

RANKS = 3
SENDS = st.lists(  # sender, receiver, tag, order of arrival
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 2), st.integers(0, 9)), max_size=12
)
RECEIVES = st.lists(  # receiver, sender, tag (None: any), time
    st.tuples(
        st.integers(0, 2),
        st.sampled_from([0, 1, 2, 0, 1, 2, None]),
        st.sampled_from([1, 2, 1, 2, None]),
        st.integers(0, 30),
    ),
    max_size=12,
)
Send = tuple[int, int, int, int]
Receive = tuple[int, int | None, int | None, int]


def message(
    rank: int, *, is_send: bool, peer: int | None, tag: int | None, start: int, **more: object
) -> dict[str, object]:
    row = {"process_key": rank, "thread_key": rank, "name": "MPI_Isend" if is_send else "MPI_Irecv"}
    row |= {
        "communicator": "all 3",
        "rank": rank,
        "member_count": RANKS,
        "size_bytes": 8,
        "has_size": is_send,
    }
    row |= {"start_ns": start, "end_ns": 1000, "report": rank}
    row |= {"is_whole": True, "process_row": "CPU", "clock": rank, "clock_group": 0, "bound_ns": 5}
    return {**row, "is_send": is_send, "peer": peer, "tag": tag, **more}


def pair(rows: list[dict[str, object]]) -> pl.DataFrame:
    columns = {name: [row[name] for row in rows] for name in RUN_MPI_MESSAGES.names()}
    return pair_mpi_messages(pl.DataFrame(columns, schema=dict(RUN_MPI_MESSAGES)))


def match(sends: list[Send], receives: list[Receive]) -> dict[int, int]:
    """Match messages as MPI does, one after another in an order of arrival that keeps those of a pair of ranks in order."""
    order = sorted(
        range(len(sends)), key=lambda at: max(one[3] for one in sends[: at + 1] if one[:2] == sends[at][:2])
    )
    posted = sorted(range(len(receives)), key=lambda at: (receives[at][3], at))
    events = [(3 * position, "arrival", at) for position, at in enumerate(order)]
    events += [(receives[at][3], "receive", at) for at in posted]
    waiting: list[int] = []
    open_receives: list[int] = []
    found: dict[int, int] = {}

    def fits(send: int, receive: int) -> bool:
        sender, receiver, tag, _ = sends[send]
        wanted = receives[receive]
        return receiver == wanted[0] and wanted[1] in (None, sender) and wanted[2] in (None, tag)

    for _, kind, at in sorted(events, key=lambda event: event[0]):
        if kind == "arrival":
            other = next((receive for receive in open_receives if fits(at, receive)), None)
            if other is None:
                waiting.append(at)
            else:
                open_receives.remove(other)
                found[at] = other
        else:
            other = next((send for send in waiting if fits(send, at)), None)
            if other is None:
                open_receives.append(at)
            else:
                waiting.remove(other)
                found[other] = at
    return found


@settings(deadline=None, max_examples=150)
@given(SENDS, RECEIVES)
def test_pairs_are_those_of_the_standard(sends: list[Send], receives: list[Receive]) -> None:
    rows = [
        message(sender, is_send=True, peer=receiver, tag=tag, start=at)
        for at, (sender, receiver, tag, _) in enumerate(sends)
    ]
    rows += [
        message(receiver, is_send=False, peer=sender, tag=tag, start=time)
        for receiver, sender, tag, time in receives
    ]
    rows += [message(rank, is_send=True, peer=rank, tag=9, start=0) for rank in range(RANKS)]  # all are there
    pairs = pair(rows)
    found = {
        send: other - len(sends)
        for send, other in enumerate(pairs["other"][: len(sends)])
        if other is not None
    }
    truth = match(sends, receives)
    assert found.items() <= truth.items()
    if all(None not in one for one in receives):
        assert found == truth
    other = pairs["other"].to_list()
    assert all(other[to] == at for at, to in enumerate(other) if to is not None)
    assert all((to is None) == (why is not None) for to, why in pairs.select("other", "unpaired").iter_rows())


def test_a_receive_of_any_sender_belongs_to_the_only_one() -> None:
    rows = [
        message(0, is_send=True, peer=1, tag=3, start=5),
        message(2, is_send=True, peer=0, tag=1, start=5),
    ]
    rows += [message(1, is_send=False, peer=None, tag=None, start=1)]
    assert pair(rows)["other"].to_list() == [2, None, 0]
    rows[0]["member_count"] = rows[1]["member_count"] = rows[2]["member_count"] = 4  # one rank has no report
    pairs = pair(rows)
    assert pairs["other"].to_list() == [None] * 3
    assert pairs["unpaired"].to_list() == ["no counterpart", "no counterpart", "any sender or tag"]


def test_messages_that_contradict_their_order_have_no_pairs() -> None:
    small = message(1, is_send=False, peer=0, tag=1, start=1, size_bytes=4)
    early = message(1, is_send=False, peer=0, tag=1, start=1, end_ns=89)
    for receive in (small, early):
        rows = [message(0, is_send=True, peer=1, tag=1, start=100), receive]
        assert pair(rows)["unpaired"].to_list() == ["sizes or times that do not fit"] * 2
    early["end_ns"] = 90  # within the bounds of both clocks
    assert pair([message(0, is_send=True, peer=1, tag=1, start=100), early])["other"].to_list() == [1, 0]


def test_recordings_of_a_part_are_guesses() -> None:
    def rows(count: int) -> list[dict[str, object]]:
        sends = [message(0, is_send=True, peer=1, tag=1, start=at, is_whole=False) for at in range(count)]
        return [*sends, message(1, is_send=False, peer=0, tag=1, start=5)]

    assert pair(rows(1)).rows() == [(1, None, True), (0, None, True)]
    assert pair(rows(2))["unpaired"].to_list() == ["different counts"] * 3


def test_unknown_orders_have_no_pairs() -> None:
    send, receive = (
        message(0, is_send=True, peer=1, tag=1, start=0),
        message(1, is_send=False, peer=0, tag=1, start=5),
    )
    again = {**send, "start_ns": 1, "thread_key": 77}
    assert pair([send, again, receive])["unpaired"].to_list() == ["several threads"] * 3
    twin = {**receive, "report": 2, "process_key": 9}
    assert pair([send, receive, twin])["unpaired"].to_list() == ["a rank with several processes"] * 3
    assert pair([{**send, "communicator": None}])["unpaired"].to_list() == ["unknown communicator"]
    far = {**receive, "clock_group": 1}
    assert pair([send, far])["unpaired"].to_list() == ["clocks that cannot be compared"] * 2


def test_no_messages_have_no_pairs() -> None:
    assert pair([]).equals(MPI_PAIRS.to_frame())

"""Stages by the peers of messages: pipelines of every shape, and exchanges that are none."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.training import GATHERED_FRAMES
from nsys_pp.training.lanes import _find_stages_of_peers as find_stages_of_peers
from tests.training.scheduled_runs import fill_columns

_KEYS = {"report": pl.UInt32, "process_key": pl.Int64, "device_id": pl.Int32}
_LANES = build_schema({**_KEYS, "rank": pl.Int64})
_FIRST_FORWARDS = build_schema({**_KEYS, "step": pl.Int64, "start_ns": pl.Int64, "host_end_ns": pl.Int64})
_STEP_NS, _FORWARD_NS, _PAUSE_NS = 10_000, 1_000, 100
Message = tuple[int, str, int, int]  # lane, verb, peer lane, time in the step


def list_messages(chains: list[list[int]], *, is_ring: bool) -> list[Message]:
    """List the messages of one micro-batch: activations along each chain of lanes, gradients back; a ring also around its ends."""
    messages: list[Message] = []
    for chain in chains:
        edges = list(itertools.pairwise(chain))
        for before, (sender, receiver) in enumerate([*edges, *([(chain[-1], chain[0])] if is_ring else [])]):
            sent = (before + 1) * _FORWARD_NS
            messages += [(sender, "send", receiver, sent), (receiver, "receive", sender, sent)]
            back = _STEP_NS // 2 + (len(chain) - before) * _FORWARD_NS // 2
            messages += [(receiver, "send", sender, back), (sender, "receive", receiver, back)]
    return messages


def find(
    chains: list[list[int]],
    messages: Iterable[Message],
    *,
    steps: int = 3,
    is_paired: bool = False,
    ranks: list[int | None] | None = None,
    starts: Callable[[int], int] = lambda stage: stage * _FORWARD_NS + 2 * _PAUSE_NS,
) -> dict[int, int]:
    """Return the stage found of each lane; `is_paired`: a communicator for each two lanes, else for each chain."""
    stage_of = {lane: stage for chain in chains for stage, lane in enumerate(chain)}
    chain_of = {lane: number for number, chain in enumerate(chains) for lane in chain}
    ranks = ranks or list(range(len(stage_of)))
    keys = {"process_key": 1, "device_id": 0}
    lanes = pl.DataFrame([{**keys, "report": lane, "rank": ranks[lane]} for lane in sorted(stage_of)])
    first_forwards = pl.DataFrame(
        [
            {
                **keys,
                "report": lane,
                "step": step,
                "start_ns": step * _STEP_NS + starts(stage),
                "host_end_ns": step * _STEP_NS + starts(stage) + _FORWARD_NS,
            }
            for lane, stage in stage_of.items()
            for step in range(steps)
        ]
    )
    rows = []
    for lane, verb, peer, at in messages:
        members = sorted((lane, peer)) if is_paired else sorted(chains[chain_of[lane]])
        if peer not in members:
            members = sorted((lane, peer))
        for step in range(steps):
            rows.append(
                {
                    **keys,
                    "report": lane,
                    "step": step,
                    "verb": verb,
                    "communicator": hash(tuple(members)) % 2**63,
                    "peer": members.index(peer),
                    "launch_ns": step * _STEP_NS + at - _PAUSE_NS,
                    "start_ns": step * _STEP_NS + at - _PAUSE_NS,
                    "end_ns": step * _STEP_NS + at + _PAUSE_NS,
                }
            )
    found = find_stages_of_peers(
        fill_columns(lanes, _LANES),
        fill_columns(first_forwards, _FIRST_FORWARDS),
        fill_columns(pl.DataFrame(rows, infer_schema_length=None), GATHERED_FRAMES["messages"]),
    )
    return dict(found.select("report", "stage").iter_rows())


@given(
    pp=st.integers(2, 6), replicas=st.integers(1, 4), is_ring=st.booleans(), is_paired=st.booleans(),
    is_spread=st.booleans(),
)  # fmt: skip
def test_stages_of_pipelines_are_found(
    pp: int, replicas: int, is_ring: bool, is_paired: bool, is_spread: bool
) -> None:
    """Interleaved pipelines are rings; ranks are laid out along the pipeline, or across it."""
    numbers = range(pp * replicas)
    chains = [list(numbers[first::replicas]) if is_spread else list(numbers[first * pp : (first + 1) * pp])
              for first in range(replicas)]  # fmt: skip
    is_ring = is_ring and pp > 2  # of two stages, a message around the ends is one between neighbours
    found = find(chains, list_messages(chains, is_ring=is_ring), is_paired=is_paired)
    assert found == {lane: stage for chain in chains for stage, lane in enumerate(chain)}


PAIR = [[0, 1], [2, 3]]


def test_an_exchange_within_a_stage_is_no_pipeline() -> None:
    """As of ring attention: both lanes begin their forward, then each receives from the other."""
    ring = [
        (lane, verb, peer, 2 * _FORWARD_NS)
        for pair in PAIR
        for lane, peer in (pair, pair[::-1])
        for verb in ("send", "receive")
    ]
    assert find(PAIR, ring) == {}
    assert find(PAIR, ring, starts=lambda _: 5 * _FORWARD_NS) == {}  # both before their forward


@pytest.mark.parametrize(
    "extra",
    [
        (0, "send", 2, 4_000),  # between pipelines
        (0, "receive", 2, 4_000),
    ],
)
def test_messages_between_pipelines_leave_stages_unknown(extra: Message) -> None:
    lane, verb, peer, at = extra
    opposite = (peer, "receive" if verb == "send" else "send", lane, at)
    assert find(PAIR, list_messages(PAIR, is_ring=False))
    assert find(PAIR, [*list_messages(PAIR, is_ring=False), extra, opposite]) == {}


def test_pipelines_of_different_lengths_are_unknown() -> None:
    chains = [[0, 1, 2], [3, 4]]
    assert find(chains, list_messages(chains, is_ring=False)) == {}
    assert find([[0, 1], [2]], list_messages([[0, 1]], is_ring=False)) == {}


def test_unknown_ranks_and_missing_messages_leave_stages_unknown() -> None:
    messages = list_messages(PAIR, is_ring=False)
    assert find(PAIR, messages, ranks=[0, None, 2, 3]) == {}
    assert find(PAIR, messages[:4]) == {}  # the second pipeline has none
    assert find(PAIR, [message for message in messages if message[:2] != (1, "receive")]) == {}


def test_a_lane_without_a_first_forward_leaves_stages_unknown() -> None:
    assert find([[0, 1]], list_messages([[0, 1]], is_ring=False), steps=0) == {}

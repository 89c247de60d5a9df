"""Units that have no key in common: they are not compared, which changes nothing but the time."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from nsys_pp.alignment import collectives
from nsys_pp.alignment.clocks import Alignment, align_clocks
from nsys_pp.frames.clock import ANCHORS
from tests.alignment.cluster import Cluster, record


def _align_several(seed: int) -> Alignment:
    """Align two runs with keys of their own, of which machines have several sessions, and sessions without operations."""
    runs = [
        record(Cluster(machines=3, gpus=2, stages=stages, seed=seed, has_communicators=True, steps=6))
        for stages in (1, 2)
    ]
    sessions = [session for run in runs for session in run.reports]
    anchors = [frame for run in runs for frame in run.anchors]
    sessions += [replace(sessions[0], machine=machine) for machine in (sessions[0].machine, "a", "b", "b")]
    return align_clocks(sessions, [*anchors, *[ANCHORS.to_frame()] * 4])


def _list(alignment: Alignment) -> list[Any]:
    clocks = [(clock.from_ns.tolist(), clock.offset_ns.tolist()) for clock in alignment.report_clocks]
    return [clocks, alignment.clocks.to_dicts(), alignment.clock_of, alignment.zero_ns]


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_units_without_a_common_key_are_not_compared(seed: int) -> None:
    aligned = _align_several(seed)
    with patch.object(collectives, "_list_keys", lambda events, count: [1] * count):  # all are compared
        assert _list(_align_several(seed)) == _list(aligned)
    assert aligned.clocks["group"].n_unique() > 1


def test_a_thousand_sessions_that_share_nothing_are_not_compared() -> None:
    session = record(Cluster(machines=1, gpus=1, steps=2)).reports[0]
    sessions = [replace(session, machine=f"node{number}") for number in range(1_000)]
    calls = 0

    def count_choices(*arguments: Any) -> None:
        nonlocal calls
        calls += 1

    with patch.object(collectives, "choose", count_choices):
        alignment = align_clocks(sessions, [ANCHORS.to_frame()] * 1_000)
    assert calls == 0
    assert alignment.clocks["source"].to_list() == ["UTC"] * 1_000

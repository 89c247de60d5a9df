"""Replays of small random programs against their definition in plain loops, and of simulated runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nsys_pp
from fixtures import simulate
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import LANE_STATES, RUN_JOBS
from nsys_pp.training.replay import KERNELS, MEMBERS, build_graph
from nsys_pp.training.whatif import WhatIf

LANES = 3
Step = tuple[str, int, int, tuple[int, ...]]


@dataclass
class Ran:
    """What ran: states (lane, cause, start, end) and kernels (lane, start, end, meeting)."""

    states: list[tuple[int, str, int, int]] = field(default_factory=list)
    kernels: list[tuple[int, int, int, int]] = field(default_factory=list)


def run(steps: list[Step], factor: list[float]) -> Ran:
    """Run computes and meetings one after the other; each lane waits for its meetings."""
    now, ran = [0] * LANES, Ran()
    for number, (what, lane, duration, members) in enumerate(steps):
        if what == "compute":
            end = now[lane] + round(duration * factor[lane])
            ran.states.append((lane, "compute", now[lane], end))
            now[lane] = end
            continue
        end = max(now[member] for member in members) + duration
        for member in members:
            ran.kernels.append((member, now[member], end, number))
            ran.states.append((member, "collective_transfer", now[member], end))
            now[member] = end
    return ran


@st.composite
def programs(draw: st.DrawFn) -> list[Step]:
    steps: list[Step] = [("compute", lane, draw(st.integers(20, 90)) * 1_000, ()) for lane in range(LANES)]
    for _ in range(draw(st.integers(1, 12))):
        members = tuple(draw(st.sets(st.integers(0, LANES - 1), min_size=2)))
        steps.append(("meet", -1, draw(st.integers(11, 60)) * 1_000, members))
        steps += [("compute", lane, draw(st.integers(20, 90)) * 1_000, ()) for lane in members]
    return steps


@settings(deadline=None)
@given(programs(), st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=LANES, max_size=LANES))
def test_a_replay_is_the_program_with_other_durations(steps: list[Step], factor: list[float]) -> None:
    ran, changed = run(steps, [1.0] * LANES), run(steps, factor)
    states = pl.DataFrame(ran.states, schema=["lane", "cause", "start_ns", "end_ns"], orient="row")
    absent = {name: pl.lit(None) for name in LANE_STATES if name not in states.columns and name != "step"}
    kernels = pl.DataFrame(ran.kernels, schema=["lane", "start_ns", "end_ns", "group"], orient="row")
    graph = build_graph(
        jobs=RUN_JOBS.to_frame(),
        lane_states=conform(states.with_columns(step=0, **absent).sort("lane", "start_ns"), LANE_STATES),
        kernels=conform(kernels.with_columns(channel="lane"), KERNELS),
        members=conform(
            kernels.with_row_index("kernel").with_columns(
                peer=pl.lit(None), is_received=pl.lit(None), awaits=pl.lit(value=True), job=pl.lit(None)
            ),
            MEMBERS,
        ),
    )
    assert graph.is_whole
    computes = graph.pieces.cause == 0
    scale = np.where(computes, np.array(factor)[graph.pieces.lane], 1.0)
    ends = graph.replay(scale, np.ones(len(graph.kernels)))
    expected = sorted(end for _, cause, _, end in changed.states if cause == "compute")
    assert sorted(ends[computes].round().tolist()) == expected


def simulated(folder: Path, options: str) -> WhatIf:
    simulate.main([*options.split(), "--brief-truth", str(folder)])
    layout = {
        option.split()[0]: option.split()[1] for option in f" {options}".split(" --")[1:] if " " in option
    }
    sizes = ",".join(f"{axis}={layout.get(axis, 1)}" for axis in ("pp", "dp", "tp"))
    return WhatIf(nsys_pp.pipeline(folder, layout=sizes).training)


RUN = "--pp 2 --dp 2 --steps 4 --micro-batches 6 --layers 2 --jitter 0.01 --names megatron --seed 41"


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "options",
    [
        RUN,
        "--pp 4 --schedule zb-h1 --steps 3 --micro-batches 8 --layers 1 --seed 42",
        "--pp 2 --tp 2 --schedule interleaved --chunks 2 --steps 3 --micro-batches 4 --names megatron --seed 43",
        "--pp 2 --schedule gpipe --steps 3 --micro-batches 6 --sharded-optimizer --machines 2 --seed 44",
        "--pp 1 --dp 4 --steps 4 --micro-batches 2 --layers 2 --buckets 5 --seed 45",
        "--pp 1 --dp 1 --machines 1 --steps 3 --micro-batches 2 --layers 2 --seed 46",
    ],
)
def test_unchanged_a_replay_is_what_was_recorded(options: str, tmp_path: Path) -> None:
    run = simulated(tmp_path, options)
    apart = np.abs(run.graph.replay(run.unchanged.pieces, run.unchanged.kernels) - run.graph.pieces.end)
    assert apart.max() < 50_000  # a message that seems to arrive before it is sent
    assert run.error_fraction < 0.001
    assert not run.refusal


def test_members_of_a_collective_are_one_group_though_a_rank_is_late(tmp_path: Path) -> None:
    """Eight ranks reduce gradients at times that a host's stall sets; without communicators, pairs of ranks lead each other."""
    options = (
        "--pp 2 --dp 4 --tp 2 --order dp-tp-pp --steps 3 --micro-batches 5 --layers 1 --schedule interleaved"
    )
    more = (
        "--names megatron --autograd none --skew-us 12.6 --jitter 0.0947 --pace-us 6.59 --small-ops 3 --host"
    )
    last = (
        "--events waits --sync device --varied-hosts --machines 2 --gpus 8 --hardware-ids --offsets-ms 8.01"
    )
    stall = (
        "--message-bytes 486000 --utc-error-us 24.7 --schema 3.28.1 --host-stall 6,12=44.1 --seed 96000104"
    )
    simulate.main([*f"{options} {more} {last} {stall}".split(), "--brief-truth", str(tmp_path)])
    training = nsys_pp.pipeline(tmp_path, layout="pp=2,dp=4,tp=2,order=dp-tp-pp").training
    members = WhatIf(training).graph.members.filter(pl.col("peer").is_null())
    assert {*members.group_by("group").len()["len"]} == {2, 8, 16}


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "fault",
    [
        "--slow-rank 1=1.25",
        "--slow-link 0,2=6",
        "--slow-loader 2=20",
        "--host-stall 3,11=30",
        "--stage-costs 1,1.3",
    ],
)
def test_a_gain_is_what_the_healthy_run_lacks(fault: str, tmp_path: Path) -> None:
    """Truth: the same run without the fault, whose random numbers are the same."""
    healthy, faulty = (
        simulated(tmp_path / name, f"{RUN} {more}") for name, more in (("a", ""), ("b", fault))
    )
    if "link" in fault:
        change = faulty.heal_link(0, 2)
    elif "rank" in fault:
        change = faulty.heal_work([1], [0])
    elif "stage" in fault:
        change = faulty.heal_work([2, 3], [0, 1])
    else:
        lane = int(fault.split()[1][0])
        others = [other for other in range(int(faulty.graph.pieces.lane.max()) + 1) if other != lane]
        change = faulty.heal_time([lane], others, work="host")
    least, most = faulty.predict(change)
    lost = faulty.measured_ns - healthy.measured_ns
    assert lost > 0.02 * faulty.measured_ns
    assert least == pytest.approx(lost, rel=0.1)
    assert most == pytest.approx(least, abs=0.01 * faulty.measured_ns)


def test_with_clocks_far_apart_nothing_is_predicted(tmp_path: Path) -> None:
    simulate.main([*RUN.split(), "--brief-truth", str(tmp_path)])
    training = nsys_pp.pipeline(tmp_path).training
    lanes = training.lanes.with_columns(bound_ns=pl.lit(30_000_000, pl.Int64))
    assert "the clocks may be off" in str(WhatIf(replace(training, lanes=lanes)).refusal)
    states = training.lane_states.with_columns(cause=pl.lit("message", training.lane_states["cause"].dtype))
    assert "`--layout`" in str(WhatIf(replace(training, lane_states=states)).refusal)

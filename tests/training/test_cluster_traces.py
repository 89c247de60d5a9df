"""Replays of two published cluster runs, against the figures of their authors.

"Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025). A row is an operation of a worker in a step,
and each step is replayed by itself. The authors let an operation wait for the end of those before it, in each stream; in our graph
computes follow each other on a lane. All 46 figures are within 0.5 %.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import polars as pl
import pytest

from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import CAUSES, LANE_STATES, RUN_JOBS
from nsys_pp.training.replay import KERNELS, MEMBERS, Graph, build_graph
from tests.conftest import REPOSITORY

REPORTS = Path(os.environ.get("NSYS_PP_SHARED_REPORTS", REPOSITORY.parent / "shared" / "reports"))
FOLDER = REPORTS.parent / "traces"
COMPUTE = ("forward-compute", "backward-compute", "optimizer", "layernorm-grads-all-reduce")
ROUNDED_NS = (
    2_000_000  # starts and durations are 32-bit floats: an end may lie this far beyond the next start
)
HOST = CAUSES.index("host")
WITHIN = 0.01
Keep = Callable[[pl.DataFrame], pl.Series]


def name_groups() -> pl.Expr:
    """Name the operation that a communication of a worker is part of: of both ends, or all ranks of a group."""
    kind, stage = pl.col("optype"), pl.col("stage")
    sender = pl.when(kind.is_in(["forward-send", "backward-recv"])).then(stage).otherwise(stage - 1)
    of_message = pl.format("{} {} {} {}", kind.str.slice(0, 7), "dp_rank", sender, "seq_id")
    of_stage = pl.format("{} {} {}", kind, stage, "seq_id")
    return (
        pl.when(kind.str.contains("send|recv"))
        .then(of_message)
        .when(kind.is_in(["params-all-gather", "grads-reduce-scatter"]))
        .then(of_stage)
        .when(kind == "embedding-grads-all-reduce")
        .then(pl.format("{} {} {}", kind, "dp_rank", "seq_id"))
        .otherwise(pl.format("{} {}", kind, "seq_id"))
    )


class Step:
    """One step: its operations, and the graph of it."""

    def __init__(self, operations: pl.DataFrame) -> None:
        operations = operations.with_row_index("op")
        ends = dict(operations.select("op", "end_ns").iter_rows())
        states: list[tuple[int, str, int, int, int]] = []
        for (lane,), own in operations.sort("start_ns").partition_by("lane", as_dict=True).items():
            states += self._list_states(lane, own, ends)
        self.rows = operations.with_columns(end_ns=pl.Series([*ends.values()]))
        self.messages = self.rows.filter(~pl.col("optype").is_in(COMPUTE))
        schema = {
            "lane": pl.UInt32,
            "cause": pl.String,
            "start_ns": pl.Int64,
            "end_ns": pl.Int64,
            "op": pl.Int64,
        }
        frame = pl.DataFrame(states, schema=schema, orient="row").sort("lane", "start_ns")
        absent = {name: pl.lit(None) for name in ("position", "waits_for")}
        self.graph: Graph = build_graph(
            jobs=RUN_JOBS.to_frame(),
            lane_states=conform(frame.with_columns(step=0, **absent), LANE_STATES),
            kernels=self.messages.with_columns(channel=pl.struct("lane", "optype").rank("dense")).pipe(
                conform, KERNELS
            ),
            members=self.messages.select(group=name_groups().rank("dense"))
            .with_row_index("kernel")
            .with_columns(awaits=True, **{name: pl.lit(None) for name in ("peer", "is_received", "job")})
            .pipe(conform, MEMBERS),
        )
        pieces = pl.DataFrame({"lane": self.graph.pieces.lane, "start_ns": self.graph.pieces.start})
        pieces = pieces.with_columns(pl.col("lane").cast(pl.UInt32))
        of_piece = pieces.join(frame, on=["lane", "start_ns"], how="left", maintain_order="left")["op"]
        self.op = of_piece.fill_null(-1).to_numpy()  # compute of each piece
        self.transfer = np.zeros(len(self.messages))
        chosen = self.graph.of_kernel >= 0
        self.transfer[self.graph.of_kernel[chosen]] = self.graph.delay_ns[chosen]

    @staticmethod
    def _list_states(
        lane: Any, own: pl.DataFrame, ends: dict[int, int]
    ) -> list[tuple[int, str, int, int, int]]:
        """List the states of a worker; ends that are rounded beyond the next start are cut in `ends`."""
        is_compute = pl.col("optype").is_in(COMPUTE)
        columns = ("start_ns", "end_ns", "op")
        computes = own.filter(is_compute).select(columns).rows()
        others = own.filter(~is_compute).select(columns).rows()
        for rows in (computes, others):
            for (start, end, op), (following, _, _) in pairwise(rows):
                if start < following < end < following + ROUNDED_NS:
                    ends[op] = following
        states, now = [], int(own["start_ns"].min())  # type: ignore[arg-type]
        last = int(own["end_ns"].max())  # type: ignore[arg-type]
        for begin, end, op in [*((start, ends[op], op) for start, _, op in computes), (last, last, -1)]:
            for start, _, other in others:
                if start < begin < ends[other] < begin + ROUNDED_NS:
                    ends[other] = begin
                since, until = max(start, now), min(ends[other], begin)
                if since < until:
                    states += [(lane, "host", now, since, -1)] if since > now else []
                    states.append((lane, "message_transfer", since, until, -1))
                    now = until
            states += [(lane, "host", now, begin, -1)] if begin > now else []
            if begin < end:
                states.append((lane, "compute", begin, end, op))
            now = max(now, end)
        return states

    def replay_s(self, usual: dict[str, float], keep: Keep | None, *, delays: bool) -> float:
        """Replay the step, with usual durations of all operations but those to keep; None: keep all."""
        pieces, kernels = np.ones(len(self.op)), np.ones(len(self.messages))
        if not delays:
            pieces[self.graph.pieces.cause == HOST] = 0.0
        if keep is not None:
            own = (self.rows["end_ns"] - self.rows["start_ns"]).to_numpy()
            of_kind = np.array([usual[kind] for kind in self.rows["optype"]])
            factor = np.where(keep(self.rows).to_numpy(), 1.0, of_kind / np.maximum(own, 1))
            computes = self.op >= 0
            pieces[computes] = factor[self.op[computes]]
            of_kind = np.array([usual[kind] for kind in self.messages["optype"]])
            kernels = np.where(keep(self.messages).to_numpy(), 1.0, of_kind / np.maximum(self.transfer, 1.0))
        return float(self.graph.replay(pieces, kernels).max() - self.graph.origin_ns) / 1e9


class Trace:
    """A published run, and the figures of its authors."""

    def __init__(self, name: str) -> None:
        self.published: dict[str, Any] = json.loads((FOLDER / f"expected-{name}.json").read_text())
        start = (pl.col("start_ts").cast(pl.Float64) * 1e9).round().cast(pl.Int64)
        length = (pl.col("duration").cast(pl.Float64) * 1e9).round().cast(pl.Int64)
        rows = (
            pl.read_parquet(FOLDER / f"trace-{name}.parquet")
            .with_columns(
                pl.col("optype").cast(pl.String), lane=pl.struct("dp_rank", "stage").rank("dense") - 1
            )
            .filter(pl.col("optype") != "gc")
            .with_columns(start_ns=start, end_ns=start + length)
        )
        self.steps = [Step(step) for step in rows.partition_by("step", maintain_order=True)]
        compute = rows.filter(pl.col("optype").is_in(COMPUTE)).group_by("optype")
        self.usual = dict(compute.agg(pl.col("duration").mean() * 1e9).iter_rows())
        transfers = pl.concat(
            step.messages.select("optype", transfer=pl.Series(step.transfer)) for step in self.steps
        )
        self.usual |= dict(transfers.group_by("optype").agg(pl.col("transfer").median()).iter_rows())

    def replay_s(self, keep: Keep | None, *, delays: bool = False) -> float:
        """Replay all steps, and return the mean."""
        return fmean(step.replay_s(self.usual, keep, delays=delays) for step in self.steps)

    @cached_property
    def without_delays_s(self) -> float:
        return self.replay_s(None)

    @cached_property
    def ideal_s(self) -> float:
        return self.replay_s(lambda rows: rows["lane"] < 0)

    def explain(self, keep: Keep) -> float:
        """Return by how much the step is slower if only some operations keep their durations."""
        return self.replay_s(keep) / self.ideal_s

    def share(self, healed: Keep) -> float:
        """Return the share of the slowdown that goes if some operations are made usual."""
        slower_s = self.without_delays_s - self.ideal_s
        return (self.without_delays_s - self.replay_s(lambda rows: ~healed(rows))) / slower_s


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["ST", "AR"])
def test_figures_are_those_that_were_published(name: str) -> None:
    if not FOLDER.is_dir():
        pytest.skip("no published traces beside the repository")
    trace = Trace(name)
    measured_s = [(step.rows["end_ns"].max() - step.graph.origin_ns) / 1e9 for step in trace.steps]  # type: ignore[operator]
    unchanged_s = [step.replay_s(trace.usual, None, delays=True) for step in trace.steps]
    assert unchanged_s == pytest.approx(measured_s, rel=1e-4)
    published = trace.published
    figures = {
        "launch": (fmean(measured_s) / trace.without_delays_s, published["launch_slowdown"]),
        "S": (trace.without_delays_s / trace.ideal_s, published["blocking_slowdown"]),
        "ideal": (trace.ideal_s, fmean(published["step_t_noblk"].values())),
    }
    for column in ("dp_rank", "stage"):
        for value, figure in published[f"blocking_decompose_by_{column}"].items():
            figures[f"{column} {value}"] = (trace.explain(lambda rows: rows[column] == int(value)), figure)  # noqa: B023
    messages = {f"{way}-pp-comm": [f"{way}-send", f"{way}-recv"] for way in ("forward", "backward")}
    for kind, figure in published["blocking_decompose_by_optype"].items():
        kinds = messages.get(kind, [kind])
        figures[kind] = (trace.explain(lambda rows: rows["optype"].is_in(kinds)), figure)  # noqa: B023
    # the worst of 3 % of the workers, but at least one; and the last stage
    lanes = range(int(trace.steps[0].rows["lane"].max()) + 1)  # type: ignore[arg-type]
    worst = max(lanes, key=lambda lane: trace.explain(lambda rows: rows["lane"] == lane))
    last = trace.steps[0].rows["stage"].max()
    figures["M_W"] = (trace.share(lambda rows: rows["lane"] == worst), published["Mw"]["Mw"])
    figures["M_S"] = (trace.share(lambda rows: rows["stage"] == last), published["Ms"]["Ms"])
    assert not {
        what: (ours, theirs)
        for what, (ours, theirs) in figures.items()
        if abs(ours - theirs) > WITHIN * max(abs(theirs), 0.1)
    }

"""What if: changes of durations in a run, and the steps that follow from them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Literal

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import find_distinct, gather, has_value, is_among
from nsys_pp.arrays.types import Bools, Floats, Int64s
from nsys_pp.frames.training import CAUSES, SCHEDULED_KINDS, Training
from nsys_pp.training.replay import BETWEEN, COMMUNICATION, Graph, build_graph, list_communication

# Least share of a mean step: a smaller gain is no finding, and a prediction may leave it open. If all steps
# since one are slow, it counts in a slow step.
LEAST_GAIN = 0.01
# Share of the step that may be unknown, of clocks or waits, and error of the unchanged replay. Beyond, waits
# and transfers are uncertain, and nothing is predicted.
MOST_UNKNOWN, MOST_ERROR = 0.02, 0.1
Work = Literal["compute", "copy", "host", "data"]
_CAUSES_OF: dict[Work, tuple[int, ...]] = {
    "compute": tuple(CAUSES.index(cause) for cause in ("compute", "pause")),
    "host": tuple(CAUSES.index(cause) for cause in ("host", "loading", "profiler", "data")),
    "copy": (CAUSES.index("copy"),),
    "data": (CAUSES.index("data"),),
}


class Change(Struct, frozen=True):
    """A change of a run: factors of the duration of each piece, and of the transfer of each kernel."""

    pieces: Floats
    kernels: Floats

    def __and__(self, other: Change) -> Change:
        """Return both changes: of each duration the smaller one."""
        return Change(np.minimum(self.pieces, other.pieces), np.minimum(self.kernels, other.kernels))

    def __mul__(self, other: Change) -> Change:
        """Return both changes, one after the other."""
        return Change(self.pieces * other.pieces, self.kernels * other.kernels)


class WhatIf:
    """A run that can be replayed with other durations.

    Args:
        training: The run; with steps.
    """

    def __init__(self, training: Training) -> None:
        self.training = training

    @cached_property
    def graph(self) -> Graph:
        """Moments of the run, and what each depends on."""
        of = self.training
        kernels, members = list_communication(
            lanes=of.lanes, anchors=of.anchors, transfers=of.transfers, jobs=of.jobs
        )
        return build_graph(jobs=of.jobs, lane_states=of.lane_states, kernels=kernels, members=members)

    @property
    def unchanged(self) -> Change:
        """No change."""
        return Change(np.ones(len(self.graph.pieces.lane)), np.ones(len(self.graph.kernels)))

    @cached_property
    def measured_ns(self) -> float:
        """Measured time of a mean complete step, with what lies between steps."""
        return self._average(self.graph.pieces.end.astype(np.float64))

    @cached_property
    def replayed_ns(self) -> float:
        """The same of the replay of what was recorded."""
        return self.step_ns(self.unchanged)

    def step_ns(self, change: Change) -> float:
        """Replay a changed run, and return the time of a mean complete step."""
        return self._average(self.graph.replay(change.pieces, change.kernels))

    def gain_ns(self, change: Change) -> float:
        """Return by how much the mean step of the replay becomes shorter."""
        return self.replayed_ns - self.step_ns(change)

    def _average(self, ends: Floats) -> float:
        """Return the time from the first start to the last end of the complete steps, by their number.

        The lengths of single steps would grow where one rank begins them earlier than the others.
        """
        row, count = self.counted
        return float(ends[row].max() - self.graph.find_starts(ends)[row].min()) / count if count else 0.0

    @cached_property
    def counted(self) -> tuple[Int64s, int]:
        """Pieces of the complete steps, of all steps if the capture cuts each; and their number."""
        steps = self.training.known_steps
        every = steps["step"].unique().to_numpy()
        whole = np.setdiff1d(every, steps.filter("is_partial")["step"].to_numpy())
        whole = whole if len(whole) else every
        return np.flatnonzero(np.isin(self.graph.pieces.step, whole)), len(whole)

    @cached_property
    def error_fraction(self) -> float:
        """Error of the replay of what was recorded, as a share of the measured step."""
        return abs(self.replayed_ns / self.measured_ns - 1) if self.measured_ns else 0.0

    @cached_property
    def known_kernels(self) -> Int64s:
        """Kernels of communication with known other members, of which wait and transfer are known apart."""
        sizes = self.graph.members.filter("awaits").group_by("group").agg(pl.len(), kernel="kernel")
        known: Int64s = sizes.filter(pl.col("len") > 1)["kernel"].explode().to_numpy()
        return known

    @cached_property
    def _shortest(self) -> Change:
        """No time for communication of unknown members, and for copies, which may begin earlier."""
        graph, change = self.graph, self.unchanged
        change.kernels[np.setdiff1d(np.arange(len(graph.kernels)), self.known_kernels)] = 0.0
        change.pieces[np.isin(graph.pieces.cause, (*COMMUNICATION, *_CAUSES_OF["copy"]))] = 0.0
        return change

    @cached_property
    def _shortest_ns(self) -> float:
        return self.step_ns(self._shortest)

    @cached_property
    def unknown_fraction(self) -> float:
        """Share of the steps in which it is unknown whether a lane waits for others or for a transfer."""
        states = self.training.lane_states
        length = (states["end_ns"] - states["start_ns"]).to_numpy()
        is_unknown = is_among(states["cause"], ("message", "collective"))
        return float(length[is_unknown].sum() / max(length.sum(), 1))

    def predict(self, change: Change) -> tuple[float, float]:
        """Return the least and the largest gain of the mean step.

        Communication of unknown members may be a wait, and a copy may begin earlier: each is as long as
        recorded, or takes no time.
        """
        gains = self.gain_ns(change), self._shortest_ns - self.step_ns(self._shortest * change)
        return min(gains), max(gains)

    @cached_property
    def bound_fraction(self) -> float:
        """Error bound of the clocks as a share of the step; infinite if it is unknown."""
        lanes = self.training.lanes.join(self.training.steps, on="lane", how="semi")
        if lanes["bound_ns"].has_nulls() or lanes["clock_group"].n_unique() > 1:
            return math.inf
        return float(lanes["bound_ns"].to_numpy().max()) / self.measured_ns

    @cached_property
    def refusal(self) -> tuple[str, str] | None:
        """Reason that nothing can be predicted, and what would help; None if it can."""
        if (self.training.steps["source"] == "capture").all():
            return "there are no steps to replay", "name the ranges that are steps with `--step-pattern`"
        if not self.graph.is_whole:
            return "messages and collectives wait for each other in a circle", "check `--layout`, if given"
        limits = (
            (
                self.bound_fraction,
                MOST_UNKNOWN,
                "the clocks may be off by {} of a step",
                "capture more steps on all ranks at the same time: `nsys-pp align` shows the clocks",
            ),
            (
                self.unknown_fraction,
                MOST_UNKNOWN,
                "in {} of a step communication waits for unknown peers",
                "name the layout with `--layout`, or add the reports of all ranks: the notes of"
                " `nsys-pp pipeline` say what is not paired, and why",
            ),
            (
                self.error_fraction,
                MOST_ERROR,
                "the replay of what was recorded misses the step by {}",
                "`nsys-pp pipeline` shows what lies between the jobs",
            ),
        )
        for share, most, words, hint in limits:
            if share > most:
                return words.format(f"{100 * share:.1f} %" if share < 1 else "more than all"), hint
        return None

    def scale(
        self, factors: Mapping[int, float], *, work: Work = "compute", steps: Collection[int] | None = None
    ) -> Change:
        """Multiply the durations of some work of lanes, in some steps or all, by factors."""
        pieces, change = self.graph.pieces, self.unchanged
        factor = np.ones(len(self.training.lanes))
        factor[list(factors)] = list(factors.values())
        chosen = self._choose(work, steps)
        change.pieces[chosen] = factor[pieces.lane[chosen]]
        return change

    def _choose(self, work: Work, steps: Collection[int] | None) -> Bools:
        return np.isin(self.graph.pieces.cause, _CAUSES_OF[work]) & (
            np.True_ if steps is None else np.isin(self.graph.pieces.step, list(steps))
        )

    def scale_kind(self, kind: str, factor: float) -> Change:
        """Multiply the compute of jobs of a kind by a factor."""
        change, of_job = self.unchanged, gather(self.training.jobs["kind"], self.graph.pieces.job)
        is_kind = (of_job == kind).fill_null(value=False).to_numpy()
        change.pieces[self._choose("compute", None) & is_kind] = factor
        return change

    def scale_links(self, factors: pl.DataFrame) -> Change:
        """Multiply the transfers of messages by the factor of their link: sender, receiver, factor."""
        change, found = self.unchanged, self.links.join(factors, on=["sender", "receiver"])
        change.kernels[found["kernel"].to_numpy()] = found["factor"]
        return change

    def scale_communication(self, factor: float) -> Change:
        """Multiply the transfers of all messages and collectives by a factor."""
        return Change(self.unchanged.pieces, factor * self.unchanged.kernels)

    def saved_ns(self, change: Change) -> Floats:
        """Return the time that each lane needs less, whether or not a step gains from it."""
        pieces = self.graph.pieces
        saved = np.zeros(len(self.training.lanes))
        np.add.at(saved, pieces.lane, (1 - change.pieces) * (pieces.end - pieces.start))
        return saved

    def heal_work(
        self, lanes: Collection[int], peers: Collection[int], *, steps: Collection[int] | None = None
    ) -> Change:
        """Let kernels and copies of some lanes take as long as those of their peers, if they are slower."""
        return self.heal_compute(lanes, peers, steps=steps) & self.heal_time(
            lanes, peers, work="copy", steps=steps
        )

    def heal_compute(
        self, lanes: Collection[int], peers: Collection[int], *, steps: Collection[int] | None = None
    ) -> Change:
        """Let kernels of lanes take as long as those of the same name on their peers, if they are slower.

        In each kind of job, the median of the peers over the steps counts. What a lane needs more over the
        steps is taken from those in which it needs more, in proportion: noise of steps is no gain. Kernels
        that no peer has change like the others; more kernels than on the peers stay. Without common names,
        times of steps count.
        """
        pieces, total = self.graph.pieces, pl.col("total_ns").sum()
        chosen = [] if steps is None else [pl.col("step").is_in(list(steps))]
        kernels = self.training.kernels.filter(~pl.col("is_communication"), *chosen).with_columns(
            pl.col("step").cast(pl.Int64), name=pl.coalesce("full_name", "name")
        )
        usual = (
            kernels.filter(pl.col("lane").is_in(list(peers)))
            .group_by("lane", "job_kind", "name")
            .agg(usual_ns=total / pl.col("count").sum())
            .group_by("job_kind", "name")
            .agg(pl.col("usual_ns").median())
        )
        key = ["lane", "step", "job_kind"]
        excess, more = pl.col("excess_ns"), pl.col("excess_ns").clip(0)
        share = excess.sum().clip(0) / more.sum()
        factors = (
            kernels.filter(pl.col("lane").is_in(list(lanes)))
            .join(usual, on=["job_kind", "name"], nulls_equal=True)
            .group_by(key)
            .agg(total_ns=total, excess_ns=total - (pl.col("count") * pl.col("usual_ns")).sum())
            .select(*key, factor=1 - (share.over("lane", "job_kind") * more / pl.col("total_ns")).fill_nan(0))
        )
        kind = gather(self.training.jobs["kind"], pieces.job)
        work = pl.DataFrame(
            {"lane": pl.Series(pieces.lane, dtype=pl.UInt32), "step": pieces.step, "job_kind": kind}
        )
        factor = work.join(factors, on=key, how="left", nulls_equal=True, maintain_order="left")["factor"]
        change = self.heal_time(lanes, peers, work="compute", steps=steps)
        known = self._choose("compute", steps) & has_value(factor)
        change.pieces[known] = factor.to_numpy()[known]
        return change

    @cached_property
    def _sums(self) -> tuple[Floats, Int64s]:
        """Time of each lane, step and cause; and the number of the step of each piece."""
        pieces = self.graph.pieces
        _, step = find_distinct(pieces.step)
        sums = np.zeros((len(self.training.lanes), int(step.max()) + 1, BETWEEN + 1))
        np.add.at(sums, (pieces.lane, step, pieces.cause), pieces.end - pieces.start)
        return sums, step

    def heal_time(
        self,
        lanes: Collection[int],
        peers: Collection[int],
        *,
        work: Work,
        steps: Collection[int] | None = None,
    ) -> Change:
        """Give some work of lanes the median time of their peers in each step, if it is less.

        For hosts, which may all be late at once, the median of the steps of each lane, if it is less still.
        """
        pieces, change, own_lanes = self.graph.pieces, self.unchanged, list(lanes)
        sums, step = self._sums
        time = sums[:, :, list(_CAUSES_OF[work])].sum(axis=2)
        own = target = time[own_lanes]
        if len(peers):
            target = np.minimum(target, np.median(time[list(peers)], axis=0))
        if work in ("host", "data"):
            target = np.minimum(target, np.median(own, axis=1, keepdims=True))
        factor = np.ones(time.shape)
        factor[own_lanes] = np.divide(target, own, out=np.ones(own.shape), where=own > 0)
        chosen = self._choose(work, steps)
        change.pieces[chosen] = factor[pieces.lane[chosen], step[chosen]]
        return change

    @cached_property
    def _compute(self) -> pl.DataFrame:
        """Compute of jobs of schedules: piece, time_ns, and lane, stage, step, kind, chunk and job."""
        pieces, jobs = self.graph.pieces, self.training.jobs
        chosen = np.flatnonzero(self._choose("compute", None))
        of_piece = {
            "piece": chosen,
            "job": pieces.job[chosen],
            "time_ns": (pieces.end - pieces.start)[chosen],
        }
        scheduled = jobs.filter(pl.col("kind").is_in(SCHEDULED_KINDS)).select(
            "lane", "step", "kind", "chunk", job=pl.col("job").cast(pl.Int64)
        )
        lanes = self.training.lanes.select("lane", "stage")
        return pl.DataFrame(of_piece).join(scheduled, on="job").join(lanes, on="lane")

    def balance(self, change: Change | None = None) -> Change:
        """Give each kind of job the same compute on each stage, as if layers were split evenly.

        What a job of a stage takes is the median of its fastest rank, after another change.
        """
        kind, healed = ["stage", "kind"], self.unchanged if change is None else change
        time = pl.col("time_ns") * pl.Series(healed.pieces[self._compute["piece"].to_numpy()])
        each = (
            self._compute.with_columns(time)
            .group_by(*kind, "lane", "job")
            .agg(pl.col("time_ns").sum())
            .group_by(*kind, "lane")
            .agg(pl.col("time_ns").median())
            .group_by(kind)
            .agg(pl.col("time_ns").min())
        )
        return self._scale_jobs(
            each.select(*kind, factor=pl.col("time_ns").mean().over("kind") / pl.col("time_ns"))
        )

    def even_lengths(self) -> Change:
        """Let jobs of a kind and chunk take as long as they do on average in their step and rank."""
        alike = ["lane", "step", "kind", "chunk"]
        jobs = self._compute.group_by(*alike, "job").agg(pl.col("time_ns").sum())
        return self._scale_jobs(
            jobs.select("job", factor=pl.col("time_ns").mean().over(alike) / pl.col("time_ns"))
        )

    def _scale_jobs(self, factors: pl.DataFrame) -> Change:
        """Multiply the compute of jobs by a factor; the other columns say of which."""
        change, key = self.unchanged, [name for name in factors.columns if name != "factor"]
        found = self._compute.join(factors, on=key, nulls_equal=True)
        change.pieces[found["piece"].to_numpy()] = found["factor"]
        return change

    @cached_property
    def links(self) -> pl.DataFrame:
        """Both kernels of each message, if awaited: kernel, is_local, sender, receiver, transfer_ns."""
        graph = self.graph
        members = graph.members.drop_nulls("peer").filter("awaits")
        own, peer = graph.kernels["lane"].gather(members["kernel"]), members["peer"]
        machines = self.training.lanes["machine"]
        return members.select(
            "kernel",
            is_local=machines.gather(own).eq_missing(machines.gather(peer)),
            sender=pl.when("is_received").then(peer).otherwise(own),
            receiver=pl.when("is_received").then(own).otherwise(peer),
            transfer_ns=pl.Series(graph.transfers).gather(members["kernel"]),
        )

    def heal_link(self, sender: int, receiver: int) -> Change:
        """Give messages from one lane to another the median transfer of like links, if they need longer."""
        is_own = (pl.col("sender") == sender) & (pl.col("receiver") == receiver)
        own, factor = self.links.filter(is_own), 1.0
        # inside machines and between them are different networks
        others = self.links.filter(~is_own, pl.col("is_local").is_in(own["is_local"].implode()))
        if len(own) and len(others):
            each = others.group_by("sender", "receiver").agg(pl.col("transfer_ns").median())
            usual = np.median(each["transfer_ns"].to_numpy())
            factor = min(1.0, usual / max(np.median(own["transfer_ns"].to_numpy()), 1.0))
        return self.scale_links(own.select("sender", "receiver", factor=factor).unique())

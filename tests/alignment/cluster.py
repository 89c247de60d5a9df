"""Random anchors of a cluster with true clocks, drawn from distributions: fast enough for 128 machines.

`fixtures` simulates whole reports; this draws only the inputs of alignment, so that many layouts, clocks and
kinds of damage can be tested in a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from zlib import crc32

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys_pp.alignment.clocks import Alignment
from nsys_pp.arrays.types import Floats, Int64s
from nsys_pp.frames.clock import ANCHORS, Clock
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import Session

EPOCH_NS = 1_790_000_000_000_000_000


_MICRO = 1_000


_MILLI = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Parameters of the drawing; times in ns, drift in parts per million."""

    machines: int = 4
    gpus: int = 2  # of each machine; one rank each
    stages: int = 1
    tensor: int = 1
    steps: int = 20
    step_ns: int = 200 * _MILLI
    jitter: float = 0.02  # of a step
    buckets: int = 2  # all-reduces of gradients in a step
    micro_batches: int = 4
    has_world: bool = True  # one all-reduce of all ranks in a step
    dense: int = 40  # tensor-parallel all-reduces of a step
    lockstep_ns: int = (
        0  # these of each stage are this long after those of the stage before; 0: at times of their own
    )
    skew_ns: int = 5 * _MICRO
    buffered: bool = False
    travel_ns: int = 150 * _MICRO  # of messages
    early_ns: int = 0  # receives begin earlier by up to
    offset_ns: int = 1_000 * _MILLI  # up to
    drift_ppm: float = 100.0  # up to
    utc_error_ns: int = 100 * _MICRO  # between reports of a machine
    window_ns: int = 0  # captures begin and end apart by up to
    has_communicators: bool = False  # NCCL's payload
    shares_system_clock: bool = False
    per_machine: bool = False  # one report per machine
    outliers: float = 0.003
    seed: int = 1

    @property
    def ranks(self) -> int:
        return self.machines * self.gpus

    @property
    def replicas(self) -> int:
        return self.ranks // (self.stages * self.tensor)


@dataclass(slots=True)
class Recording:
    """The reports of a cluster and their truth."""

    reports: list[Session]
    anchors: list[pl.DataFrame]
    clocks: list[TrueClock]
    # sending report, start on its clock, receiving report, end on its clock
    messages: list[tuple[int, int, int, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Draw:
    cluster: Cluster
    random: np.random.Generator
    rows: dict[int, list[dict[str, npt.NDArray[np.int64] | str | int]]] = field(default_factory=dict)
    messages: list[tuple[int, int, Int64s, Int64s]] = field(default_factory=list)

    def collective(self, name: str, channel: str, ranks: Int64s, done: Int64s, lasts: int) -> None:
        """Add a collective: all ranks end together, plus a random delay each."""
        communicator = crc32(repr((name, channel, ranks.tolist())).encode())
        for index, rank in enumerate(ranks.tolist()):
            end = done + self._late(len(done))
            start = done - (lasts * (1 + 3 * self.random.random(len(done)))).astype(np.int64)
            self._add(rank, "collective", name, channel, communicator, index, -1, start, end)

    def message(self, sender: int, receiver: int, channel: str, ready: Int64s, travel: int) -> None:
        count = len(ready)
        late = (self.random.normal(0, 2 * travel, (2, count))).astype(np.int64)
        send, receive = ready + late[0], ready + late[1]
        if self.cluster.early_ns:
            receive -= (self.random.random(count) * self.cluster.early_ns).astype(np.int64)
        if self.cluster.buffered:
            send_end = send + self._late(count) + 5_000
            receive_end = np.maximum(send_end, receive) + travel + self._late(count)
        else:
            done = np.maximum(send, receive) + travel
            send_end, receive_end = done + self._late(count), done + self._late(count)
        communicator = crc32(repr((channel, sorted((sender, receiver)))).encode())
        low = int(sender > receiver)
        self._add(sender, "send", "SendRecv", f"{channel} out", communicator, low, 1 - low, send, send_end)
        self._add(
            receiver, "receive", "SendRecv", f"{channel} in", communicator, 1 - low, low, receive, receive_end
        )
        self.messages.append((sender, receiver, send, receive_end))

    def _late(self, count: int) -> Int64s:
        skew = self.cluster.skew_ns
        late = self.random.uniform(0, skew) + self.random.exponential(skew / 2, count)
        late += (self.random.random(count) < self.cluster.outliers) * self.random.uniform(2e5, 2e6, count)
        return late.astype(np.int64)

    def _add(
        self,
        rank: int,
        kind: str,
        name: str,
        channel: str,
        communicator: int,
        index: int,
        peer: int,
        start: Int64s,
        end: Int64s,
    ) -> None:
        row: dict[str, npt.NDArray[np.int64] | str | int] = {
            "kind": kind,
            "name": name,
            "channel": channel,
            "communicator": communicator,
            "index": index,
            "peer": peer,
            "start": start,
            "end": end,
        }
        self.rows.setdefault(rank, []).append(row)


def record(cluster: Cluster) -> Recording:
    random = np.random.Generator(np.random.PCG64(cluster.seed))
    draw = _Draw(cluster, random)
    steps = 10 * _MILLI + np.cumsum(
        (cluster.step_ns * (1 + cluster.jitter * random.standard_normal(cluster.steps))).astype(np.int64)
    )
    _run(cluster, draw, steps)
    return _report(cluster, draw, random, int(steps[-1]) + 20 * _MILLI)


def _run(cluster: Cluster, draw: _Draw, steps: Int64s) -> None:
    """Draw the steps: messages and layers throughout, then gradients, then the norm at the end."""
    count, random = cluster.steps, draw.random
    ranks = np.arange(cluster.ranks).reshape(cluster.stages, cluster.replicas, cluster.tensor)
    if cluster.has_world:
        draw.collective("AllReduce_Sum_f32", "stream 17", ranks.ravel(), steps, 60_000)
    step, jitter = cluster.step_ns, cluster.jitter
    for stage in range(cluster.stages):
        for tensor in range(cluster.tensor):
            for bucket in range(cluster.buckets if cluster.replicas > 1 else 0):
                late = random.uniform(0, jitter * step, count).astype(np.int64)
                done = steps - (bucket + 1) * step // 20 - late
                draw.collective("AllReduce_Sum_bf16", "stream 18", ranks[stage, :, tensor], done, 900_000)
        for replica in range(cluster.replicas):
            if cluster.tensor > 1:
                if not (cluster.lockstep_ns and stage):
                    at = steps[:, None] - step * (0.2 + 0.7 * random.random((count, cluster.dense)))
                done = np.sort(at.astype(np.int64).ravel()) + stage * cluster.lockstep_ns
                draw.collective("AllReduce_Sum_bf16", "stream 7", ranks[stage, replica], done, 30_000)
            for tensor in range(cluster.tensor):
                if stage + 1 < cluster.stages:
                    _exchange(
                        cluster,
                        draw,
                        int(ranks[stage, replica, tensor]),
                        int(ranks[stage + 1, replica, tensor]),
                        steps,
                    )


def _exchange(cluster: Cluster, draw: _Draw, first: int, second: int, steps: Int64s) -> None:
    batches = cluster.micro_batches
    spread = np.arange(batches) * (cluster.step_ns // (batches + 3))
    noise = draw.random.uniform(0, cluster.step_ns * cluster.jitter, (2, cluster.steps, batches)).astype(
        np.int64
    )
    ready = (steps[:, None] - int(0.9 * cluster.step_ns) + spread + noise[0]).ravel()
    draw.message(first, second, "forward", ready, cluster.travel_ns)
    draw.message(
        second, first, "backward", (ready + cluster.step_ns // 9 + noise[1].ravel()), cluster.travel_ns
    )


def _report(cluster: Cluster, draw: _Draw, random: np.random.Generator, last_ns: int) -> Recording:
    machine = np.arange(cluster.ranks) // cluster.gpus
    offset = random.integers(-cluster.offset_ns, cluster.offset_ns + 1, cluster.machines)
    drift = random.uniform(-1, 1, cluster.machines) * cluster.drift_ppm * 1e-6
    parts = np.unique(machine) if cluster.per_machine else np.arange(cluster.ranks)
    reports, anchors, clocks = [], [], []
    starts = {}
    for part in parts.tolist():
        ranks = [
            rank for rank in range(cluster.ranks) if (machine[rank] if cluster.per_machine else rank) == part
        ]
        machine_number = int(machine[ranks[0]])
        begin = -int(random.integers(20 * _MILLI, 90 * _MILLI)) + int(
            random.integers(0, cluster.window_ns + 1)
        )
        until = last_ns - int(random.integers(0, cluster.window_ns + 1))
        noise = int(random.integers(-cluster.utc_error_ns, cluster.utc_error_ns + 1))
        rate = 1 + float(drift[machine_number])
        # at true time 0 the machine's clock differs from true time by its offset only
        clock_at_begin = EPOCH_NS + int(offset[machine_number]) + round(begin * rate)
        duration_ns = round((until - begin) * rate)
        boot = 1_000_000_000_000 * (machine_number + 1)
        reports.append(
            Session(
                machine=f"node{machine_number}",
                machine_source="hostname",
                utc_epoch_ns=clock_at_begin + noise,
                system_clock_ns=boot + round(begin * rate) if cluster.shares_system_clock else None,
                capture_end_ns=duration_ns,
            )
        )
        for rank in ranks:
            starts[rank] = (len(reports) - 1, begin, rate)
        anchors.append(_anchors(cluster, draw, ranks, begin, until, rate))
        clocks.append(TrueClock(origin_ns=begin, rate=rate, first_ns=0, last_ns=duration_ns))
    messages = []
    for sender, receiver, send, end in draw.messages:
        a, a_begin, a_rate = starts[sender]
        b, b_begin, b_rate = starts[receiver]
        for s, e in zip(send[:50].tolist(), end[:50].tolist(), strict=True):
            messages.append((a, round((s - a_begin) * a_rate), b, round((e - b_begin) * b_rate)))
    return Recording(reports, anchors, clocks, messages)


def _anchors(
    cluster: Cluster, draw: _Draw, ranks: list[int], begin: int, until: int, rate: float
) -> pl.DataFrame:
    frames = []
    for rank in ranks:
        for row in draw.rows.get(rank, []):
            start, end = row["start"], row["end"]
            assert isinstance(start, np.ndarray)
            assert isinstance(end, np.ndarray)
            inside = (start >= begin) & (end < until)
            has_communicators = cluster.has_communicators
            frames.append(
                pl.DataFrame(
                    {
                        "start_ns": np.round((start[inside] - begin) * rate).astype(np.int64),
                        "end_ns": np.round((end[inside] - begin) * rate).astype(np.int64),
                    }
                ).with_columns(
                    process_key=pl.lit(rank + 1, pl.Int64),
                    device_id=pl.lit(0, pl.Int32),
                    channel=pl.lit(row["channel"]),
                    kind=pl.lit(row["kind"]),
                    name=pl.lit(row["name"]),
                    communicator=pl.lit(row["communicator"] if has_communicators else None, pl.UInt64),
                    rank=pl.lit(row["index"] if has_communicators else None, pl.Int64),
                    peer=pl.lit(row["peer"] if has_communicators and row["peer"] != -1 else None, pl.Int64),
                    size_bytes=pl.lit(None, pl.Int64),
                )
            )
    if not frames:
        return ANCHORS.to_frame()
    return pl.concat(frames).sort("start_ns").pipe(conform, ANCHORS)


_WELL_KNOWN = 3.0  # times the smallest bound


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueClock:
    """The true clock of a report: `true = origin_ns + report / rate`."""

    origin_ns: int
    rate: float  # report seconds per true second
    first_ns: int  # of the capture, on the report's clock
    last_ns: int

    def report_ns(self, true_ns: int) -> int:
        return round((true_ns - self.origin_ns) * self.rate)


def to_trace_ns(clock_map: Clock, report_ns: int) -> int:
    """Map a time of a report onto the trace's clock."""
    at = int(np.searchsorted(clock_map.from_ns, report_ns, side="right")) - 1
    return report_ns + int(clock_map.offset_ns[max(at, 0)])


def errors_ns(alignment: Alignment, clocks: Sequence[TrueClock], moments: int = 7) -> Floats:
    """Return each report's largest error at some moments of its capture, in ns; NaN without any."""
    bounds = report_bounds_ns(alignment)
    component = alignment.clocks["group"].to_numpy()[alignment.clock_of]
    starts = [clock.origin_ns + round(clock.first_ns / clock.rate) for clock in clocks]
    ends = [clock.origin_ns + round(clock.last_ns / clock.rate) for clock in clocks]
    errors = np.full((moments, len(clocks)), np.nan)
    for row, moment in enumerate(np.linspace(0.05, 0.95, moments)):
        true_ns = min(starts) + round(moment * (max(ends) - min(starts)))
        for at, clock in enumerate(clocks):
            report_ns = clock.report_ns(true_ns)
            if clock.first_ns <= report_ns <= clock.last_ns:
                errors[row, at] = to_trace_ns(alignment.report_clocks[at], report_ns) - true_ns
    for number in np.unique(component):
        center(errors, component == number, bounds)
    return np.asarray(np.nanmax(np.abs(np.where(np.isnan(errors).all(axis=0), 0.0, errors)), axis=0))


def center(errors: Floats, is_member: npt.NDArray[np.bool_], bounds: Floats) -> None:
    """Subtract the median error of the well-known clocks of a group, moment by moment."""
    for row in errors:
        best = is_member & (bounds <= _WELL_KNOWN * bounds[is_member].min()) & ~np.isnan(row)
        row[is_member] -= np.median(row[best]) if best.any() else np.nan


def report_bounds_ns(alignment: Alignment) -> Floats:
    """Return the stated bound of each report; infinite where none is stated."""
    bounds = alignment.clocks["bound_ns"].fill_null(2**62).to_numpy().astype(np.float64)
    bounds[bounds >= 2.0**61] = np.inf
    return np.asarray(bounds[alignment.clock_of])

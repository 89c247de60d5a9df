"""Evidence of a verdict, computed once for all findings, and the words of its sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import polars as pl

from nsys_pp.frames.roster import list_missing_ranks
from nsys_pp.frames.training import NONE, Explanations, Training
from nsys_pp.tables.analysis import (
    Stragglers,
    compare_own_compute,
    has_passes,
    list_own_compute,
    sum_lane_steps,
)
from nsys_pp.tables.noise import to_float
from nsys_pp.tables.training import classify_training
from nsys_pp.units import NS_PER_MS, NS_PER_S, NS_PER_US, format_count

LARGE_BOUND = 0.02
"""Bound of the clocks as a share of the step, above which waits and transfers are uncertain."""
_FEW_STEPS = 2


class Evidence:
    """A training, and quantities derived from it.

    Args:
        training: The training.
        explanations: Data of reports, read on first use.
    """

    def __init__(self, training: Training, explanations: Explanations = NONE) -> None:
        self.training = training
        self._explanations = explanations
        self._hosts: dict[tuple[int, ...], pl.DataFrame] = {}

    @cached_property
    def lane_steps(self) -> pl.DataFrame:
        """`LANE_STEPS` of complete steps."""
        return sum_lane_steps(self.training).filter("is_complete")

    @cached_property
    def whole_steps(self) -> pl.DataFrame:
        """`LANE_STEPS` whose length and causes can be compared.

        Where the capture cuts every step, of the lanes that it does not cut there.
        """
        return self.lane_steps.filter("is_whole")

    @cached_property
    def spans(self) -> pl.DataFrame:
        """Length of each complete step: step, span_ns (median of its lanes, as clocks may differ).

        By step.
        """
        return self.lane_steps.group_by("step").agg(pl.col("span_ns").median()).sort("step")

    @cached_property
    def step_count(self) -> int:
        """Number of complete steps."""
        return self.spans.height

    @cached_property
    def step_ns(self) -> float:
        """Median length of the complete steps; 0 without any."""
        return to_float(self.spans["span_ns"].median())

    @cached_property
    def has_passes(self) -> bool:
        """Whether forwards or backwards are known."""
        return has_passes(self.training)

    @cached_property
    def has_steps(self) -> bool:
        """Whether a step is more than the whole capture."""
        return bool((self.training.steps["source"] != "capture").any())

    @cached_property
    def labels(self) -> dict[int, str]:
        """Names of lanes."""
        return dict(self.training.lanes.select("lane", "label").iter_rows())

    @cached_property
    def own_compute(self) -> pl.DataFrame:
        """Own compute of each lane in complete steps (`list_own_compute`)."""
        return list_own_compute(self.training, self.lane_steps)

    @cached_property
    def stragglers(self) -> Stragglers:
        """Own compute of ranks and stages, compared with that of their peers."""
        return compare_own_compute(self.own_compute)

    @cached_property
    def families(self) -> pl.DataFrame:
        """Computing kernels with their families: `Training.kernels` with the columns of `KERNEL_FAMILIES`."""
        kernels = classify_training(self.training)
        return kernels.filter(~pl.col("is_communication"), pl.col("family") != "communication")

    @cached_property
    def clocks(self) -> pl.DataFrame:
        """Clock of the SMs during the kernels of each lane in complete steps: lane, step, clock_mhz.

        Empty unless recorded.
        """
        sums = self._explanations.read_clocks().drop_nulls("step")
        complete = self.lane_steps.select("lane", "step")
        return (
            sums.group_by("lane", "step")
            .agg(pl.col("integral", "time_ns").sum())
            .select("lane", "step", clock_mhz=pl.col("integral") / pl.col("time_ns"))
            .join(complete, on=["lane", "step"], how="semi")
        )

    def read_hosts(self, lanes: Sequence[int]) -> pl.DataFrame:
        """Read the activities of the hosts of some lanes in bubbles (`HOST_TIMES`), once.

        Empty unless recorded.
        """
        key = tuple(sorted(lanes))
        if key not in self._hosts:
            self._hosts[key] = self._explanations.read_hosts(key)
        return self._hosts[key]

    @cached_property
    def missing_ranks(self) -> list[int]:
        """Ranks of the run without a lane; none where a rank is unknown."""
        lanes = self.training.lanes
        return [] if lanes["rank"].null_count() else list_missing_ranks(lanes)

    def compare_steps(self, steps: Sequence[int]) -> tuple[float, float]:
        """Return the median length of these steps, and the time by which they are longer than the others.

        The time is infinite without other steps, and where at most two others are not shorter: the first
        steps of a capture may be long by themselves.
        """
        is_among = pl.col("step").is_in(list(steps))
        length_ns = to_float(self.spans.filter(is_among)["span_ns"].median())
        others = self.spans.filter(~is_among)["span_ns"]
        longer_ns = length_ns - to_float(others.median())
        if others.is_empty() or (longer_ns <= 0 and len(others) <= _FEW_STEPS):
            return length_ns, math.inf
        return length_ns, max(0.0, longer_ns)

    def measure_excess(self) -> pl.DataFrame:
        """Measure the length of each step beyond the shorter one of its neighbours: step, longer_ns, span_ns.

        Neighbours, as a rank that becomes slow makes all later steps longer.
        """
        span = pl.col("span_ns")
        shorter = pl.min_horizontal(span.shift(1), span.shift(-1))
        return self.spans.select("step", "span_ns", longer_ns=(span - shorter).clip(lower_bound=0.0))

    def share(self, time_ns: float) -> float:
        """Return a time as a share of the median step."""
        return time_ns / self.step_ns if self.step_ns else 0.0


_MOST_NAMES = 4
_MOST_LETTERS = 60


def format_time(time_ns: float) -> str:
    """Format a time with two or three digits.

    >>> format_time(6_100_000), format_time(48_480_000), format_time(8_120), format_time(1_668_860_000)
    ('6.1 ms', '48.5 ms', '8.1 us', '1.67 s')
    """
    for unit, length_ns in (("s", NS_PER_S), ("ms", NS_PER_MS), ("us", NS_PER_US)):
        if time_ns >= 0.9995 * length_ns:
            value = time_ns / length_ns
            digits = 2 if unit == "s" else 1
            return f"{value:,.0f} {unit}" if value >= 99.95 else f"{value:.{digits}f} {unit}"
    return f"{time_ns:.0f} ns"


def format_share(share: float) -> str:
    """Format a share in percent.

    >>> format_share(0.2512), format_share(0.034), format_share(0), format_share(0.997)
    ('25 %', '3.4 %', '0 %', '99.7 %')
    """
    if share == 0:
        return "0 %"
    is_fine = abs(share) < 0.0995 or 0.99 < share < 0.9995
    return f"{100 * share:.1f} %" if is_fine else f"{100 * share:.0f} %"


def format_excess(excess: float) -> str:
    """Format a relative excess: in percent, or as a factor.

    >>> format_excess(0.25), format_excess(4.02)
    ('25 % longer', '5.0 times as long')
    """
    return f"{1 + excess:.1f} times as long" if excess >= 1 else f"{format_share(excess)} longer"


def cut_name(name: str) -> str:
    r"""Cut a name that a program chose to a length for sentences, without characters that control a terminal.

    >>> cut_name("next_batch"), cut_name("evil\x1b[2J\n"), len(cut_name(100 * "x"))
    ('next_batch', 'evil?[2J?', 60)
    """
    shown = "".join(letter if letter.isprintable() else "?" for letter in name[:_MOST_LETTERS])
    return shown if len(name) <= _MOST_LETTERS else f"{shown[:-1]}…"


def join_names(names: Sequence[str], most: int = _MOST_NAMES) -> str:
    """Join names into a list; of many, the first ones.

    >>> join_names(["rank 1"]), join_names(["a", "b", "c"]), join_names(["a", "b", "c", "d", "e", "f"])
    ('rank 1', 'a, b and c', 'a, b, c, d and 2 more')
    """
    if len(names) == 1:
        return names[0]
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return f"{', '.join(names[:-1])} and {names[-1]}"


def join_ranks(ranks: Sequence[int]) -> str:
    """Join ascending ranks into a list; neighbours are folded, and of many the first ones are named.

    >>> join_ranks([4]), join_ranks([6, 7]), join_ranks([0, 1, 2, 3, 8])
    ('rank 4', 'ranks 6 and 7', 'ranks 0 to 3 and 8')
    >>> join_ranks([1, 5, 9, 13, 17, 21])
    'ranks 1, 5, 9, 13 and 2 more'
    """
    if len(ranks) == 1:
        return f"rank {ranks[0]:,}"
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = [
        part
        for run in runs
        for part in ([[run[0], run[-1]]] if len(run) > 2 else [[rank, rank] for rank in run])
    ]
    names = [f"{first:,}" if first == last else f"{first:,} to {last:,}" for first, last in parts]
    if len(names) <= _MOST_NAMES:
        return f"ranks {join_names(names)}"
    rest = sum(last - first + 1 for first, last in parts[_MOST_NAMES:])
    return f"ranks {', '.join(names[:_MOST_NAMES])} and {rest:,} more"


def describe_steps(slow: Sequence[int], all_steps: Sequence[int]) -> tuple[str, int | None]:
    """Describe the steps of a finding.

    Return the first one if it began inside the capture and lasted to its end.

    >>> describe_steps([3, 4], [3, 4]), describe_steps([4, 5], [3, 4, 5]), describe_steps([5], [3, 4, 5])
    (('in both steps', None), ('since step 4', 4), ('in step 5', None))
    >>> describe_steps([3, 4], [3, 4, 5])[0], describe_steps([3, 5, 7], [3, 4, 5, 6, 7])[0]
    ('until step 4', 'in 3 of 5 steps')
    """
    count, total = len(slow), len(all_steps)
    if count == total and total > 1:
        return ("in both steps" if total == 2 else f"in all {total:,} steps"), None
    if count == 1:
        return f"in step {slow[0]}", None
    if list(slow) == list(all_steps[-count:]):
        return f"since step {slow[0]}", slow[0]
    if list(slow) == list(all_steps[:count]):
        return f"until step {slow[-1]}", None
    return f"in {count:,} of {total:,} steps", None


def name_lane(evidence: Evidence, lane: int) -> str:
    """Name a lane with its stage, machine and GPU, as far as they are known.

    "rank 9 (stage 2, node2 GPU 1)".
    """
    row = evidence.training.lanes.filter(lane=lane).row(0, named=True)
    label, stage = str(row["label"]), row["stage"]
    names = (row["machine"], row["gpu"])
    place = " ".join(cut_name(name) for name in names if name is not None and name not in label)
    parts = [f"stage {stage}"] if stage is not None else []
    parts += [place] if place else []
    return f"{label} ({', '.join(parts)})" if parts else label


def name_host(evidence: Evidence, lane: int) -> str:
    """Name the machine of a lane in parentheses: " (node1)".

    "" where it is the only one, unknown, or in the label.
    """
    lanes = evidence.training.lanes
    machine = lanes.filter(lane=lane)["machine"].item()
    if machine is None or machine in evidence.labels[lane] or lanes["machine"].n_unique() < 2:
        return ""
    return f" ({cut_name(machine)})"


def name_stage(evidence: Evidence, stage: int) -> str:
    """Name a stage with its ranks: "stage 3 (ranks 6 and 7)"; a stage of one lane by the lane."""
    lanes = evidence.training.lanes.filter(stage=stage)["lane"].to_list()
    if len(lanes) == 1:
        return name_lane(evidence, lanes[0])
    return f"stage {stage} ({_name_ranks(evidence, lanes)})"


def name_machine(evidence: Evidence, machine: str, lanes: list[int]) -> str:
    """Name all lanes of a machine with their ranks: "all 4 ranks of node1 (ranks 4 to 7)"."""
    name = f"all {len(lanes):,} ranks of {cut_name(machine)}"
    ranks = _name_ranks(evidence, lanes)
    return f"{name} ({ranks})" if ranks.startswith("rank") else name


def _name_ranks(evidence: Evidence, lanes: list[int]) -> str:
    """Name the ranks of lanes; their number where one is unknown."""
    ranks = evidence.training.lanes.filter(pl.col("lane").is_in(lanes))["rank"]
    if ranks.null_count():
        return format_count(len(lanes), "GPU")
    return join_ranks(ranks.unique().sort().to_list())

"""Words of the sentences of a verdict: times, shares, and names of ranks, stages, machines and steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl
from msgspec import Struct

from nsys_pp.tables.analysis import Evidence
from nsys_pp.training.whatif import LEAST_GAIN, MOST_UNKNOWN, Change, WhatIf
from nsys_pp.units import NS_PER_MS, NS_PER_S, NS_PER_US, format_count

MOST_NAMES = 4
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


def format_percent(value: float) -> str:
    """Format a relative value, as an excess or noise, in percent.

    >>> format_percent(0.2512), format_percent(0.034), format_percent(0), format_percent(0.997)
    ('25 %', '3.4 %', '0 %', '99.7 %')
    """
    if value == 0:
        return "0 %"
    is_fine = abs(value) < 0.0995 or 0.99 < value < 0.9995
    return f"{100 * value:.1f} %" if is_fine else f"{100 * value:.0f} %"


def format_share(share: float) -> str:
    """Format a share of a whole in percent; one above 100 % is a defect."""
    assert share < 1.0005, f"{share} is no share of a whole"
    return format_percent(share)


def format_excess(excess: float, peers: str = "") -> str:
    """Format a relative excess, over some peers: in percent, or as a factor.

    >>> format_excess(0.25), format_excess(4.02, "its peers")
    ('25 % longer', '5.0 times as long as its peers')
    """
    if excess >= 1:
        return f"{1 + excess:.1f} times as long{peers and f' as {peers}'}"
    return f"{format_percent(excess)} longer{peers and f' than {peers}'}"


def cut_name(name: str) -> str:
    r"""Cut a name that a program chose to a length for sentences, without characters that control a terminal.

    >>> cut_name("next_batch"), cut_name("evil\x1b[2J\n"), len(cut_name(100 * "x"))
    ('next_batch', 'evil?[2J?', 60)
    """
    shown = "".join(letter if letter.isprintable() else "?" for letter in name[:_MOST_LETTERS])
    return shown if len(name) <= _MOST_LETTERS else f"{shown[:-1]}…"


def join_names(names: Sequence[str], most: int = MOST_NAMES) -> str:
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
    if len(names) <= MOST_NAMES:
        return f"ranks {join_names(names)}"
    rest = sum(last - first + 1 for first, last in parts[MOST_NAMES:])
    return f"ranks {', '.join(names[:MOST_NAMES])} and {rest:,} more"


def describe_steps(evidence: Evidence, slow: Sequence[int]) -> tuple[str, dict[str, Any]]:
    """Describe the ascending steps of a finding: words, and its `step` or `since_step`.

    Since a step: where it began inside the capture and lasted to its end.
    """
    all_steps = evidence.spans["step"].to_list()
    count, total = len(slow), len(all_steps)
    if count == total and total > 1:
        return ("in both steps" if total == 2 else f"in all {total:,} steps"), {}
    if count == 1:
        return f"in step {slow[0]}", {"step": slow[0]}
    if list(slow) == all_steps[-count:]:
        return f"since step {slow[0]}", {"since_step": slow[0]}
    if list(slow) == all_steps[:count]:
        return f"until step {slow[-1]}", {}
    return f"in {count:,} of {total:,} steps", {}


def name_lane(evidence: Evidence, lane: int) -> str:
    """Name a lane with its stage, machine and GPU, as far as they are known.

    "rank 9 (stage 2, node2 GPU 1)".
    """
    row = evidence.training.lanes.filter(lane=lane).row(0, named=True)
    stage = "" if row["stage"] is None else f"stage {row['stage']}"
    known = ", ".join(filter(None, [stage, _place_lane(row)]))
    return f"{row['label']} ({known})" if known else str(row["label"])


def place_link(lanes: pl.DataFrame, sender: int, receiver: int) -> str:
    """Name the machines and GPUs at both ends of a link: " (node1 GPU 0 -> node2 GPU 0)"; "" if unknown."""
    ends = (lanes.filter(lane=lane).row(0, named=True) for lane in (sender, receiver))
    places = [_place_lane(row) for row in ends]
    return f" ({' -> '.join(places)})" if all(places) else ""


def _place_lane(row: Mapping[str, Any]) -> str:
    """Name the machine and GPU of a row of `LANES`, as far as its label lacks them: "node2 GPU 1"."""
    names = (row["machine"], row["gpu"])
    return " ".join(cut_name(name) for name in names if name is not None and name not in row["label"])


def name_stage(evidence: Evidence, stage: int) -> str:
    """Name a stage with its ranks: "stage 3 (ranks 6 and 7)"; a stage of one lane by the lane."""
    lanes = evidence.training.lanes.filter(stage=stage)["lane"].to_list()
    if len(lanes) == 1:
        return name_lane(evidence, lanes[0])
    return f"stage {stage} ({_name_ranks(evidence, lanes)})"


def name_machine(evidence: Evidence, machine: str, lanes: list[int]) -> str:
    """Name all lanes of a machine with their ranks: "all 4 ranks of node1 (ranks 4 to 7)"."""
    name = f"{'both' if len(lanes) == 2 else f'all {len(lanes):,}'} ranks of {cut_name(machine)}"
    ranks = _name_ranks(evidence, lanes)
    return f"{name} ({ranks})" if ranks.startswith("rank") else name


def _name_ranks(evidence: Evidence, lanes: list[int]) -> str:
    ranks = evidence.training.lanes.filter(pl.col("lane").is_in(lanes))["rank"]
    if ranks.null_count():
        return format_count(len(lanes), "GPU")
    return join_ranks(ranks.unique().sort().to_list())


class Gain(Struct, frozen=True):
    """What a mean step gains: least and most differ where clocks or unknown peers leave it open.

    Attributes:
        least_ns: The least gain.
        most_ns: The largest one.
        step_ns: Time of the step.
    """

    least_ns: float
    most_ns: float
    step_ns: float

    @property
    def facts(self) -> dict[str, Any]:
        """Attributes of a `Finding`."""
        middle, error = (self.most_ns + self.least_ns) / 2, (self.most_ns - self.least_ns) / 2
        return {"gain_ns": middle, "gain_error_ns": error, "gain_fraction": middle / max(self.step_ns, 1)}

    def reduce(self, time_ns: float) -> Gain:
        """Return what remains without a part."""
        return Gain(max(0.0, self.least_ns - time_ns), max(0.0, self.most_ns - time_ns), self.step_ns)

    def describe(self, share: float = 1.0) -> str:
        """Describe the gain of a step that gains, if a share of the steps does."""
        low, high = (format_time(time_ns / share) for time_ns in (self.least_ns, self.most_ns))
        if self.least_ns == self.most_ns:
            return f"about {high}"
        return f"at most {high}" if self.least_ns < LEAST_GAIN * self.step_ns else f"{low} to {high}"


def predict_gain(evidence: Evidence, change: Callable[[WhatIf], Change], most_ns: float) -> Gain:
    """Predict the gain of a mean step by a change.

    Args:
        evidence: The run.
        change: Makes the change.
        most_ns: The largest possible gain, where clocks or unknown peers leave the waits open.
    """
    run, least, most = evidence.whatif, 0.0, most_ns
    if run.graph.is_whole and run.bound_fraction <= MOST_UNKNOWN:
        least, most = (max(0.0, time) for time in run.predict(change(run)))
    if run.unknown_fraction > MOST_UNKNOWN:
        most = max(most, most_ns)
    is_open = most - least > LEAST_GAIN * evidence.step_ns
    return Gain(least if is_open else most, most, evidence.step_ns)

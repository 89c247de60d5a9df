"""Evidence of a verdict, computed once for all findings, and the words of its sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from statistics import NormalDist
from typing import Any

import polars as pl
from msgspec import Struct

from nsys_pp.frames.roster import list_missing_ranks
from nsys_pp.frames.training import MICRO_BATCH_KINDS, NONE, SCHEDULED_KINDS, Explanations, Training
from nsys_pp.tables.analysis import has_all_jobs, select_outermost, sum_lane_steps
from nsys_pp.tables.noise import median_of_others
from nsys_pp.tables.training import classify_training
from nsys_pp.units import NS_PER_MS, NS_PER_S, NS_PER_US, format_count

FALSE_RATE = 0.002
"""Probability of a false finding of one kind in a run whose samples are normal."""
LARGE_BOUND = 0.02
"""Bound of the clocks as a share of the step, above which waits and transfers are uncertain."""
_FEW_STEPS = 2
_JOB_COLUMNS = ("job", "outer", "kind", "lane", "step", "micro_batch", "compute_start_ns", "compute_ns")
_MAD = 1.4826  # from a median absolute deviation to the standard deviation of normal values


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
        return bool(self.training.jobs["kind"].is_in(SCHEDULED_KINDS).any())

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
        """Own compute of each lane in complete steps, waiting not counted.

        Lane, stage, step, micro_batch, value_ns.

        One row per micro-batch; -1 is work without a number. Of steps that the capture cuts on the lane, only
        micro-batches with all their jobs: the others would be compared with more or less work of others.
        Without forwards and backwards, all compute of a step that it does not cut is one row.
        """
        complete, whole = (steps.select("lane", "step") for steps in (self.lane_steps, self.whole_steps))
        if self.has_passes:
            own = (
                select_outermost(self.training.jobs.select(_JOB_COLUMNS), MICRO_BATCH_KINDS)
                .join(complete, on=["lane", "step"], how="semi")
                .group_by("lane", "step", pl.col("micro_batch").fill_null(-1))
                .agg(value_ns=pl.col("compute_ns").sum(), job_count=pl.len())
                .join(whole.with_columns(is_whole=True), on=["lane", "step"], how="left")
                .filter(pl.col("is_whole").fill_null(value=False) | has_all_jobs())
                .drop("is_whole", "job_count")
            )
        else:
            own = self.whole_steps.select(
                "lane", "step", micro_batch=pl.lit(-1, pl.Int64), value_ns="compute_ns"
            )
        return (
            own.filter(pl.col("value_ns") > 0)
            .join(self.training.lanes.select("lane", "stage"), on="lane")
            .with_columns(pl.col("value_ns").cast(pl.Float64))
        )

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


def to_float(value: Any) -> float:
    """Return a statistic of a column as a number; 0 for null."""
    return 0.0 if value is None else float(value)


def spread_of(residuals: pl.Series) -> float:
    """Estimate the standard deviation of residuals around medians, robustly."""
    return _MAD * to_float(residuals.abs().median())


def errors_for(comparison_count: int, degrees: float) -> float:
    """Return the limit in standard errors that some comparisons of normal values exceed with `FALSE_RATE`.

    The fewer the degrees of freedom of the estimated error, the larger the limit: the quantile of Student's
    t, by its series (Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.5).

    >>> [round(errors_for(1, degrees), 2) for degrees in (1e9, 20, 4)]
    [2.88, 3.25, 5.81]
    >>> round(errors_for(100, 1e9), 2)
    4.11
    """
    z = NormalDist().inv_cdf(1 - FALSE_RATE / max(comparison_count, 1))
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3


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


def join_names(names: Sequence[str]) -> str:
    """Join names into a list; of many, the first ones.

    >>> join_names(["rank 1"]), join_names(["a", "b", "c"]), join_names(["a", "b", "c", "d", "e", "f"])
    ('rank 1', 'a, b and c', 'a, b, c, d and 2 more')
    """
    if len(names) == 1:
        return names[0]
    if len(names) > _MOST_NAMES:
        return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"
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


_PER_MEDIAN = 1.2533  # error of a median over that of a mean
_LEAST_AGREEING = 0.75
_EFFICIENCY = 0.37  # of a median absolute deviation, relative to a standard deviation
_LEAST_OWN = 8  # samples from which the spread of a single member is an estimate
_CERTAIN_FACTOR, _CERTAIN_STEPS, _CERTAIN_SAMPLES = 2.0, 3, 12


class SlowMember(Struct, frozen=True, kw_only=True):
    """A member that is slower than its peers, beyond noise.

    Attributes:
        member: Its number.
        steps: Steps in which it is slow.
        value_ns: Median of its values in these steps.
        usual_ns: Median of those of its peers.
        excess_fraction: Median relative excess.
        noise_fraction: Excess that noise explains.
        sample_count: Number of its samples in these steps.
        is_certain: The excess is twice the noise, in three steps and twelve samples or more.
    """

    member: int
    steps: tuple[int, ...]
    value_ns: float
    usual_ns: float
    excess_fraction: float
    noise_fraction: float
    sample_count: int
    is_certain: bool


class Compared(Struct, frozen=True, kw_only=True):
    """Members compared with the other members of their group.

    Attributes:
        slow: The slow ones, by descending excess.
        all: One row of each member: `member`, value_ns, usual_ns, excess_fraction, noise_fraction (null: a
            single sample), sample_count, is_slow. Medians over the steps in which a slow one is slow, else
            over all.
    """

    slow: list[SlowMember]
    all: pl.DataFrame


_MEASURED = ("value_ns", "usual_ns", "excess_fraction", "noise_fraction", "sample_count")


def compare_members(
    values: pl.DataFrame,
    *,
    member: str,
    group: list[str],
    least: float,
    spread_values: pl.DataFrame | None = None,
) -> Compared:
    """Compare members with the other members of their group: the one test that verdict and tables share.

    Args:
        values: One row per sample: `member`, `group`, step, micro_batch, value_ns.
        member: Column of the member.
        group: Columns within which members are peers, in addition to step and micro_batch.
        least: Least relative excess of a slow member.
        spread_values: Values of lanes, from which spreads are estimated where lanes are more than members; as
            `values`, with the column `lane`.

    Returns:
        All members with peers. Empty without peers.
    """
    samples, steps = _relate(values, member, group)
    is_slow = pl.col("step_excess") >= pl.max_horizontal(
        pl.lit(least), pl.col("step_excess").max().over(member) / 2
    )
    slow_steps = steps.with_columns(is_slow=is_slow).filter("is_slow").select(member, "step")
    comparisons = samples[member].n_unique() * min(max(steps["step"].n_unique(), 1), 4)
    spreads = _pool(samples, steps, member, comparisons)
    if spread_values is not None and spread_values["lane"].n_unique() > samples[member].n_unique():
        spreads = _pool(*_relate(spread_values, "lane", []), "lane", comparisons)
    found = []
    slow_samples = samples.join(slow_steps, on=[member, "step"], how="semi")
    for (number,), rows in slow_samples.group_by(member, maintain_order=True):
        own = samples.filter(pl.col(member) == number)["residual"]
        own_spread = spread_of(own) if len(own) >= _LEAST_OWN else 0.0
        slow = _test(int(str(number)), rows, spreads, own_spread=own_spread, least=least)
        if slow is not None:
            found.append(slow)
    noise = _PER_MEDIAN * pl.max_horizontal(
        spreads.sample_errors * spreads.sample / pl.col("sample_count").sqrt(),
        spreads.step_errors * spreads.step / pl.col("step_count").sqrt(),
    )
    is_known = (pl.col("sample_count") > 1) | pl.lit(spreads.sample + spreads.step > 0)
    usual = (
        samples.group_by(member)
        .agg(
            pl.col("value_ns", "usual_ns").median(),
            excess_fraction=pl.col("excess").median(),
            sample_count=pl.len().cast(pl.Int64),
            step_count=pl.col("step").n_unique(),
        )
        .with_columns(noise_fraction=pl.when(is_known).then(noise), is_slow=pl.lit(value=False))
        .select(member, *_MEASURED, "is_slow")
    )
    figures = [(one.member, *(getattr(one, name) for name in _MEASURED), True) for one in found]
    measured = pl.DataFrame(figures, schema=usual.schema, orient="row")
    return Compared(
        slow=sorted(found, key=lambda slow: (-slow.excess_fraction, slow.member)),
        all=pl.concat([measured, usual.join(measured, on=member, how="anti")]),
    )


def _relate(values: pl.DataFrame, member: str, group: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Relate values to the median of their peers.

    Returns:
        Samples: the columns of `values`, usual_ns, excess, step_excess, residual; and steps of members:
            `member`, step,
        step_excess (median).
    """
    usual = median_of_others(values, by=[*group, "step", "micro_batch"], value="value_ns").alias("usual_ns")
    samples = (
        values.with_columns(usual)
        .filter(pl.col("usual_ns") > 0)
        .with_columns(excess=pl.col("value_ns") / pl.col("usual_ns") - 1)
    )
    steps = samples.group_by(member, "step").agg(step_excess=pl.col("excess").median())
    related = samples.join(steps, on=[member, "step"], maintain_order="left")
    return related.with_columns(residual=pl.col("excess") - pl.col("step_excess")), steps


class _Spreads(Struct, frozen=True, kw_only=True):
    """Standard deviations of samples around their step, and of steps around their level.

    With limits in errors.
    """

    sample: float
    sample_errors: float
    step: float
    step_errors: float


def _pool(samples: pl.DataFrame, steps: pl.DataFrame, member: str, comparisons: int) -> _Spreads:
    """Estimate the spread of micro-batches around their step, and of steps around their level.

    Over all members.

    The level of a step is the median of its neighbours on its side of a change, so a member that becomes slow
    adds no spread: differences of consecutive steps are used, whose spread is larger by the square root of 2.
    """
    per_step = samples.group_by(member, "step").len()["len"]
    count = max(1.0, to_float(per_step.median()))
    differences = steps.sort(member, "step").select(
        pl.col("step_excess").diff().over(member).drop_nulls().alias("difference")
    )["difference"]
    step_spread = spread_of(differences) / math.sqrt(2)
    # excesses of two peers mirror each other
    independent = 1 - 1 / max(samples[member].n_unique(), 2)
    of_steps = errors_for(comparisons, max(1.0, _EFFICIENCY * independent * len(differences)))
    if count < 2:  # no spread within steps
        return _Spreads(sample=step_spread, sample_errors=of_steps, step=step_spread, step_errors=of_steps)
    degrees = max(1.0, _EFFICIENCY * independent * (len(samples) - len(per_step)))
    return _Spreads(
        sample=spread_of(samples["residual"]) * math.sqrt(count / (count - 1)),
        sample_errors=errors_for(comparisons, degrees),
        step=step_spread,
        step_errors=of_steps,
    )


def _test(
    member: int, rows: pl.DataFrame, spreads: _Spreads, *, own_spread: float, least: float
) -> SlowMember | None:
    """Test the samples of a member in its slow steps; None within noise."""
    count, step_count = rows.height, rows["step"].n_unique()
    spread = max(spreads.sample, own_spread)
    if spread == 0 and spreads.step == 0 and count < 2:  # a single sample without any spread
        return None
    noise = _PER_MEDIAN * max(
        spreads.sample_errors * spread / math.sqrt(count),
        spreads.step_errors * spreads.step / math.sqrt(step_count),
    )
    excess = to_float(rows["excess"].median())
    agreeing = to_float((rows["excess"] > 0).mean())
    if excess <= max(least, noise) or agreeing < _LEAST_AGREEING:
        return None
    is_certain = (
        excess >= _CERTAIN_FACTOR * noise and step_count >= _CERTAIN_STEPS and count >= _CERTAIN_SAMPLES
    )
    return SlowMember(
        member=member,
        steps=tuple(rows["step"].unique().sort().to_list()),
        value_ns=to_float(rows["value_ns"].median()),
        usual_ns=to_float(rows["usual_ns"].median()),
        excess_fraction=excess,
        noise_fraction=noise,
        sample_count=count,
        is_certain=is_certain,
    )

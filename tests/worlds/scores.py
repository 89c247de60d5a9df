"""Scores of a world: clocks, ranges, jobs, pairs, stragglers, causes and steps, against the truth."""

from __future__ import annotations

import warnings
from argparse import Namespace
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

import nsys_pp
from fixtures.plan_options import build_training
from fixtures.program.schedule import SCHEDULES, chunks_of
from tests.alignment.cluster import center
from tests.training.expected_training import split_either
from tests.worlds.findings import Findings

_LEAST_SHARED = 3  # operations: a single one fits anywhere


Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueClock:
    """The true clock of a report, as a line with knots: true UTC and the report's time, both increasing."""

    true_ns: Int64s
    report_ns: Int64s

    def to_report(self, true_ns: Int64s) -> Int64s:
        """Return the report's times at true times, to a nanosecond."""
        return _interpolate(true_ns, self.true_ns, self.report_ns)

    @property
    def first_ns(self) -> int:
        """The true start of the capture."""
        return int(self.true_ns[0])

    @property
    def last_ns(self) -> int:
        """The true end of the capture."""
        return int(self.true_ns[-1])


@dataclass(frozen=True)
class Truth:
    """Tables of `fixtures.truth` of one world."""

    folder: Path

    def table(self, name: str) -> pl.DataFrame:
        return pl.read_parquet(self.folder / "truth" / f"{name}.parquet")

    @cached_property
    def clocks(self) -> dict[str, TrueClock]:
        return {
            str(name): TrueClock(true_ns=knots["true_ns"].to_numpy(), report_ns=knots["report_ns"].to_numpy())
            for (name,), knots in self.table("clock_knots").group_by("report", maintain_order=True)
        }

    @cached_property
    def machine_of(self) -> dict[str, str]:
        return dict(self.table("clocks").select("report", "machine").iter_rows())

    @cached_property
    def exchanges(self) -> pl.DataFrame:
        """Exchanges between replicas of which both kernels are recorded: `MESSAGES`."""
        return self.table("exchanges").drop_nulls(["send_correlation_id", "receive_correlation_id"])

    @cached_property
    def messages(self) -> pl.DataFrame:
        """Messages of which both kernels are recorded: `MESSAGES`, with `message`, a number."""
        both = self.table("messages").drop_nulls(["send_correlation_id", "receive_correlation_id"])
        return both.with_row_index("message")

    def on_reports(self, frame: pl.DataFrame, report: str, *columns: str) -> pl.DataFrame:
        """Replace true times by times of the reports that a column names."""
        moved = {name: frame[name].to_numpy().copy() for name in columns}
        reports = frame[report].to_numpy()
        for name, clock in self.clocks.items():
            rows = reports == name
            for times in moved.values():
                times[rows] = clock.to_report(times[rows])
        return frame.with_columns(pl.Series(name, times) for name, times in moved.items())

    def count_groups(self) -> int:
        """Count the groups of clocks that share operations, three or more of two reports, or are of one machine."""
        shared: Counter[tuple[str, str]] = Counter()
        for frame in (self.messages, self.exchanges):
            shared.update(frame.select("send_report", "receive_report").iter_rows())
        collectives = self.table("collectives").drop_nulls("correlation_id")
        members = collectives.group_by("communicator", "instance").agg(pl.col("report").unique().sort())
        for names in members["report"].to_list():
            shared.update(combinations(names, 2))
        counts: Counter[frozenset[str]] = Counter()
        for pair, count in shared.items():
            counts[frozenset(pair)] += count
        group = {name: {name} for name in self.clocks}
        for names in combinations(self.clocks, 2):
            is_machine = len({self.machine_of[name] for name in names}) == 1
            if is_machine or counts[frozenset(names)] >= _LEAST_SHARED:
                union = set().union(*(group[name] for name in names))
                group |= dict.fromkeys(union, union)
        return len({id(members_of) for members_of in group.values()})


def _interpolate(times: Int64s, origin: Int64s, target: Int64s) -> Int64s:
    """Map times along a line with knots; before and after it at the rate of its ends."""
    piece = np.clip(np.searchsorted(origin, times, side="right") - 1, 0, len(origin) - 2)
    rate = np.diff(target) / np.diff(origin)
    return target[piece] + np.round((times - origin[piece]) * rate[piece]).astype(np.int64)


_MOMENTS = 15  # of a run, at which clocks are compared


_CLOCK_ROUNDING_NS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockScore:
    """The clocks of a world."""

    errors_ns: list[float]  # of each report, relative to the well-known clocks of its group
    bounds_ns: list[float]  # infinite: unknown
    rates_ppm: list[float]  # error of each report's rate relative to its group
    groups: int
    true_groups: int  # of clocks that share operations or a machine

    @property
    def factors(self) -> list[float]:
        """Error over bound, of each report."""
        return [
            max(error - _CLOCK_ROUNDING_NS, 0.0) / max(bound, 1.0)
            for error, bound in zip(self.errors_ns, self.bounds_ns, strict=True)
        ]

    @property
    def holds(self) -> bool:
        return max(self.factors) <= 1

    @property
    def is_right(self) -> bool:
        """Whether no group is torn, all bounds are known, and they hold."""
        is_bounded = len(self.bounds_ns) == 1 or all(np.isfinite(self.bounds_ns))
        return self.holds and self.groups <= self.true_groups and is_bounded


def score_clocks(findings: Findings, truth: Truth) -> ClockScore:
    """Score the clocks of a world; definition of errors in `tests/alignment/cluster.py`."""
    table = findings.clock_table
    names = table["report"].to_list()
    bounds = table["bound_ns"].cast(float).fill_null(np.inf).to_numpy()
    bounds = np.where(bounds >= 2.0**61, np.inf, bounds)
    group = table["group"].to_numpy()
    clocks = [truth.clocks[name] for name in names]
    maps = [findings.clocks[name] for name in names]
    moments = np.linspace(0.05, 0.95, _MOMENTS)
    start, end = min(clock.first_ns for clock in clocks), max(clock.last_ns for clock in clocks)
    times = start + np.round(moments * (end - start)).astype(np.int64)
    errors = np.full((_MOMENTS, len(names)), np.nan)
    for row, (clock, to_trace) in enumerate(zip(clocks, maps, strict=True)):
        inside = (times >= clock.first_ns) & (times <= clock.last_ns)
        errors[inside, row] = to_trace.to_trace(clock.to_report(times[inside])) - times[inside]
    for number in np.unique(group):
        center(errors, group == number, bounds)
    rates = np.array(
        [
            _rate_ppm(clock, to_trace.to_trace(clock.report_ns))
            for clock, to_trace in zip(clocks, maps, strict=True)
        ]
    )
    for number in np.unique(group):
        rates[group == number] -= np.median(rates[group == number])
    with np.errstate(all="ignore"):
        largest = np.where(
            np.isnan(errors).all(axis=0), 0.0, np.nanmax(np.abs(np.nan_to_num(errors)), axis=0)
        )
    return ClockScore(
        errors_ns=largest.tolist(),
        bounds_ns=bounds.tolist(),
        rates_ppm=rates.tolist(),
        groups=len(np.unique(group)),
        true_groups=truth.count_groups(),
    )


def _rate_ppm(clock: TrueClock, trace_ns: npt.NDArray[np.int64]) -> float:
    elapsed = clock.true_ns[-1] - clock.true_ns[0]
    return float((trace_ns[-1] - trace_ns[0] - elapsed) / max(elapsed, 1) * 1e6)


_ROUNDING_NS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeScore:
    """Ranges of jobs that are recorded with all their operations."""

    ranges: int
    missing: int  # without an interval
    wrong: int  # with another interval than that of the kernels launched for them


def score_ranges(truth: Truth) -> RangeScore:
    """Compare the projections of ranges of jobs, scope "auto", by process and start of the range."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        projected = nsys_pp.project([truth.folder]).ranges
    found = projected.select("report", "start_ns", "gpu_start_ns", "gpu_end_ns", pid="process_id")
    labels = {name: name.removesuffix(".sqlite") for name in truth.clocks}
    processes = truth.table("processes").select("report", "rank", "pid")
    jobs = (
        truth.table("jobs").filter("is_recorded", ~pl.col("is_part")).join(processes, on=["report", "rank"])
    )
    jobs = truth.on_reports(jobs, "report", "host_start_ns", "kernel_start_ns", "kernel_end_ns")
    key = ["report", "pid"]
    matched = (
        jobs.select(*key, "kernel_start_ns", "kernel_end_ns", start_ns="host_start_ns")
        .with_columns(label=pl.col("report").replace_strict(labels))
        .sort("start_ns")
        .join_asof(
            _whole_names(found, labels).sort("start_ns"),
            on="start_ns",
            by=key,
            strategy="nearest",
            tolerance=_ROUNDING_NS,
            check_sortedness=False,
        )
    )
    has_interval = pl.col("gpu_start_ns").is_not_null()
    errors = [(pl.col(f"gpu_{edge}_ns") - pl.col(f"kernel_{edge}_ns")).abs() for edge in ("start", "end")]
    return RangeScore(
        ranges=len(matched),
        missing=len(matched.filter(~has_interval)),
        wrong=len(matched.filter(has_interval & (pl.max_horizontal(errors) > _ROUNDING_NS))),
    )


def _whole_names(found: pl.DataFrame, labels: dict[str, str]) -> pl.DataFrame:
    """Replace the labels of reports, which may be the last part of their path, by their names."""
    names = {
        label: name
        for name, path in labels.items()
        for label in {path, *("/".join(path.split("/")[at:]) for at in range(path.count("/") + 1))}
    }
    return found.with_columns(
        pl.col("report").cast(pl.String).replace_strict(names, default=None, return_dtype=pl.String)
    )


_KINDS = ("forward", "backward", "weight_gradient", "forward_backward")


_PROCESS = ["report", "pid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobScore:
    """Jobs with all operations recorded, and the schedule."""

    jobs: int
    missing: int  # without a job of the library that begins with it
    wrong_ids: int  # micro-batch or chunk
    unknown_ids: int
    extra: int  # jobs of the library that are none
    largest_error_ns: int  # of starts and ends of found jobs
    schedule: str  # "right", "wrong", "unknown", or "called uncertain" of a wrong one that is
    stages: int  # lanes with the right stage
    wrong_stages: int
    lanes: int


def score_jobs(findings: Findings, truth: Truth, options: Namespace) -> JobScore:
    """Compare jobs by process, kind and start."""
    true, found = list_true_jobs(truth), list_found_jobs(findings)
    matched = match_jobs(found, true)
    rows = matched.filter("is_recorded")
    ids = [("micro_batch", "true_micro_batch"), ("chunk", "true_chunk")]
    is_wrong = pl.any_horizontal(*((pl.col(a) != pl.col(b)).fill_null(False) for a, b in ids))
    is_unknown = pl.any_horizontal(pl.col(name).is_null() for name, _ in ids) & ~is_wrong
    errors = rows.select(
        start=(pl.col("start_ns") - pl.col("true_start_ns")).abs(),
        end=(pl.col("end_ns") - pl.col("true_end_ns")).abs(),
    )
    recorded = true.filter("is_recorded")
    stages = _compare_stages(findings, truth)
    return JobScore(
        jobs=len(recorded),
        missing=len(recorded.join(rows, on="true_job", how="anti")),
        wrong_ids=len(rows.filter(is_wrong)),
        unknown_ids=len(rows.filter(is_unknown)),
        extra=matched["true_job"].null_count(),
        largest_error_ns=max((value for value in errors.max().row(0) if value is not None), default=0),
        schedule=_compare_schedule(findings, options),
        stages=stages[0],
        wrong_stages=stages[1],
        lanes=len(findings.lanes),
    )


def list_true_jobs(truth: Truth) -> pl.DataFrame:
    """List the true jobs on the clocks of their reports; `true_job` numbers them."""
    processes = truth.table("processes").select("report", "rank", "pid")
    jobs = truth.table("jobs").filter(~pl.col("is_part")).join(processes, on=["report", "rank"])
    moved = truth.on_reports(jobs, "report", "start_ns", "end_ns").with_row_index("true_job")
    return moved.rename(
        {name: f"true_{name}" for name in ("step", "micro_batch", "chunk", "end_ns")}
    ).with_columns(pl.col("kind").replace("weight", "weight_gradient"), true_start_ns="start_ns")


def list_found_jobs(findings: Findings) -> pl.DataFrame:
    """List the jobs of the library on the clocks of their reports."""
    schedule = findings.training.schedule
    has_one_chunk = schedule.name != "unknown" and schedule.chunk_count == 1
    chunk = pl.col("chunk").fill_null(0) if has_one_chunk else pl.col("chunk")
    jobs = findings.training.jobs.filter(
        pl.col("kind").cast(pl.String).is_in(_KINDS),
        pl.col("outer").is_null(),
        pl.col("compute_start_ns").is_not_null(),
    ).select(
        *("lane", "step", "micro_batch", chunk),
        kind=pl.col("kind").cast(pl.String),
        start_ns="compute_start_ns",
        end_ns="compute_end_ns",
    )
    return findings.on_reports(jobs, "lane", "start_ns", "end_ns")


def match_jobs(found: pl.DataFrame, true: pl.DataFrame) -> pl.DataFrame:
    """Add the true job of each job of the library; null without any."""
    columns = [
        *_PROCESS,
        "kind",
        "start_ns",
        "true_job",
        "is_recorded",
        "true_step",
        "true_micro_batch",
        "true_chunk",
        "true_start_ns",
        "true_end_ns",
    ]
    return found.sort("start_ns").join_asof(
        true.select(columns).sort("start_ns"),
        on="start_ns",
        by=[*_PROCESS, "kind"],
        strategy="nearest",
        tolerance=_ROUNDING_NS,
        check_sortedness=False,
    )


def _compare_stages(findings: Findings, truth: Truth) -> tuple[int, int]:
    """Count the lanes with the right stage, and with a wrong one."""
    true = truth.table("processes").select("report", "pid", true_stage="stage")
    lanes = findings.lanes.join(true, on=_PROCESS, how="left")
    is_right = (lanes["stage"] == lanes["true_stage"]).fill_null(False)
    return int(is_right.sum()), int((~is_right & lanes["stage"].is_not_null()).sum())


def _compare_schedule(findings: Findings, options: Namespace) -> str:
    """Compare the schedule with all schedules of the same order of jobs."""
    schedule = findings.training.schedule
    if schedule.name == "unknown":
        return "unknown"
    plan = build_training(options, 1)
    orders = {}
    for name, order in SCHEDULES.items():
        try:
            chunks = chunks_of(name, plan.chunks)
            orders[name] = [
                order(stage, plan.stages, plan.micro_batches, chunks) for stage in range(plan.stages)
            ]
        except ValueError:
            continue  # too few micro-batches for it
    if orders.get(schedule.name) == orders[plan.schedule]:
        return "right"
    return "called uncertain" if schedule.source == "uncertain" else "wrong"


_BUCKET_NS = 1_000


_TIMES = [f"{role}_{edge}_ns" for role in ("send", "receive") for edge in ("start", "end")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairScore:
    """Messages with both sides recorded, and the pairs of the library."""

    messages: int
    right: int
    exchanged: int  # pairs of kernels of one exchange between replicas: in a ring, or of experts
    wrong: int  # other pairs: kernels of different messages, or of none with both sides
    unpaired: int  # messages whose receive is in no pair


def score_pairs(findings: Findings, truth: Truth) -> PairScore:
    """Compare pairs of kernels with the messages and exchanges: by process and times of both kernels."""
    pairs = findings.training.transfers.select("sender", "receiver", *_TIMES)
    pairs = findings.on_reports(pairs, "sender", *_TIMES[:2], prefix="send_")
    pairs = findings.on_reports(pairs, "receiver", *_TIMES[2:], prefix="receive_")
    messages = _match(pairs, truth, truth.messages)
    is_right = (messages["send_message"] == messages["receive_message"]).fill_null(False)
    is_exchanged = _list_exchanged(pairs, truth) & ~is_right
    return PairScore(
        messages=len(truth.messages),
        right=int(is_right.sum()),
        exchanged=int(is_exchanged.sum()),
        wrong=int((~is_right & ~is_exchanged).sum()),
        unpaired=len(truth.messages) - len(messages["receive_message"].drop_nulls().unique()),
    )


def _list_exchanged(pairs: pl.DataFrame, truth: Truth) -> pl.Series:
    """Return the mask of pairs that are one send and receive of an exchange between replicas."""
    exchanges = truth.exchanges
    if exchanges.is_empty():
        return pl.repeat(False, len(pairs), dtype=pl.Boolean, eager=True)
    keys = ["send_report", "send_pid", "receive_report", "receive_pid"]
    for role in ("send", "receive"):
        exchanges = truth.on_reports(exchanges, f"{role}_report", f"{role}_start_ns")
    # a kernel takes part in several exchanges, so both of its times are compared for each pair of processes
    joined = pairs.with_row_index("pair").join(exchanges, on=keys, suffix="_true")
    near = [
        (pl.col(f"{role}_start_ns") - pl.col(f"{role}_start_ns_true")).abs() <= _ROUNDING_NS
        for role in ("send", "receive")
    ]
    matched = joined.filter(*near)["pair"].unique()
    return pl.Series(range(len(pairs)), dtype=pl.UInt32).is_in(matched.implode())


def _match(pairs: pl.DataFrame, truth: Truth, messages: pl.DataFrame) -> pl.DataFrame:
    """Add the message of each kernel: `send_message` and `receive_message`; null where no message has it.

    Kernels are compared by start and end: those of two streams may start at the same time.
    """
    matched = pairs.with_row_index("pair")
    for role in ("send", "receive"):
        key, times = [f"{role}_report", f"{role}_pid"], [f"{role}_start_ns", f"{role}_end_ns"]
        kernels = truth.on_reports(messages, f"{role}_report", *times)
        near = [(pl.col(time) - pl.col(f"{time}_true")).abs() <= _ROUNDING_NS for time in times]
        bucket = pl.col(times[0]) // _BUCKET_NS
        found = (
            matched.select("pair", *key, *times, bucket=pl.concat_list(bucket - 1, bucket, bucket + 1))
            .explode("bucket")
            .join(kernels.select("message", *key, *times, bucket=bucket), on=[*key, "bucket"], suffix="_true")
            .filter(*near)
            .select("pair", pl.col("message").alias(f"{role}_message"))
            .unique("pair", keep="first", maintain_order=True)
        )
        matched = matched.join(found, on="pair", how="left", maintain_order="left")
    return matched


_LEAST_EXCESS = 0.02  # of true compute or of a slow link: less is not slow


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerScore:
    """Links, ranks and stages that the library calls slow."""

    false: list[str]  # label and excess of those that are not slow
    right: int


def score_stragglers(findings: Findings, truth: Truth, options: Namespace) -> StragglerScore:
    """Compare slow links with the slowdowns, slow ranks and stages with the true compute of their peers."""
    table = findings.result.tables(["stragglers"])["stragglers"].filter("is_slow")
    processes = truth.table("processes").select("report", "pid", true_rank="rank")
    rank_of = dict(
        findings.lanes.join(processes, on=["report", "pid"]).select("lane", "true_rank").iter_rows()
    )
    slow_ranks, slow_stages = _list_slow(truth)
    false, right = [], 0
    for row in table.iter_rows(named=True):
        what, lane, receiver = str(row["what"]), rank_of.get(row["lane"]), rank_of.get(row["receiver"])
        is_true = {
            "rank": lane in slow_ranks,
            "link": [lane, receiver] == _target(options.slow_link),
            "stage": row["stage"] in slow_stages,
        }[what]
        if is_true:
            right += 1
        else:
            false.append(f"{what} {row['label']} +{100 * (row['excess_fraction'] or 0):.0f}%")
    return StragglerScore(false=false, right=right)


def measure_compute(truth: Truth) -> pl.DataFrame:
    """Measure the true compute of each rank: rank, stage, compute_ns."""
    return (
        truth.table("causes")
        .filter(cause="compute")
        .group_by("rank")
        .agg(compute_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
        .join(truth.table("processes").select("rank", "stage"), on="rank")
    )


def _list_slow(truth: Truth) -> tuple[set[int], set[int]]:
    """List the ranks that compute longer than other ranks of their stage, and stages longer than other stages."""
    compute = measure_compute(truth)
    ranks = {
        row["rank"]
        for row in compute.iter_rows(named=True)
        if _exceeds(
            row["compute_ns"], compute.filter(pl.col("rank") != row["rank"], stage=row["stage"])["compute_ns"]
        )
    }
    stages = compute.group_by("stage").agg(pl.col("compute_ns").min())
    slow = {
        stage
        for stage, total in stages.iter_rows()
        if _exceeds(total, stages.filter(pl.col("stage") != stage)["compute_ns"])
    }
    return ranks, slow


def _exceeds(value: int, others: pl.Series) -> bool:
    """Check whether a value exceeds the median of others."""
    median = others.median()
    return isinstance(median, float) and value > (1 + _LEAST_EXCESS) * median


def _target(text: str | None) -> list[int]:
    """Return the ranks of a slow link; empty without one."""
    target, _, factor = (text or "").partition("=")
    if not target or float(factor) < 1 + _LEAST_EXCESS:
        return []
    return [int(word) for word in target.split(",")]


_NAMES = {"optimizer": "compute", "pause": "compute"}


_KEY = ["report", "pid", "true_step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepScore:
    """One step of one lane, complete in truth and in the findings."""

    rank: int
    step: int
    is_whole: bool  # all lanes of the run recorded it
    position: str  # "first", "middle", "last" or "only" of the steps that are complete in truth
    points: dict[str, float]  # cause -> found minus true time, in percent of the step; after `split_either`
    bubble_points: float  # found minus true bubble, likewise
    true_ns: dict[str, int]  # cause -> true time
    found_ns: dict[str, int]

    @property
    def worst(self) -> tuple[float, str]:
        """The largest time in points that a cause has without reason, and the cause; "unknown" has none."""
        return max((value, name) for name, value in self.points.items() if name != "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseScore:
    """Steps of all lanes of a world."""

    steps: list[StepScore] = field(default_factory=list)
    lacking: int = 0  # complete in truth, and not found
    called_partial: int = 0  # complete in truth, and found as partial
    called_complete: int = 0  # cut in truth, and found as complete
    misnumbered: int = 0  # steps of lanes whose number is not that of the same true step on other lanes


def score_causes(findings: Findings, truth: Truth, ranks: int) -> CauseScore:
    """Compare the sums of causes, step by step, for steps that are complete in both; `ranks`: of the run."""
    processes = truth.table("processes").select("report", "rank", "pid")
    true_steps = truth.table("steps").join(processes, on=["report", "rank"]).rename({"step": "true_step"})
    found_steps = _match_steps(findings, truth)
    joined = true_steps.join(found_steps, on=_KEY, how="left")
    is_true, is_found = pl.col("is_recorded"), pl.col("is_partial").not_()
    both = joined.filter(is_true & is_found.fill_null(False))
    return CauseScore(
        steps=_compare(
            both.with_columns(is_whole=pl.col("true_step").is_in(_whole_steps(true_steps, ranks))),
            _sum(findings.training.lane_states, "lane"),
            _sum(truth.table("causes").join(processes, on=["report", "rank"]), "rank"),
            _positions(true_steps),
        ),
        lacking=len(joined.filter(is_true & pl.col("is_partial").is_null())),
        called_partial=len(joined.filter(is_true & pl.col("is_partial").fill_null(False))),
        called_complete=len(joined.filter(~is_true & is_found.fill_null(False))),
        misnumbered=_count_misnumbered(found_steps),
    )


def _match_steps(findings: Findings, truth: Truth) -> pl.DataFrame:
    """Match the steps of each lane with true ones, by most of their jobs: lane, step, `_KEY`, is_partial."""
    matched = match_jobs(list_found_jobs(findings), list_true_jobs(truth)).drop_nulls(["true_step", "step"])
    counts = matched.group_by("lane", "step", *_KEY).len().sort("len", "true_step", descending=[True, False])
    best = counts.unique(["lane", "step"], keep="first", maintain_order=True)
    best = best.unique(_KEY, keep="first", maintain_order=True)
    steps = findings.training.steps.select("lane", "step", "is_partial")
    return best.join(steps, on=["lane", "step"]).select("lane", "step", *_KEY, "is_partial")


def _count_misnumbered(steps: pl.DataFrame) -> int:
    """Count the steps of lanes that have another number than the same true step has on most lanes."""
    counts = steps.group_by("true_step", "step").len()
    return int((counts.group_by("true_step").agg(pl.col("len").sum() - pl.col("len").max()))["len"].sum())


def _whole_steps(true_steps: pl.DataFrame, ranks: int) -> list[int]:
    """List the steps that all ranks recorded."""
    counts = true_steps.filter("is_recorded").group_by("true_step").len()
    return counts.filter(pl.col("len") == ranks)["true_step"].to_list()


def _positions(true_steps: pl.DataFrame) -> dict[tuple[int, int], str]:
    """Return the position of each complete step of a rank among its complete steps."""
    positions = {}
    for (rank,), part in true_steps.filter("is_recorded").group_by("rank"):
        numbers = part["true_step"].sort().to_list()
        for number in numbers:
            edge = "first" if number == numbers[0] else "last" if number == numbers[-1] else "middle"
            positions[rank, number] = "only" if len(numbers) == 1 else edge
    return positions


def _sum(frame: pl.DataFrame, owner: str) -> dict[tuple[int, int], dict[str, int]]:
    """Sum the causes by owner, a rank or a lane, and number of the step."""
    duration = pl.col("end_ns") - pl.col("start_ns")
    cause = pl.col("cause").cast(pl.String).replace(_NAMES)
    sums: dict[tuple[int, int], dict[str, int]] = {}
    for number, step, name, total in (
        frame.group_by(owner, "step", cause.alias("cause")).agg(duration.sum()).iter_rows()
    ):
        sums.setdefault((number, step), {})[name] = total
    return sums


def _compare(
    both: pl.DataFrame,
    found: dict[tuple[int, int], dict[str, int]],
    true: dict[tuple[int, int], dict[str, int]],
    positions: dict[tuple[int, int], str],
) -> list[StepScore]:
    scores = []
    for row in both.sort("rank", "true_step").iter_rows(named=True):
        key = row["rank"], row["true_step"]
        of_found, of_true = found.get((row["lane"], row["step"]), {}), true[key]
        length = row["end_ns"] - row["start_ns"]
        split = split_either(of_found, of_true)
        names = sorted(split.keys() | of_true.keys())
        points = {name: 100 * (split.get(name, 0) - of_true.get(name, 0)) / length for name in names}
        bubbles = [
            100 * (sum(sums.values()) - sums.get("compute", 0)) / sum(sums.values()) if sums else 0.0
            for sums in (of_found, of_true)
        ]
        scores.append(
            StepScore(
                rank=row["rank"],
                step=row["true_step"],
                is_whole=row["is_whole"],
                position=positions[key],
                points=points,
                bubble_points=bubbles[0] - bubbles[1],
                true_ns=of_true,
                found_ns=of_found,
            )
        )
    return scores

"""Findings on single steps that are much longer than the others.

A step is long if it exceeds the median of the others by 5 % (10 % with fewer than six steps) and by 6 times their spread, and
at most a quarter of the steps are. It is explained by the cause that grew most on a rank, other than waiting for ranks. Steps
with a finding of a stall or of a slow rank that explains half of the excess are left out. What the capture cuts is shorter, and
is not compared.

Batches of inference are as long as their requests make them, and servers wait for requests: only decodes are compared, with
each other, and one that is long without a cause, or because it computes more, is none.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.frames.verdict import Finding
from nsys_pp.tables.training.iteration_table import list_decodes
from nsys_pp.tables.verdict.evidence import Evidence, spread_of, to_float
from nsys_pp.tables.verdict.gpu_clocks import describe_fall
from nsys_pp.tables.verdict.wording import format_share, format_time

_LEAST_STEPS, _FEW_STEPS = 4, 6
_LEAST_EXCESS, _LEAST_EXCESS_OF_FEW = 0.05, 0.1
_SPREADS = 6
_MOST_SHARE, _LEAST_EXPLAINED = 0.25, 0.5
_ROOTS = {
    "compute": "compute",
    "host": "late launches",
    "profiler": "waiting for nsys itself",
    "data": "waiting for data",
    "copy": "copies",
    "message_transfer": "transfers of messages",
    "collective_transfer": "transfers of collectives",
}
_LEAST_CAUSE = 0.3  # of the excess
_SHARED = 0.5  # of the largest growth, on most ranks: the cause is of all ranks


def find_long_steps(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Find long steps, the longest first."""
    is_serving = not evidence.training.batches.is_empty()
    spans = evidence.whole_steps.group_by("step").agg(pl.col("span_ns").median()).sort("step")
    if is_serving:
        spans = spans.join(list_decodes(evidence.training), on="step", how="semi", maintain_order="left")
    if spans.height < _LEAST_STEPS or not evidence.has_steps:
        return []
    least = _LEAST_EXCESS if spans.height >= _FEW_STEPS else _LEAST_EXCESS_OF_FEW
    usual = to_float(spans["span_ns"].median())
    is_long = spans["span_ns"] > (1 + least) * usual
    others = spans.filter(~is_long)["span_ns"]
    spread = spread_of(others - to_float(others.median()))
    rows = spans.filter(is_long, pl.col("span_ns") - usual > _SPREADS * spread).sort(-pl.col("span_ns"))
    if rows.is_empty() or rows.height > max(1, _MOST_SHARE * spans.height):
        return []
    usual = to_float(others.median())
    findings = []
    for step, span_ns in rows.iter_rows():
        growth = _list_growth(evidence, step, spans["step"])
        known = growth.filter(pl.col("growth_ns") >= _LEAST_CAUSE * (span_ns - usual))
        if is_serving and (known.is_empty() or known["cause"][0] == "compute"):
            continue  # a server may wait for requests, and batches differ
        among = "other decodes" if is_serving else "the others"
        findings.append(_describe(evidence, step, span_ns, usual, growth, among=among))
    return [finding for finding in findings if not _is_explained(evidence, finding, earlier)]


def _is_explained(evidence: Evidence, finding: Finding, earlier: Sequence[Finding]) -> bool:
    """Check whether earlier findings explain half of the excess of a step."""
    explained = sum(
        other.gain_ns
        for other in earlier
        if other.kind in ("host", "profiler", "straggler") and other.step in (finding.step, None)
    )
    return explained >= _LEAST_EXPLAINED * finding.gain_ns


def _describe(
    evidence: Evidence, step: int, span_ns: float, usual_ns: float, growth: pl.DataFrame, *, among: str
) -> Finding:
    excess = span_ns / usual_ns - 1
    gain_ns = (span_ns - usual_ns) / evidence.step_count
    cause, label, lane = _name_cause(evidence, growth, least_ns=_LEAST_CAUSE * (span_ns - usual_ns))
    if cause.startswith(" (compute"):
        fall = describe_fall(evidence, growth["lane"][0], step, evidence.spans["step"].to_list())
        cause = f"{cause[:-1]}{fall})"
    first = ", the first one of the capture," if step == evidence.spans["step"][0] else ""
    return Finding(
        kind="step",
        text=f"step {step}{first} is {format_share(excess)} longer than {among}: {format_time(span_ns)} instead of"
        f" {format_time(usual_ns)}{cause}",
        confidence="certain",
        subject="step",
        gain_ns=gain_ns,
        gain_fraction=evidence.share(gain_ns),
        label=label,
        lane=lane,
        step=step,
        value_ns=span_ns,
        usual_ns=usual_ns,
        excess_fraction=excess,
        sample_count=evidence.step_count,
    )


def _list_growth(evidence: Evidence, step: int, others: pl.Series) -> pl.DataFrame:
    """List how much each cause other than waiting grew on each lane, the largest first: lane, cause, growth_ns.

    Args:
        evidence: The run.
        step: The long step.
        others: Steps that it is compared with; itself is left out.
    """
    columns = [f"{cause}_ns" for cause in _ROOTS]
    lanes = evidence.whole_steps.select("lane", "step", *columns)
    compared = lanes.filter(pl.col("step") != step, pl.col("step").is_in(others.implode()))
    usual = compared.group_by("lane").agg(pl.col(columns).median())
    return (
        lanes.filter(step=step)
        .join(usual, on="lane", suffix="_usual")
        .select("lane", *(pl.col(column) - pl.col(f"{column}_usual") for column in columns))
        .unpivot(index="lane", variable_name="cause", value_name="growth_ns")
        .with_columns(pl.col("cause").str.strip_suffix("_ns"))
        .filter(pl.col("growth_ns") > 0)
        .sort(-pl.col("growth_ns"), "lane", "cause")
    )


def _name_cause(
    evidence: Evidence, growth: pl.DataFrame, *, least_ns: float
) -> tuple[str, str | None, int | None]:
    """Name the cause that grew most on a rank: words, and the rank if it is one."""
    if growth.is_empty() or growth["growth_ns"][0] < max(least_ns, 1):
        return "", None, None
    lane, cause, largest = growth.row(0)
    words = _ROOTS[cause]
    shared = growth.filter(pl.col("cause") == cause, pl.col("growth_ns") >= _SHARED * largest).height
    time = format_time(largest)
    if shared > 1 and shared >= _SHARED * evidence.training.lanes.height:
        return f" ({words}: {time} more on most ranks)", None, None
    if evidence.training.lanes.height == 1:
        return f" ({words}: {time} more)", None, None
    return f" ({words} of {evidence.labels[lane]}: {time} more)", evidence.labels[lane], lane

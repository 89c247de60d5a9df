"""Verdict of a training: the findings of all kinds, at most five, by the time that could be gained."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.requested import NONE, Explanations
from nsys_pp.frames.table import Column, Table, View, build_table_schema
from nsys_pp.frames.training import Training
from nsys_pp.frames.verdict import MOST_LINES, Finding, Verdict
from nsys_pp.tables.verdict.clocks import excludes_comparisons
from nsys_pp.tables.verdict.evidence import Evidence
from nsys_pp.tables.verdict.registry import CONTEXT, FINDERS
from nsys_pp.units import format_count

_COLUMNS = (
    Column("kind", pl.String, "kind of the finding: an entry of the registry of findings"),
    Column("confidence", pl.String, "certain, likely, or guess"),
    Column("gain_ns", pl.Float64, "time of a step that could be gained; 0: unknown"),
    Column("gain_fraction", pl.Float64, "the same as a share of the median step"),
    Column("subject", pl.String, "kind of the object: rank, stage, link, machine, step, run, or clocks"),
    Column("label", pl.String, "name of the object"),
    Column("lane", pl.Int64, "lane of a rank, or of the sender of a link"),
    Column("stage", pl.Int64, "stage, or stage of the rank"),
    Column("step", pl.Int64, "step to which the finding is limited"),
    Column("since_step", pl.Int64, "first step of a finding that began inside the capture"),
    Column("value_ns", pl.Float64, "measured value"),
    Column("usual_ns", pl.Float64, "value of the peers, of other steps, or of the ideal"),
    Column("excess_fraction", pl.Float64, "relative excess of the value"),
    Column("noise_fraction", pl.Float64, "excess that noise explains"),
    Column("bound_ns", pl.Int64, "error of the clocks"),
    Column("sample_count", pl.Int64, "number of samples"),
    Column("call", pl.String, "call or range in which the host was"),
    Column("line", pl.String, "the finding as a sentence", heading="Finding"),
)


def build_verdict(training: Training, explanations: Explanations = NONE) -> Verdict:
    """Build the verdict of a training.

    Findings come by descending gain, then the bubble, then missing ranks and lost events; the clocks are last, or first if they exclude
    comparisons. Without findings, the first line is a sentence that nothing exceeds noise.

    Args:
        training: The training.
        explanations: Data of reports that findings need.

    Returns:
        At most `MOST_LINES` findings; none for a training without lanes.
    """
    if training.lanes.is_empty():
        return Verdict()
    evidence = Evidence(training, explanations)
    findings: list[Finding] = []
    for find in FINDERS.values():
        findings += find(evidence, findings)
    clocks = [finding for finding in findings if finding.kind == "clocks"]
    missing = [finding for finding in findings if finding.kind in ("missing", "losses")]
    ranked = [finding for finding in findings if finding.kind not in ("clocks", "missing", "losses")]
    ranked.sort(key=lambda finding: (finding.kind in CONTEXT, -finding.gain_ns))
    if all(finding.kind in CONTEXT for finding in findings):
        ranked.insert(0, _describe_none(evidence))
    ranked = [*ranked[: MOST_LINES - len(clocks) - len(missing)], *missing]
    is_first = any(excludes_comparisons(finding) for finding in clocks)
    return Verdict(findings=tuple([*clocks, *ranked] if is_first else [*ranked, *clocks]))


def build_verdict_table(verdict: Verdict) -> pl.DataFrame:
    """Build the rows of `VERDICT_TABLE`, in order of the findings."""
    schema = build_table_schema(_COLUMNS)
    names = [column.name for column in _COLUMNS]
    rows = [{name: row[name] for name in names} for row in verdict.to_dicts()]
    return pl.DataFrame(rows, schema=schema).pipe(conform, schema)


def _describe_none(evidence: Evidence) -> Finding:
    if evidence.has_steps and evidence.step_count:
        text = f"no finding beyond noise in {format_count(evidence.step_count, 'step')}"
    else:
        text = "no finding beyond noise"
    return Finding(
        kind="none", text=text, confidence="certain", subject="run", sample_count=evidence.step_count
    )


def _list_lines(table: pl.DataFrame) -> list[str]:
    return table["line"].to_list()


VERDICT_TABLE = Table(
    name="verdict",
    title="Verdict",
    columns=_COLUMNS,
    caption="",
    build=lambda training: build_verdict_table(build_verdict(training)),
    is_fixed=True,
    empty="no GPU process was recorded",
    view=View(columns=("line",), lines=_list_lines),
)

"""Findings about a report: defects of its file and its rows, and their meaning."""

from __future__ import annotations

from typing import Literal, get_args

import polars as pl
from msgspec import Struct

from nsys_pp.frames.conform import build_schema

Severity = Literal["info", "warning", "error"]
SEVERITY = pl.Enum(get_args(Severity))
"""Severities, the least first.

info: a count; results are not affected.
warning: some results lack rows, or are less certain.
error: the file is damaged or cannot be read: no result of it can be trusted.
"""

FINDINGS = build_schema(
    {  # one row per finding, in order of reports; of each report the most severe first
        "report": pl.String,  # path as named or found
        "severity": SEVERITY,
        "kind": pl.String,  # stable: "integrity", "rows left out", "lost events", ...
        "count": pl.Int64,  # rows, or complaints
        "text": pl.String,  # one sentence
        "meaning": pl.String,  # for the analyses, one sentence
    },
    name="FINDINGS",
)


class Finding(Struct, frozen=True, kw_only=True):
    """One finding about a report."""

    severity: Severity
    kind: str
    text: str
    meaning: str
    count: int = 1


def build_findings(findings: dict[str, list[Finding]]) -> pl.DataFrame:
    """Build `FINDINGS` from the findings of each report, by path."""
    order = {severity: -rank for rank, severity in enumerate(get_args(Severity))}
    rows = [
        (path, finding.severity, finding.kind, finding.count, finding.text, finding.meaning)
        for path, of_report in findings.items()
        for finding in sorted(of_report, key=lambda finding: order[finding.severity])
    ]
    return pl.DataFrame(rows, schema=FINDINGS, orient="row")

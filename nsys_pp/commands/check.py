"""`nsys-pp check`: damage of reports, impossible values, lost events, and their meaning."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Unpack
from warnings import WarningMessage

import polars as pl

from nsys_pp.errors import NsysPPError, describe_path
from nsys_pp.frames.raw import ALL_GROUPS, ROW_COUNTS, SHOW_GROUPS
from nsys_pp.frames.report import Finding, Severity, build_findings
from nsys_pp.model import build_report
from nsys_pp.model.contents import count_unnamed, find_row_findings, list_left_out
from nsys_pp.output.perfetto.trace import check_blocks
from nsys_pp.projection.launches import match_launches
from nsys_pp.read import is_part, open_part_blocks, read_part, read_report
from nsys_pp.read.export import is_unexported
from nsys_pp.read.files import Integrity, check_integrity, is_scrubbed
from nsys_pp.run.inputs import Batch, Result, collect_row_counts, unforeseen_error
from nsys_pp.run.options import BatchOptions, Inputs, check_keywords, check_values

_SHOWN_COMPLAINTS = 10
_PIECE_BYTES = 1 << 20
_UNTRUSTED = "rows may be missing or wrong in every analysis: copy it again, or export it again"
_Checked = tuple[list[Finding], pl.DataFrame]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CheckResult(Result):
    """Findings about reports."""

    reports: list[Path]  # in order
    findings: pl.DataFrame  # `FINDINGS` of `nsys_pp.frames.report`

    @property
    def severity(self) -> Severity:
        """The worst severity of all findings; "info" without any."""
        worst = self.findings["severity"].max()
        return "info" if worst is None else worst  # type: ignore[return-value]


def check(inputs: Inputs, *, time_limit_s: float = 60.0, **options: Unpack[BatchOptions]) -> CheckResult:
    """Check reports: the file by SQLite's own check, orphans, impossible values, clocks, lost events.

    A report that cannot be read is a finding of severity "error", not an exception.

    Args:
        inputs: Reports, parts, folders of them, or glob patterns.
        time_limit_s: Limit of SQLite's check of one file.
        options: See `nsys_pp.BatchOptions`; with `keep_going`, inputs that do not exist are skipped.

    Raises:
        ReportError: An input does not exist, or is named twice.
    """
    check_keywords(options, BatchOptions)
    check_values(time_limit_s=time_limit_s)
    batch = Batch(inputs, options)
    work = partial(_check_file, nsys=batch.nsys, time_limit_s=time_limit_s)
    checked = batch.map("checking", batch.paths, work)
    return CheckResult(
        reports=[*checked],
        findings=build_findings({describe_path(path): found for path, (found, _) in checked.items()}),
        skipped=batch.skipped,
        row_counts=collect_row_counts({path: counts for path, (_, counts) in checked.items()}),
    )


def _check_file(path: Path, nsys: str | None, time_limit_s: float) -> _Checked:
    """Check one report, also the data that others read on request; each error is a finding."""
    findings: list[Finding] = []
    counts, need = ROW_COUNTS.to_frame(), ALL_GROUPS | SHOW_GROUPS
    try:
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always", UserWarning)
            if path.is_file() and not is_part(path) and not is_unexported(path):
                findings += _describe_integrity(check_integrity(path, time_limit_s=time_limit_s))
                need = ALL_GROUPS if is_scrubbed(path) else need
            if is_part(path):
                found, counts = _check_part(path)
            else:
                raw = read_report(path, need=need, nsys=nsys)
                unnamed = count_unnamed(raw)
                report = build_report(raw, is_last_use=True)
                launches = match_launches(report.api_calls, report.gpu_ops)
                found, counts = find_row_findings(report, launches, unnamed), report.row_counts
            findings += [*_list_notes(path, notes, is_damaged=bool(findings)), *found]
    except Exception as error:
        known = error if isinstance(error, NsysPPError) else unforeseen_error(path, error)
        findings.append(
            Finding(
                severity="error",
                kind="unreadable",
                text=known.message,
                meaning="no analysis can use it" + (f": {known.hint}" if known.hint else ""),
            )
        )
    return findings, counts


def _list_notes(path: Path, notes: Sequence[WarningMessage], *, is_damaged: bool) -> Iterator[Finding]:
    """List what other commands note; rows that are left out, and known damage, have findings of their own."""
    for note in dict.fromkeys(str(note.message).removeprefix(f"`{path}`").lstrip(": ") for note in notes):
        if "left out" not in note and not (is_damaged and note.startswith("is damaged")):
            text, _, meaning = note.partition(": ")
            yield Finding(
                severity="warning", kind="note", text=text, meaning=meaning or "every command says so"
            )


def _check_part(path: Path) -> _Checked:
    """Check all bytes of a part, and list the findings of its report that it holds."""
    part = read_part(path, version=version("nsys-pp"))
    for name in part.frames:
        part.frames[name]
    with open_part_blocks(path) as blocks:
        check_blocks(part.encoded, blocks)
        while blocks.read(_PIECE_BYTES):
            pass
    counts = part.frames["row_counts"]
    doubts = [
        Finding(
            severity="warning",
            kind="doubtful events",
            text=text.replace("{report}", "its report"),
            meaning="see `nsys-pp check` of the report",
        )
        for text in part.facts.data_warnings
    ]
    return [*list_left_out(counts), *doubts], counts


def _describe_integrity(integrity: Integrity) -> list[Finding]:
    complaints = integrity.complaints
    found = [
        Finding(severity="error", kind="integrity", text=f"SQLite: {text}", meaning=_UNTRUSTED)
        for text in complaints[:_SHOWN_COMPLAINTS]
    ]
    if more := len(complaints) - len(found):
        text = f"SQLite: {more:,} complaints more"
        found.append(Finding(severity="error", kind="integrity", count=more, text=text, meaning=_UNTRUSTED))
    if integrity.stopped and not complaints:
        found.append(
            Finding(
                severity="warning",
                kind="integrity",
                text=f"SQLite's check was stopped {integrity.stopped}",
                meaning="what it has checked is intact: beside programs, each table by itself, no indexes, no"
                " pages of no table or of two",
            )
        )
    return found

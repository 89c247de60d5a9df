"""`nsys-pp info`: identity and contents of reports."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Unpack

import polars as pl
from msgspec.structs import replace

from nsys_pp.frames.conform import ShortRepr
from nsys_pp.frames.raw import Group
from nsys_pp.frames.report import Session
from nsys_pp.frames.roster import Identity
from nsys_pp.model import build_report
from nsys_pp.model.contents import Contents, describe_contents
from nsys_pp.projection.launches import match_launches
from nsys_pp.read import read_report
from nsys_pp.roster.identity import identify
from nsys_pp.run.inputs import Batch, Result, collect_row_counts, label_reports, skip_repeated
from nsys_pp.run.options import Inputs, RosterOptions, check_keywords, parse_rank_from, parse_run_layout
from nsys_pp.run.report import count_report_rows
from nsys_pp.run.run import build_run_roster
from nsys_pp.tables.listings import ROSTER_TABLE as ROSTER_TABLE

_GROUPS: frozenset[Group] = frozenset({"ranges", "ops", "cpu", "communication", "tables"})


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReportInfo(ShortRepr):
    """Identity and contents of one report."""

    path: Path
    label: str  # file name without suffix, with as many folders as distinguish it from other reports
    session: Session
    contents: Contents
    roster: pl.DataFrame  # its rows of ROSTER


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class InfoResult(Result):
    """Identity and contents of reports."""

    reports: list[ReportInfo]  # in natural order


def info(inputs: Inputs, **options: Unpack[RosterOptions]) -> InfoResult:
    """Describe reports; they need neither NVTX ranges nor GPU operations.

    Warns where reports seem to be of several runs.

    Args:
        inputs: Reports, folders of them, or glob patterns.
        options: See `nsys_pp.RosterOptions`.

    Raises:
        ReportError: A report cannot be read, or is named twice; with `keep_going`, none can be read.
        NsysPPError: A rank exceeds the layout, or `rank_from` matches no file name.
    """
    check_keywords(options, RosterOptions)
    layout = parse_run_layout(options.get("layout"))
    rank_from = parse_rank_from(options.get("rank_from"))
    batch = Batch(inputs, options, with_parts=False)
    read = batch.map("reading", batch.paths, partial(_read_contents, nsys=batch.nsys))
    reports_read = list(read.values())
    kept = skip_repeated([identity for identity, _ in reports_read], list(read), batch)
    different = [reports_read[index] for index in kept]
    identities = [identity for identity, _ in different]
    roster = build_run_roster(identities, layout=layout, rank_from=rank_from)
    labels = label_reports([identity.path for identity in identities])
    reports = []
    for number, ((identity, contents), label) in enumerate(zip(different, labels, strict=True)):
        own = roster.filter(report=number)  # GPUs are named as in the machine's other reports
        names = own.select("pid", "device_id", label="gpu").drop_nulls().unique(["pid", "device_id"])
        gpus = (
            contents.gpus.join(names, on=["pid", "device_id"], how="left", maintain_order="left")
            .with_columns(gpu=pl.coalesce("label", "gpu"))
            .select(contents.gpus.columns)
        )
        reports.append(
            ReportInfo(
                path=identity.path,
                label=label,
                session=identity.session,
                contents=replace(contents, gpus=gpus),
                roster=own,
            )
        )
    counts = collect_row_counts({report.path: report.contents.row_counts for report in reports})
    return InfoResult(reports=reports, skipped=batch.skipped, row_counts=counts)


def _read_contents(path: Path, nsys: str | None) -> tuple[Identity, Contents]:
    report = build_report(read_report(path, need=_GROUPS, nsys=nsys), is_last_use=True)
    launches = match_launches(report.api_calls, report.gpu_ops)
    counts = count_report_rows(report, launches, None, "auto")
    return identify(report), replace(describe_contents(report, launches), row_counts=counts)

"""`nsys-pp info`: what reports hold, and who recorded them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from nsys_pp.compose.progress import Progress, tell
from nsys_pp.compose.report_view import label_reports
from nsys_pp.errors import NsysPPError
from nsys_pp.frames.raw import Group
from nsys_pp.frames.report import Session
from nsys_pp.frames.roster import Identity
from nsys_pp.model import build_report
from nsys_pp.model.contents import Contents, describe_contents
from nsys_pp.projection.launches import match_launches
from nsys_pp.read import find_reports, read_report
from nsys_pp.roster.consistency import find_inconsistencies
from nsys_pp.roster.identity import find_repeated, identify
from nsys_pp.roster.layout import Layout
from nsys_pp.roster.roster import build_roster, repeated_error

_GROUPS: frozenset[Group] = frozenset({"ranges", "ops", "cpu", "communication"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportInfo:
    """What one report is, and what it holds."""

    path: Path
    label: str  # the file's name without suffix, with as many folders as tell it from the others
    session: Session
    contents: Contents
    roster: pl.DataFrame  # ROSTER: its rows


def info(
    inputs: Sequence[str | Path],
    *,
    layout: Layout | None = None,
    rank_from: str | None = None,
    keep_going: bool = False,
    nsys: str | None = None,
    progress: Progress | None = None,
) -> tuple[list[ReportInfo], list[tuple[Path, NsysPPError]]]:
    """Tell what the reports hold; they need neither NVTX ranges nor GPU operations.

    Warns of what makes one doubt that they are of one run.

    Args:
        inputs: Reports, directories of them, or glob patterns.
        layout: How ranks are laid out.
        rank_from: A regular expression whose first group is the rank in a report's file name.
        keep_going: Skip reports that cannot be read, or that are there already under another name.
        nsys: The nsys that exports `.nsys-rep` files.
        progress: Told what is going on.

    Returns:
        The reports in natural order, and those that were skipped, each with what is wrong with it.

    Raises:
        ReportError: A report cannot be read, or is there twice; with `keep_going`, none can be read.
        NsysPPError: A rank is beyond the layout; or `rank_from` finds no ranks.
        ValueError: `rank_from` is no regular expression with a group.
    """
    read: list[tuple[Identity, Contents]] = []
    skipped: list[tuple[Path, NsysPPError]] = []
    paths = find_reports(inputs)
    for number, path in enumerate(paths):
        tell(progress, f"reading {path.name}", number / len(paths))
        try:
            report = build_report(read_report(path, need=_GROUPS, nsys=nsys))
        except NsysPPError as error:
            if not keep_going:
                raise
            skipped.append((path, error))
            continue
        contents = describe_contents(report, match_launches(report.api_calls, report.gpu_ops))
        read.append((identify(report), contents))
    if not read:
        raise skipped[0][1]
    if keep_going:
        read, repeated = _leave_out_repeated(read)
        skipped += repeated
    identities = [identity for identity, _ in read]
    roster = build_roster(identities, layout=layout, rank_from=rank_from)
    for doubt in find_inconsistencies(identities, roster, layout=layout):
        warnings.warn(doubt, stacklevel=2)
    labels = label_reports([identity.path for identity in identities])
    infos = [
        _describe(identity, contents, label, roster.filter(report=number))
        for number, ((identity, contents), label) in enumerate(zip(read, labels, strict=True))
    ]
    return infos, skipped


def _leave_out_repeated(
    read: list[tuple[Identity, Contents]],
) -> tuple[list[tuple[Identity, Contents]], list[tuple[Path, NsysPPError]]]:
    """Keep the first of each recording."""
    identities = [identity for identity, _ in read]
    repeated = dict(find_repeated(identities))
    skipped: list[tuple[Path, NsysPPError]] = [
        (identities[again].path, repeated_error(identities[first].path, identities[again].path))
        for again, first in repeated.items()
    ]
    return [one for place, one in enumerate(read) if place not in repeated], skipped


def _describe(identity: Identity, contents: Contents, label: str, roster: pl.DataFrame) -> ReportInfo:
    """Name the report's GPUs as the machine's other reports do."""
    names = roster.select("pid", "device_id", label="gpu").drop_nulls().unique(["pid", "device_id"])
    gpus = contents.gpus.join(names, on=["pid", "device_id"], how="left", maintain_order="left")
    gpus = gpus.with_columns(gpu=pl.coalesce("label", "gpu")).select(contents.gpus.columns)
    return ReportInfo(
        path=identity.path,
        label=label,
        session=identity.session,
        contents=replace(contents, gpus=gpus),
        roster=roster,
    )

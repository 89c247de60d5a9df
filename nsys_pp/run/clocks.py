"""Clocks of a run: from the clock of each report to one clock of the trace."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.alignment.clocks import Alignment, align_clocks
from nsys_pp.arrays.names import natural_key
from nsys_pp.errors import ClockError
from nsys_pp.frames.clock import CLOCKS, Clock, describe_groups
from nsys_pp.frames.conform import conform
from nsys_pp.options import ClockMode
from nsys_pp.read.find import order_of_path
from nsys_pp.read.parts import list_frames
from nsys_pp.run.inputs import Input
from nsys_pp.units import NS_PER_DAY, NS_PER_US

_MOST_OFFSET_DAYS = 1_000


class Clocks(Struct, frozen=True, kw_only=True):
    """Clocks of the reports of a run, aligned."""

    clocks: list[Clock]  # to the trace's clock, in order of the reports
    zero_ns: int  # start of the earliest session, on the trace's clock
    is_utc: bool  # the trace's clock is UTC
    table: pl.DataFrame  # `CLOCKS`
    descriptions: dict[str, str]  # of the clock of each machine, for people; empty for one report
    attributes: dict[str, str]  # metadata of the trace

    def __repr__(self) -> str:
        """Return the counts."""
        return f"Clocks({len(self.clocks)} reports, {self.table['machine'].n_unique()} machines)"


def align_inputs(
    inputs: Sequence[Input],
    roster: pl.DataFrame,
    *,
    mode: ClockMode = "collectives",
    offsets_ns: Mapping[str, int] | None = None,
) -> Clocks:
    """Align the clocks of all reports; warns of clocks that cannot be compared with others.

    Where several alignments are as likely, their order decides: it is that of the files of the reports, so
    that reports and their parts have equal clocks in any order.

    Args:
        inputs: One or more.
        roster: `ROSTER` of all; names the machine of each report.
        mode: As in `align_clocks`.
        offsets_ns: Clock offset to UTC by machine; overrides the alignment.

    Raises:
        ClockError: An offset is of an unknown machine, or of years.
    """
    offsets_ns = offsets_ns or {}
    machines = dict(roster.select("report", "machine").unique("report").iter_rows())
    _check_offsets(offsets_ns, set(machines.values()))
    order = sorted(range(len(inputs)), key=lambda row: order_of_path(inputs[row].part.source))
    anchors = list_frames([recorded.part.frames for recorded in inputs], "anchors")
    aligned = align_clocks(
        [replace(inputs[row].identity.session, machine=machines[row]) for row in order],
        [anchors[row] for row in order],
        mode=mode,
        overrides_ns=offsets_ns,
    )
    alignment = _restore_order(aligned, order)
    if alignment.zero_ns < 0:
        raise ClockError(
            "with these offsets a report begins before 0 of the trace's clock",
            "give smaller ones with `--offset`",
        )
    _warn(inputs, alignment, mode)
    return Clocks(
        clocks=alignment.report_clocks,
        zero_ns=alignment.zero_ns,
        is_utc=alignment.is_utc,
        table=alignment.clocks,
        descriptions=_describe_machines(alignment) if len(inputs) > 1 else {},
        attributes=_list_attributes(alignment) if len(inputs) > 1 else {},
    )


def _restore_order(alignment: Alignment, order: Sequence[int]) -> Alignment:
    """Return the alignment of reports that were aligned in an order: `order` has the number of each."""
    if list(order) == sorted(order):
        return alignment
    table = alignment.clocks.with_columns(
        reports=pl.Series([sorted(order[at] for at in own) for own in alignment.clocks["reports"].to_list()])
    ).pipe(conform, CLOCKS)
    rows = sorted(range(len(table)), key=lambda row: table["reports"][row][0])
    places = np.argsort(order).tolist()
    return replace(
        alignment,
        report_clocks=[alignment.report_clocks[place] for place in places],
        clocks=table[rows],
        clock_of=np.argsort(rows)[np.array(alignment.clock_of)[places]].tolist(),
        without_utc=sorted(order[place] for place in alignment.without_utc),
    )


def _check_offsets(offsets_ns: Mapping[str, int], machines: set[str]) -> None:
    unknown = sorted(offsets_ns.keys() - machines)
    if unknown:
        names = ", ".join(f"`{name}`" for name in sorted(machines, key=natural_key)[:10])
        raise ClockError(f"there is no machine `{unknown[0]}`", f"the machines are {names}")
    for machine, offset_ns in offsets_ns.items():
        if abs(offset_ns) > _MOST_OFFSET_DAYS * NS_PER_DAY:
            raise ClockError(
                f"the offset of `{machine}` is more than {_MOST_OFFSET_DAYS} days", "write it as in `-1.2ms`"
            )


def _describe_machines(alignment: Alignment) -> dict[str, str]:
    """Describe the clock of each machine for people; sessions of one machine share its drift."""
    descriptions = {}
    groups = describe_groups(alignment.clocks["group"])
    for (machine,), rows in alignment.clocks.group_by("machine", maintain_order=True):
        offsets = [offset / NS_PER_US for offset in rows["offset_ns"].to_list()]
        moved = f"{min(offsets):+,.1f} us" + (f" to {max(offsets):+,.1f} us" if len(rows) > 1 else "")
        bounds = rows["bound_ns"].to_list()
        bound = "by an unknown error" if None in bounds else f"to {max(bounds) / NS_PER_US:,.1f} us"
        source = ", ".join(rows["source"].cast(pl.String).unique(maintain_order=True))
        descriptions[str(machine)] = (
            f"clock: {moved} on recorded UTC, drift {rows['drift_ppm'][0]:+.2f} ppm, known {bound} ({source})"
        )
        if groups:
            own = ", ".join(map(str, rows["group"].unique(maintain_order=True)))
            descriptions[str(machine)] += f"; group {own} of {groups}"
    return descriptions


def _list_attributes(alignment: Alignment) -> dict[str, str]:
    """List the group (of several), offset, drift and error bound of each clock as metadata of the trace."""
    facts = {}
    has_groups = bool(describe_groups(alignment.clocks["group"]))
    names = alignment.clocks["machine"]
    several = set(names.filter(names.is_duplicated()))
    for row in alignment.clocks.iter_rows(named=True):
        name = row["machine"]
        if name in several:
            name += f".report{row['reports'][0]}"
        facts[f"clock.{name}.source"] = row["source"]
        if has_groups:
            facts[f"clock.{name}.group"] = str(row["group"])
        facts[f"clock.{name}.offset_ns"] = str(row["offset_ns"])
        facts[f"clock.{name}.drift_ppm"] = f"{row['drift_ppm']:.3f}"
        facts[f"clock.{name}.bound_ns"] = "unknown" if row["bound_ns"] is None else str(row["bound_ns"])
    return facts


def find_unrelated(clocks: pl.DataFrame) -> list[str]:
    """Describe machines that only recorded UTC relates to others.

    Args:
        clocks: `CLOCKS`, refined.

    Returns:
        Sentences; none where all machines share operations, directly or through others.
    """
    by_utc = clocks.filter(pl.col("source") == "UTC")["machine"]
    groups = clocks.group_by("group", maintain_order=True).agg("machine")["machine"].to_list()
    if clocks["machine"].n_unique() < 2 or len(groups) < 2:
        return []
    sentences = []
    names = by_utc.unique(maintain_order=True).to_list()
    if names:
        sentences.append(
            f"{_join_names(names)}: no operation is shared beyond doubt with other reports, so only recorded "
            "UTC places them;"
            " machines that keep time by NTP differ by some milliseconds, by PTP by microseconds"
        )
    tied = [_join_names(list(dict.fromkeys(group))) for group in groups if len(group) > 1]
    if len(tied) > 1:
        shown = "; ".join(tied[:4])
        sentences.append(
            f"{len(tied)} groups of clocks share nothing beyond doubt, only UTC relates them: {shown}"
        )
    return sentences


def _join_names(names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in sorted(names, key=natural_key)[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _warn(inputs: Sequence[Input], alignment: Alignment, mode: ClockMode) -> None:
    sources = alignment.clocks["source"].to_list()
    for row in alignment.without_utc:
        if sources[alignment.clock_of[row]] != "nothing":
            continue  # operations that it shares with others align it
        warnings.warn(
            f"`{inputs[row].path}` does not know its UTC: it is drawn from the start of the earliest report",
            stacklevel=5,
        )
    if not alignment.is_utc and len(inputs) > 1 and mode != "none":
        warnings.warn(
            "no report knows its UTC: times count from one start, and what shares no operation begins there",
            stacklevel=5,
        )
    if mode == "collectives":
        for sentence in find_unrelated(alignment.clocks):
            warnings.warn(sentence, stacklevel=5)

"""Puts the clocks of all reports of a trace onto one."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from nsys_pp.alignment.clocks import Alignment, ClockMode, align_clocks
from nsys_pp.arrays.natural_sort import natural_key
from nsys_pp.compose.inputs import Input
from nsys_pp.errors import ClockError
from nsys_pp.frames.clock import Clock
from nsys_pp.units import NS_PER_DAY, NS_PER_US

_MOST_OFFSET_DAYS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockOptions:
    """What the user wants of clocks."""

    mode: ClockMode = "collectives"
    given_ns: Mapping[str, int] = field(default_factory=dict)  # machine -> what is added to its UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """From each report's clock to the trace's."""

    clocks: list[Clock]  # in order of the reports
    zero_ns: int  # start of the earliest session, on the trace's clock
    is_utc: bool  # the trace's clock is UTC
    table: pl.DataFrame  # `CLOCKS` of `nsys_pp.alignment.clocks`
    of_machine: dict[str, str]  # what is said of each machine's clock
    attributes: dict[str, str]  # facts for the trace's metadata


def align_inputs(given: Sequence[Input], roster: pl.DataFrame, options: ClockOptions | None = None) -> Clocks:
    """Put all reports on one clock; warns of those that cannot be compared with others.

    Args:
        given: One or more.
        roster: `ROSTER` of all: says which machine each report is of.
        options: What the user wants.

    Raises:
        ClockError: An offset was given for a machine that is not there, or of years.
    """
    options = options or ClockOptions()
    machines = dict(roster.select("report", "machine").unique("report").iter_rows())
    unknown = sorted(options.given_ns.keys() - set(machines.values()))
    if unknown:
        known = ", ".join(f"`{name}`" for name in sorted(set(machines.values()), key=natural_key)[:10])
        raise ClockError(f"there is no machine `{unknown[0]}`", f"the machines are {known}")
    for machine, offset_ns in options.given_ns.items():
        if abs(offset_ns) > _MOST_OFFSET_DAYS * NS_PER_DAY:
            raise ClockError(
                f"the offset of `{machine}` is more than {_MOST_OFFSET_DAYS} days", "write it as in `-1.2ms`"
            )
    alignment = align_clocks(
        [replace(one.identity.session, machine=machines[row]) for row, one in enumerate(given)],
        [one.part.frames["anchors"] for one in given],
        mode=options.mode,
        overrides_ns=options.given_ns,
    )
    if alignment.zero_ns < 0:
        raise ClockError(
            "with these offsets a report begins before 0 of the trace's clock",
            "give smaller ones with `--offset`",
        )
    _warn(given, alignment, options)
    return Clocks(
        clocks=alignment.report_clocks,
        zero_ns=alignment.zero_ns,
        is_utc=alignment.is_utc,
        table=alignment.clocks,
        of_machine=_word(alignment) if len(given) > 1 else {},
        attributes=_describe(alignment) if len(given) > 1 else {},
    )


def _word(alignment: Alignment) -> dict[str, str]:
    """Say for a person what was done to each machine's clock; sessions of one machine share its drift."""
    words = {}
    for (machine,), rows in alignment.clocks.group_by("machine", maintain_order=True):
        offsets = [offset / NS_PER_US for offset in rows["offset_ns"].to_list()]
        moved = f"{min(offsets):+,.1f} us" + (f" to {max(offsets):+,.1f} us" if len(rows) > 1 else "")
        bounds = rows["bound_ns"].to_list()
        known = "by an unknown error" if None in bounds else f"to {max(bounds) / NS_PER_US:,.1f} us"
        source = ", ".join(rows["source"].cast(pl.String).unique(maintain_order=True))
        words[str(machine)] = (
            f"clock: {moved} on recorded UTC, drift {rows['drift_ppm'][0]:+.2f} ppm, known {known} ({source})"
        )
    return words


def _describe(alignment: Alignment) -> dict[str, str]:
    """Say in the trace what was added to each machine's UTC, and how well that is known."""
    facts = {}
    names = alignment.clocks["machine"]
    several = set(names.filter(names.is_duplicated()))
    for row in alignment.clocks.iter_rows(named=True):
        name = row["machine"]
        if name in several:
            name += f".report{row['reports'][0]}"
        facts[f"clock.{name}.source"] = row["source"]
        facts[f"clock.{name}.offset_ns"] = str(row["offset_ns"])
        facts[f"clock.{name}.drift_ppm"] = f"{row['drift_ppm']:.3f}"
        facts[f"clock.{name}.bound_ns"] = "unknown" if row["bound_ns"] is None else str(row["bound_ns"])
    return facts


def find_unrelated(clocks: pl.DataFrame) -> list[str]:
    """Say which machines were never compared with which: only recorded UTC relates them.

    Args:
        clocks: `CLOCKS` that were refined.

    Returns:
        Sentences; none where all machines share operations, directly or through others.
    """
    believed = clocks.filter(pl.col("source") == "UTC")["machine"]
    groups = clocks.group_by("component", maintain_order=True).agg("machine")["machine"].to_list()
    if clocks["machine"].n_unique() < 2 or len(groups) < 2:
        return []
    found = []
    names = believed.unique(maintain_order=True).to_list()
    if names:
        found.append(
            f"{_name_some(names)}: no operation is shared beyond doubt with other reports, so only recorded UTC places them;"
            " machines that keep time by NTP differ by some milliseconds, by PTP by microseconds"
        )
    tied = [_name_some(list(dict.fromkeys(group))) for group in groups if len(group) > 1]
    if len(tied) > 1:
        shown = "; ".join(tied[:4])
        found.append(
            f"{len(tied)} groups of clocks share nothing beyond doubt, only UTC relates them: {shown}"
        )
    return found


def _name_some(names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in sorted(names, key=natural_key)[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _warn(given: Sequence[Input], alignment: Alignment, options: ClockOptions) -> None:
    sources = alignment.clocks["source"].to_list()
    for row in alignment.without_utc:
        if sources[alignment.clock_of[row]] != "nothing":
            continue  # what it shares with others places it
        warnings.warn(
            f"`{given[row].path}` does not know its UTC: it is drawn from the start of the earliest report",
            stacklevel=5,
        )
    if not alignment.is_utc and len(given) > 1 and options.mode != "none":
        warnings.warn(
            "no report knows its UTC: times count from one start, and what shares no operation begins there",
            stacklevel=5,
        )
    if options.mode == "collectives":
        for sentence in find_unrelated(alignment.clocks):
            warnings.warn(sentence, stacklevel=5)

"""What makes one doubt that reports belong together: sentences for a person."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import polars as pl

from nsys_pp.frames.roster import Identity
from nsys_pp.roster.identity import capture_window, name_paths
from nsys_pp.roster.layout import Layout, count_ranks
from nsys_pp.roster.runs import split_runs
from nsys_pp.units import NS_PER_S

_MOST_RANKS = 8  # that are listed


def find_inconsistencies(
    identities: Sequence[Identity], roster: pl.DataFrame, *, layout: Layout | None = None
) -> list[str]:
    """Say what a user should know before trusting that the reports are of one run.

    Args:
        identities: The reports.
        roster: `ROSTER` of them.
        layout: What the user says of the ranks; else their number is what reports say.

    Returns:
        Sentences without a full stop, each naming reports; none where there is one report.
    """
    if len(identities) < 2:
        return []
    sizes = _find_sizes(identities, roster)
    runs = split_runs([one.session for one in identities])
    return [
        *_tell_runs(identities, runs),
        *_tell_sizes(identities, sizes, layout),
        *_tell_claims(identities, roster, runs),
        *_tell_twins(identities, roster),
        *(_tell_missing(roster, count_ranks(layout) if layout else _only(sizes)) if len(runs) < 2 else ()),
        *_tell_names(identities, roster),
    ]


def _find_sizes(identities: Sequence[Identity], roster: pl.DataFrame) -> dict[int, list[int]]:
    """Give the number of ranks that is said by what was believed of ranks, and which reports say it."""
    believed = roster.select(pl.col("report").cast(pl.Int64), "rank_source").drop_nulls().unique()
    said = [
        one.ranks.select("rank_source", "world_size", report=pl.lit(place, dtype=pl.Int64))
        for place, one in enumerate(identities)
    ]
    sizes = pl.concat(said).drop_nulls().join(believed, on=["report", "rank_source"], how="semi")
    sizes = sizes.group_by("world_size").agg(pl.col("report").unique().sort()).sort("world_size")
    return dict(sizes.rows())


def _only(sizes: dict[int, list[int]]) -> int | None:
    return next(iter(sizes)) if len(sizes) == 1 else None


def _tell_runs(identities: Sequence[Identity], runs: Sequence[Sequence[int]]) -> Iterable[str]:
    if len(runs) < 2:
        return
    windows = [capture_window(one.session) for one in identities]
    gaps = [
        min(window[0] for place in later if (window := windows[place]))
        - max(window[1] for place in earlier if (window := windows[place]))
        for earlier, later in pairwise(runs)
    ]
    earliest, latest = _name(identities, runs[0]), _name(identities, runs[-1])
    if len(runs) == 2:
        told = f"{earliest} ended {_write_gap(gaps[0] // NS_PER_S)} before {latest} began"
    else:
        told = (
            f"captures are of {len(runs):,} times, up to {_write_gap(max(gaps) // NS_PER_S)} apart,"
            f" from {earliest} to {latest}"
        )
    yield f"{told}: are they of one run?"


def _tell_sizes(
    identities: Sequence[Identity], sizes: dict[int, list[int]], layout: Layout | None
) -> Iterable[str]:
    if len(sizes) > 1:
        told = (f"{size:,} in {_name(identities, places)}" for size, places in sorted(sizes.items()))
        yield f"the number of ranks differs: {'; '.join(told)}: are they of one run?"
    elif layout and sizes and count_ranks(layout) not in sizes:
        size, places = next(iter(sizes.items()))
        yield f"the layout has {count_ranks(layout):,} ranks, but {_name(identities, places)} say {size:,}"


def _tell_claims(
    identities: Sequence[Identity], roster: pl.DataFrame, runs: Sequence[Sequence[int]]
) -> Iterable[str]:
    """Name reports that claim one rank, but for captures of one process and reports of other runs."""
    run_of = {place: run for run, places in enumerate(runs) for place in places}
    claims = (
        roster.with_columns(
            run=pl.Series([run_of.get(place, 0) for place in roster["report"]], dtype=pl.Int64)
        )
        .drop_nulls("rank")
        .group_by("run", "rank")
        .agg(
            pl.col("report").unique().sort(),
            owners=pl.struct("machine", "process_key", "device_id").n_unique(),
        )
        .filter(pl.col("owners") > 1, pl.col("report").list.len() > 1)
        .sort("run", "rank")
    )
    for rank, reports in claims.select("rank", "report").head(_MOST_RANKS).rows():
        yield f"{_name(identities, reports)} claim rank {rank}"
    if len(claims) > _MOST_RANKS:
        yield f"{len(claims) - _MOST_RANKS:,} more ranks are claimed by several reports"


def _tell_twins(identities: Sequence[Identity], roster: pl.DataFrame) -> Iterable[str]:
    """Name reports that captured one process at one time: a process is captured once, so they are of two runs."""
    keys = ["machine", "process_key"]
    shared = roster.drop_nulls("process_key").group_by(keys).agg(pl.col("report").unique().sort())
    pairs: dict[tuple[int, ...], None] = {}
    for reports in shared.sort(keys)["report"].to_list():
        windows = {at: window for at in reports if (window := capture_window(identities[at].session))}
        ordered = sorted(windows, key=lambda at: windows[at])
        for first, second in pairwise(ordered):
            if windows[second][0] < windows[first][1]:
                pairs[first, second] = None
    if pairs:
        named = _name(identities, list(next(iter(pairs))))
        more = f" (and {len(pairs) - 1:,} more pairs)" if len(pairs) > 1 else ""
        yield f"{named} captured one process at one time{more}: are they of one run?"


def _tell_missing(roster: pl.DataFrame, size: int | None) -> Iterable[str]:
    known = roster.filter(pl.col("rank_source") != "file order")["rank"].drop_nulls()
    if size is None or known.is_empty():
        return
    seen = set(known)
    missing = [rank for rank in range(size) if rank not in seen]
    if missing:
        listed = ", ".join(map(str, missing[:_MOST_RANKS]))
        more = f" and {len(missing) - _MOST_RANKS:,} more" if len(missing) > _MOST_RANKS else ""
        has = "has" if len(missing) == 1 else "have"
        rank = "rank" if len(missing) == 1 else "ranks"
        yield f"of {size:,} ranks, {rank} {listed}{more} {has} no report"


def _tell_names(identities: Sequence[Identity], roster: pl.DataFrame) -> Iterable[str]:
    """Say how machines of one name were told apart."""
    hosts = pl.Series([identities[place].session.hostname for place in roster["report"]], dtype=pl.String)
    shared = (
        roster.with_columns(hostname=hosts)
        .drop_nulls("hostname")
        .group_by("hostname")
        .agg(
            pl.col("machine").n_unique(),
            pl.col("machine_source").unique().sort(),
            pl.col("report").unique().sort(),
        )
        .filter(pl.col("machine") > 1)
        .sort("hostname")
    )
    for hostname, count, sources, reports in shared.rows():
        yield (
            f"{count:,} machines have the name `{hostname}`, told apart by {' and '.join(sources)}:"
            f" {_name(identities, reports)}"
        )


def _name(identities: Sequence[Identity], places: Sequence[int]) -> str:
    return name_paths([identities[place].path for place in places])


def _write_gap(seconds: int) -> str:
    """Write a time between runs in its largest unit.

    >>> _write_gap(90), _write_gap(7200), _write_gap(200_000)
    ('90 seconds', '2 hours', '2 days')
    """
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:,} {unit}"
    return f"{seconds:,} seconds"

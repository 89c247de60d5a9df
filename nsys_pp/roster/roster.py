"""Who is who among all reports of a run -> ROSTER."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from nsys_pp.errors import NsysPPError, ReportError
from nsys_pp.frames.conform import conform
from nsys_pp.frames.ids import pid
from nsys_pp.frames.roster import ROSTER, Identity, Who
from nsys_pp.roster.identity import find_repeated, list_who
from nsys_pp.roster.layout import Layout, count_ranks, locate_ranks
from nsys_pp.roster.machines import Machine, tell_machines
from nsys_pp.roster.physical import Place, place_devices
from nsys_pp.roster.rank_sources import Rank, find_ranks

_PLACE = {"stage": "pp", "tensor": "tp", "replica": "dp"}


def build_roster(
    identities: Sequence[Identity], *, layout: Layout | None = None, rank_from: str | None = None
) -> pl.DataFrame:
    """Tell machines, GPUs, ranks and places in the pipeline of all reports of a run.

    A rank is what the report itself says (MPI, NCCL, launcher, XLA); else what `rank_from` finds in the
    file's name; else what the names of all such files say by one usual pattern; else, where no rank is
    known at all and every report has one GPU process, their natural order. What NCCL says is believed
    only where no two processes say that they are one rank of the largest communicator. But for `report`,
    the result does not depend on the order of reports.

    Args:
        identities: One or more reports, in the order in which they were given.
        layout: How ranks are laid out; without it, places are those that programs wrote into names.
        rank_from: A regular expression whose first group is the rank in a file's name.

    Returns:
        `ROSTER`.

    Raises:
        ReportError: A recording is there twice.
        NsysPPError: A rank is beyond the layout; or `rank_from` finds no ranks.
        ValueError: `rank_from` is no regular expression with a group.
    """
    for again, first in find_repeated(identities):
        raise repeated_error(identities[first].path, identities[again].path)
    machines = tell_machines(identities)
    ranks = find_ranks(identities, machines, rank_from=rank_from)
    numbers = {who: rank.rank for who, rank in ranks.items()}
    places = {
        Who(place.report, place.process_key, place.device_id): place
        for machine in machines
        for place in place_devices(identities, machine.reports, numbers)
    }
    rows = [
        _describe(who, identities[who.report], machines, places.get(who), ranks.get(who))
        for who in list_who(identities)
    ]
    roster = pl.DataFrame(rows, schema={**ROSTER}, strict=False)
    roster = roster.with_columns(pid=pid(pl.col("process_key")))
    roster = _locate(roster, identities) if layout is None else _lay_out(roster, identities, layout)
    return conform(roster, ROSTER).sort("report", "process_key", "device_id")


def repeated_error(first: Path, again: Path) -> ReportError:
    """Say that two files are one recording."""
    return ReportError(f"`{first}` and `{again}` are the same recording", "name each report once")


def _describe(
    who: Who, one: Identity, machines: Sequence[Machine], place: Place | None, rank: Rank | None
) -> Mapping[str, object]:
    at = next(at for at, machine in enumerate(machines) if who.report in machine.reports)
    described: dict[str, object] = {
        "report": who.report,
        "machine": machines[at].label,
        "machine_source": machines[at].source,
        "machine_order": at,
        "process_key": who.process_key,
        "device_id": who.device_id,
    }
    if place is not None:
        described |= {
            "gpu": place.gpu,
            "gpu_number": place.number,
            "gpu_name": place.name,
            "uuid": place.uuid,
            "bus_location": place.bus_location,
        }
    if rank is not None:
        described |= {"rank": rank.rank, "rank_source": rank.source}
    return described


def _lay_out(roster: pl.DataFrame, identities: Sequence[Identity], layout: Layout) -> pl.DataFrame:
    """Place ranks by the layout that the user gave."""
    beyond = roster.filter(pl.col("rank") >= count_ranks(layout)).sort("rank")
    for report, rank in beyond.select("report", "rank").head(1).rows():
        raise NsysPPError(
            f"the layout has {count_ranks(layout):,} ranks, but rank {rank} is in `{identities[report].path}`",
            "the product of all parts of `--layout` is the number of ranks",
        )
    located = locate_ranks(roster["rank"], layout)
    columns = [located[axis].alias(ours) for ours, axis in _PLACE.items()]
    is_located = pl.col("rank").is_not_null()
    return roster.with_columns(columns).with_columns(
        stage_source=pl.when(is_located).then(pl.lit("--layout"))
    )


def _locate(roster: pl.DataFrame, identities: Sequence[Identity]) -> pl.DataFrame:
    """Place processes by what they wrote into names of NVTX ranges and marks."""
    parts = [
        one.coordinates.with_columns(report=pl.lit(place, dtype=pl.UInt32), stage_source=pl.lit("NVTX"))
        for place, one in enumerate(identities)
        if len(one.coordinates)
    ]
    if not parts:
        return roster
    said = pl.concat(parts)
    return roster.drop(*_PLACE, "stage_source").join(
        said, on=["report", "process_key"], how="left", maintain_order="left"
    )

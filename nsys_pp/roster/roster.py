"""`ROSTER` of a run, and reasons to doubt that its reports are of one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations

import numpy as np
import polars as pl
from msgspec.structs import replace

from nsys_pp.arrays.search import group_pairs
from nsys_pp.errors import NsysPPError, ReportError
from nsys_pp.frames.conform import conform
from nsys_pp.frames.ids import pid
from nsys_pp.frames.launchers import Rank
from nsys_pp.frames.report import Session
from nsys_pp.frames.roster import (
    FILE_ORDER,
    GIVEN_LAYOUT,
    ROSTER,
    Identity,
    ProcessDevice,
    capture_window,
    share_origin,
)
from nsys_pp.roster.identity import (
    COORDINATE_AXES,
    gpu_processes,
    list_process_devices,
    name_paths,
    split_runs,
)
from nsys_pp.roster.machines import DeviceGpu, Machine, assign_gpus, find_machines
from nsys_pp.roster.ranks import (
    Layout,
    count_ranks,
    find_ranks,
    locate_ranks,
    number_gpus,
)
from nsys_pp.units import NS_PER_S

_MAX_RANKS = 8  # in a list


def find_inconsistencies(
    identities: Sequence[Identity],
    roster: pl.DataFrame,
    *,
    layout: Layout | None = None,
    offsets_ns: Mapping[str, int] | None = None,
) -> list[str]:
    """List reasons to doubt that the reports are of one run.

    Args:
        identities: The reports.
        roster: `ROSTER` of them.
        layout: Layout of ranks; without it, the number of ranks is that of the reports.
        offsets_ns: As in `find_strangers`.

    Returns:
        Sentences without a full stop that name reports; for a single report only on processes without a place
        in the layout.
    """
    unplaced = [*_warn_of_unplaced(identities, roster, layout)] if layout else []
    if len(identities) < 2:
        return unplaced
    sizes = _find_sizes(identities, roster)
    strangers = find_strangers(identities, roster, offsets_ns=offsets_ns)
    of_run = roster.filter(~pl.col("report").is_in(list(strangers)))
    more = f" (and {len(strangers) - 1:,} more reports)" if len(strangers) > 1 else ""
    size = count_ranks(layout) if layout else next(iter(sizes)) if len(sizes) == 1 else None
    return [
        *unplaced,
        *(f"{error.message}{more}" for error in [*strangers.values()][:1]),
        *_warn_of_sizes(identities, sizes, layout),
        *_describe_shared_ranks(identities, of_run),
        *_warn_of_missing(roster, None if strangers else size),
        *_describe_shared_hostnames(identities, roster),
    ]


def _find_sizes(identities: Sequence[Identity], roster: pl.DataFrame) -> dict[int, list[int]]:
    # numbers of ranks in the sources of ranks, with the reports of each
    sources = roster.select(pl.col("report").cast(pl.Int64), "rank_source").drop_nulls().unique()
    ranks = [identity.ranks for identity in identities]
    report = np.repeat(np.arange(len(ranks)), [len(of_report) for of_report in ranks])
    sizes = (
        pl.concat(ranks)[["rank_source", "world_size"]]
        .hstack([pl.Series("report", report)])
        .drop_nulls()
        .join(sources, on=["report", "rank_source"], how="semi")
        .group_by("world_size")
        .agg(pl.col("report").unique().sort())
        .sort("world_size")
    )
    return dict(sizes.rows())


def _warn_of_unplaced(identities: Sequence[Identity], roster: pl.DataFrame, layout: Layout) -> Iterable[str]:
    unplaced = roster.filter(pl.col("process_key").is_not_null(), pl.col("rank").is_null())
    if unplaced.is_empty():
        return
    reports = unplaced["report"].unique().sort().to_list()
    reason = "their ranks are unknown"
    if any(len(gpu_processes(identities[report])) > 1 for report in reports):
        reason += (
            ", as one report has several processes, and not every rank of the layout has a GPU in "
            "these reports"
        )
    elif roster["rank"].null_count() == len(roster):
        ranks = roster["process_key"].count()
        reason += (
            f", and their order says nothing, as they are {ranks:,} of {count_ranks(layout):,} ranks; "
            "specify `--rank-from`"
        )
    count = f"{len(unplaced):,} GPU process{'es' * (len(unplaced) > 1)}"
    yield f"`--layout` cannot place {count} of {_name(identities, reports)}: {reason}"


def _warn_of_sizes(
    identities: Sequence[Identity], sizes: dict[int, list[int]], layout: Layout | None
) -> Iterable[str]:
    if len(sizes) > 1:
        listed = (f"{size:,} in {_name(identities, reports)}" for size, reports in sorted(sizes.items()))
        yield f"the number of ranks differs: {'; '.join(listed)}: are they of one run?"
    elif layout and sizes and count_ranks(layout) not in sizes:
        size, reports = next(iter(sizes.items()))
        yield (
            f"the layout has {count_ranks(layout):,} ranks, but {_name(identities, reports)} record {size:,}"
        )


def _describe_shared_ranks(identities: Sequence[Identity], roster: pl.DataFrame) -> Iterable[str]:
    """Name ranks with several processes that may be of one run; several captures of one are consistent."""
    claims = (
        roster.drop_nulls("rank")
        .group_by("rank")
        .agg(
            pl.col("report").unique().sort(),
            owners=pl.struct("machine", "process_key", "device_id").n_unique(),
        )
        .filter(pl.col("owners") > 1, pl.col("report").list.len() > 1)
        .sort("rank")
    )
    more = f" (and {len(claims) - 1:,} more)" if len(claims) > 1 else ""
    for rank, reports in claims.select("rank", "report").head(1).rows():
        yield f"rank {rank}{more} ran in several processes: {_name(identities, reports)}"


def find_strangers(
    identities: Sequence[Identity], roster: pl.DataFrame, *, offsets_ns: Mapping[str, int] | None = None
) -> dict[int, ReportError]:
    """Find the reports that cannot be of one run with the others: the largest group of reports that can be.

    Reports are of different runs if their captures are hours apart in UTC, or if different processes claim
    one rank at one time. A report that could be of several runs is of the one whose captures begin nearest.
    Reports without UTC are with the others.

    Args:
        identities: The reports.
        roster: `ROSTER` of them.
        offsets_ns: Offset of UTC by machine, where it is given.

    Returns:
        By index of the report, why it is not of the run.
    """
    machines = dict(roster.select("report", "machine").iter_rows())
    sessions = [
        identity.session
        if (utc_ns := identity.session.utc_epoch_ns) is None
        else replace(identity.session, utc_epoch_ns=utc_ns + (offsets_ns or {}).get(machines[report], 0))
        for report, identity in enumerate(identities)
    ]
    windows = {report: window for report, one in enumerate(sessions) if (window := capture_window(one))}
    rivals = _find_rivals(sessions, windows, roster)
    groups: list[list[int]] = []
    for run in split_runs(sessions):
        of_time: list[list[int]] = []
        for report in sorted(run, key=lambda report: (not rivals[report], report)):
            free = [group for group in of_time if rivals[report].keys().isdisjoint(group)]
            if free:
                near = [min(abs(windows[other][0] - windows[report][0]) for other in group) for group in free]
                free[near.index(min(near))].append(report)
            else:
                of_time.append([report])
        groups += of_time
    kept = max(groups, key=len, default=[])
    return {
        report: ReportError(
            f"{_explain_stranger(identities, windows, rivals, kept, group, report)}: not of one run",
            "name the reports of one run; `nsys-pp compare` compares two, and `--offset` corrects a clock",
        )
        for group in groups
        if group is not kept
        for report in sorted(group)
    }


def _find_rivals(
    sessions: Sequence[Session], windows: Mapping[int, tuple[int, int]], roster: pl.DataFrame
) -> dict[int, dict[int, int]]:
    """Find the reports whose different processes claim one rank at one time, and the rank, by report.

    Nsys captures a process once: in another session it is another process with its id.
    """
    rows = roster.select("rank", "report", "machine", "process_key").drop_nulls(["rank", "process_key"])
    claims = group_pairs(
        (rank, (report, process)) for rank, report, *process in rows.unique().iter_rows() if report in windows
    )
    rivals: dict[int, dict[int, int]] = {report: {} for report in windows}
    for rank, processes in claims.items():
        for (one, process), (other, another) in permutations(processes, 2):
            (start, end), (since, until) = windows[one], windows[other]
            is_one_session = process == another and share_origin(sessions[one], sessions[other])
            if one != other and start < until and since < end and not is_one_session:
                rivals[one][other] = rank
    return rivals


def _explain_stranger(
    identities: Sequence[Identity],
    windows: Mapping[int, tuple[int, int]],
    rivals: Mapping[int, Mapping[int, int]],
    kept: Sequence[int],
    group: Sequence[int],
    report: int,
) -> str:
    """Say what keeps a report from a run: its rank or that of a report of its group, or the time between."""
    pairs = ((one, other) for one in (report, *group) for other in kept if other in rivals[one])
    for one, other in pairs:
        more = "" if one == report else f", and {_name(identities, [report])} began with the second"
        return f"{_name(identities, [other, one])} are both rank {rivals[one][other]} at one time{more}"
    earlier, later = sorted([kept[0], report], key=lambda at: windows[at])
    gap = _format_gap((windows[later][0] - windows[earlier][1]) // NS_PER_S)
    return f"{_name(identities, [earlier])} ended {gap} before {_name(identities, [later])} began"


def _warn_of_missing(roster: pl.DataFrame, size: int | None) -> Iterable[str]:
    ranks = set(roster.filter(pl.col("rank_source") != FILE_ORDER)["rank"].drop_nulls())
    missing = [rank for rank in range(size or 0) if rank not in ranks]
    if ranks and missing:
        listed = ", ".join(map(str, missing[:_MAX_RANKS]))
        more = f" and {len(missing) - _MAX_RANKS:,} more" if len(missing) > _MAX_RANKS else ""
        rank, has = ("rank", "has") if len(missing) == 1 else ("ranks", "have")
        yield f"of {size:,} ranks, {rank} {listed}{more} {has} no report"


def _describe_shared_hostnames(identities: Sequence[Identity], roster: pl.DataFrame) -> Iterable[str]:
    hosts = pl.Series([identities[report].session.hostname for report in roster["report"]], dtype=pl.String)
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
            f"{count:,} machines share the hostname `{hostname}`, distinguished by {' and '.join(sources)}:"
            f" {_name(identities, reports)}"
        )


def _name(identities: Sequence[Identity], reports: Sequence[int]) -> str:
    return name_paths([identities[report].path for report in reports])


def _format_gap(seconds: int) -> str:
    """Format a time between runs in its largest unit.

    >>> _format_gap(90), _format_gap(7200), _format_gap(200_000)
    ('90 seconds', '2 hours', '2 days')
    """
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:,} {unit}"
    return f"{seconds:,} seconds"


def build_roster(
    identities: Sequence[Identity], *, layout: Layout | None = None, rank_from: str | None = None
) -> pl.DataFrame:
    """Find machines, GPUs, ranks and pipeline coordinates of all reports of a run.

    A rank comes from the report itself (MPI, NCCL, launcher, XLA); else from `rank_from` and the name of the
    file; else from the names of all files without a rank, by one common pattern; else, if no rank is known
    and every report has one GPU process, from the natural order of the files, unless a layout has more ranks;
    else, with a layout, from the order of GPUs. Ranks of NCCL are used only if no two
    processes have the same rank in the largest communicator. Except for `report`, the result does not depend
    on the order of reports.

    Args:
        identities: One or more reports, in the order of the inputs.
        layout: Layout of ranks; without it, coordinates come from names of ranges and marks.
        rank_from: A regular expression whose first group is the rank in a file's name.

    Returns:
        `ROSTER`.

    Raises:
        NsysPPError: A rank is beyond the layout; or `rank_from` finds no ranks.
        ValueError: `rank_from` is not a regular expression with a group.
    """
    machines = find_machines(identities)
    ranks = find_ranks(identities, machines, rank_from=rank_from)
    is_file_order = any(rank.source == FILE_ORDER for rank in ranks.values())
    if layout is not None and is_file_order and len(ranks) != count_ranks(layout):
        ranks = {}  # some file is missing, and all after it would have a wrong place
    numbers = {device: rank.rank for device, rank in ranks.items()}
    gpus = {
        ProcessDevice(gpu.report, gpu.process_key, gpu.device_id): gpu
        for machine in machines
        for gpu in assign_gpus(identities, machine.reports, numbers)
    }
    if layout is not None and not ranks:
        ranks = number_gpus(identities, machines, gpus, count_ranks(layout))
    roster = pl.DataFrame(
        [
            _build_row(device, machines, gpus.get(device), ranks.get(device))
            for device in list_process_devices(identities)
        ],
        schema={**ROSTER},
        strict=False,
    ).with_columns(pid=pid(pl.col("process_key")))
    if layout is None:
        roster = _add_named_coordinates(roster, identities)
    else:
        roster = _add_layout(roster, identities, layout)
    return conform(roster, ROSTER).sort("report", "process_key", "device_id")


def _build_row(
    device: ProcessDevice, machines: Sequence[Machine], gpu: DeviceGpu | None, rank: Rank | None
) -> Mapping[str, object]:
    number = next(number for number, machine in enumerate(machines) if device.report in machine.reports)
    row: dict[str, object] = {
        "report": device.report,
        "machine": machines[number].label,
        "machine_source": machines[number].source,
        "machine_order": number,
        "process_key": device.process_key,
        "device_id": device.device_id,
    }
    if gpu is not None:
        row |= {
            "gpu": gpu.gpu,
            "gpu_number": gpu.number,
            "gpu_name": gpu.name,
            "uuid": gpu.uuid,
            "bus_location": gpu.bus_location,
        }
    if rank is not None:
        row |= {"rank": rank.rank, "rank_source": rank.source, "run_size": rank.world_size}
    return row


def _add_layout(roster: pl.DataFrame, identities: Sequence[Identity], layout: Layout) -> pl.DataFrame:
    beyond = roster.filter(pl.col("rank") >= count_ranks(layout)).sort("rank")
    for report, rank in beyond.select("report", "rank").head(1).rows():
        raise NsysPPError(
            f"the layout has {count_ranks(layout):,} ranks, but rank {rank} is in"
            f" `{identities[report].path}`",
            "the product of all parts of `--layout` is the number of ranks",
        )
    located = locate_ranks(roster["rank"], layout)
    columns = [located[axis].alias(ours) for ours, axis in COORDINATE_AXES.items()]
    is_located = pl.col("rank").is_not_null()
    return roster.with_columns(columns).with_columns(
        stage_source=pl.when(is_located).then(pl.lit(GIVEN_LAYOUT)),
        stage_count=pl.when(is_located).then(layout.pp),
        run_size=pl.when(is_located).then(count_ranks(layout)),
    )


def _add_named_coordinates(roster: pl.DataFrame, identities: Sequence[Identity]) -> pl.DataFrame:
    named = [identity.coordinates for identity in identities]
    report = np.repeat(np.arange(len(named), dtype=np.uint32), [len(of_report) for of_report in named])
    coordinates = pl.concat(named).with_columns(pl.Series("report", report), stage_source=pl.lit("NVTX"))
    return roster.drop(*COORDINATE_AXES, "stage_source").join(
        coordinates, on=["report", "process_key"], how="left", maintain_order="left"
    )

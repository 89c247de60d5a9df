"""Ranks of processes: from the report, names of files, a layout, or the order of files and GPUs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
from msgspec import Struct

from nsys_pp.arrays.names import check_pattern, natural_key
from nsys_pp.errors import NsysPPError
from nsys_pp.frames.launchers import SLURM_TASK, Rank, find_rank
from nsys_pp.frames.roster import FILE_ORDER, GPU_ORDER, MACHINE_ORDER, MOST_RANKS, Identity, ProcessDevice
from nsys_pp.roster.identity import gpu_processes, list_process_devices, split_runs
from nsys_pp.roster.machines import DeviceGpu, Machine
from nsys_pp.units import NS_PER_S

# Words for the rank, in the order of the attempts; then a number at the end.
_WORDS = (
    r"(?:^|[^a-zA-Z])rank[-_.=]?(\d{1,6})(?!\d)",
    r"(?:^|[^a-zA-Z])mpi[-_.=]?(\d{1,6})(?!\d)",
    r"(?:^|[-_.])r(\d{1,6})(?=[-_.]|$)",
)
_AT_THE_END = r"[-_.](\d{1,5})$"
_TOGETHER_NS = 60 * NS_PER_S  # between captures of files that are numbered: others may be unrelated


def check_rank_pattern(pattern: str) -> str:
    """Return a pattern after checking it.

    Raises:
        ValueError: It is not a regular expression, or has no group.
    """
    if not check_pattern(pattern):
        raise ValueError(f"`{pattern}` has no group: enclose the number in parentheses, as in `rank(\\d+)`")
    return pattern


def read_ranks(paths: Mapping[int, Path], pattern: str) -> dict[int, int]:
    """Read ranks by a pattern of the user.

    Args:
        paths: Paths by index of the report.
        pattern: A regular expression, searched for in the file's name; its first group is the rank.

    Returns:
        Rank by index of the report; reports without a match are left out.

    Raises:
        ValueError: It is not a regular expression, or has no group.
        NsysPPError: It matches no name, or its group is not a number.
    """
    names = [path.name.encode(errors="replace").decode() for path in paths.values()]
    matches = pl.Series(names, dtype=pl.String).str.extract(check_rank_pattern(pattern))
    ranks = {}
    for (report, path), found in zip(paths.items(), matches, strict=True):
        if found is None:
            continue
        if not re.fullmatch(r"[0-9]{1,9}", found):
            raise NsysPPError(
                f"`{pattern}` matches `{found}` in `{path}`, not a rank",
                "the first group must match digits only, as in `rank(\\d+)`",
            )
        ranks[report] = int(found)
        if ranks[report] >= MOST_RANKS:
            raise NsysPPError(
                f"`{pattern}` matches {found} in `{path}`, too large for a rank; expected 0 to "
                f"{MOST_RANKS - 1:,}",
                "the number may be that of a job: the first group must match the rank, as in `rank(\\d+)`",
            )
    if paths and not ranks:
        first = next(iter(paths.values()))
        raise NsysPPError(
            f"`{pattern}` matches none of the {len(paths):,} file names, as `{first.name}`",
            "the pattern is searched for in each report's file name",
        )
    return ranks


def guess_ranks(paths: Mapping[int, Path], used: Sequence[int]) -> dict[int, int]:
    """Guess ranks from common forms of names: `run_rank3`, `p4.r1.mpi3`, `report.r3.`, `report_3`.

    Args:
        paths: Paths of the reports without a known rank, by index of the report.
        used: Ranks of other reports.

    Returns:
        The rank of each report, if all names have one form with different numbers, none of them in `used`;
        else nothing. A single file needs a word for the rank: `report_2` may be a second attempt.

    >>> guess_ranks({0: Path("p4.r1.mpi0.sqlite"), 1: Path("p4.r1.mpi1.sqlite")}, [])
    {0: 0, 1: 1}
    >>> guess_ranks({0: Path("a_0.sqlite"), 1: Path("b_0.sqlite")}, [])
    {}
    """
    for pattern in (*_WORDS, _AT_THE_END):
        if pattern == _AT_THE_END and len(paths) < 2:
            continue
        matches = {report: re.findall(pattern, path.stem) for report, path in paths.items()}
        ranks = {report: int(numbers[-1]) for report, numbers in matches.items() if numbers}
        numbers = [*ranks.values()]
        if len(ranks) == len(paths) and len({*numbers}) == len(numbers) and not {*numbers} & {*used}:
            return ranks
    return {}


# Axes in Megatron's order of ranks: the first varies fastest from rank to rank.
AXES = ("tp", "cp", "ep", "dp", "pp")

_HINT = "write `pp=4,tp=2,dp=2` or `pp=4,tp=2,dp=2,order=tp-dp-pp`"


class Layout(Struct, frozen=True, kw_only=True):
    """Number of parts of each axis, and the order of the axes.

    Raises:
        ValueError: An axis has no parts; or the order has an unknown axis, has one twice, or lacks one.
    """

    pp: int = 1  # stages of the pipeline
    tp: int = 1  # parts of each tensor
    dp: int = 1  # replicas that see other data
    ep: int = 1  # groups of experts
    cp: int = 1  # parts of each sequence
    order: tuple[str, ...] = AXES  # the first varies fastest from rank to rank

    def __post_init__(self) -> None:
        """Check the axes."""
        for axis in AXES:
            if getattr(self, axis) < 1:
                raise ValueError(
                    f"invalid number of parts `{axis}={getattr(self, axis)}`; expected 1 or more"
                )
        if count_ranks(self) > MOST_RANKS:
            raise ValueError(f"a layout of {count_ranks(self):,} ranks; expected at most {MOST_RANKS:,}")
        for axis in self.order:
            if axis not in AXES:
                raise ValueError(f"invalid axis `{axis}` in the order; expected one of {', '.join(AXES)}")
            if self.order.count(axis) > 1:
                raise ValueError(f"the order names `{axis}` twice")
        lacking = [axis for axis in AXES if getattr(self, axis) > 1 and axis not in self.order]
        if lacking:
            raise ValueError(f"the order lacks `{lacking[0]}`, which has {getattr(self, lacking[0])} parts")


def parse_layout(text: str) -> Layout:
    """Parse a layout. The default order is Megatron's: tp-cp-ep-dp-pp.

    Raises:
        ValueError: It is invalid; the message contains an example.

    >>> layout = parse_layout("pp=4,tp=2,dp=2,order=tp-dp-pp")
    >>> layout.pp, layout.order, count_ranks(layout)
    (4, ('tp', 'dp', 'pp'), 16)
    """
    parts: dict[str, str] = {}
    for entry in text.split(","):
        name, equals, value = (part.strip().lower() for part in entry.partition("="))
        if not equals or name not in (*AXES, "order"):
            raise ValueError(f"invalid part of a layout `{entry.strip()}`: {_HINT}")
        if name in parts:
            raise ValueError(f"`{name}` occurs twice: {_HINT}")
        parts[name] = value
    order = tuple(parts.pop("order").split("-")) if "order" in parts else AXES
    for name, value in parts.items():
        if not re.fullmatch(r"\d{1,9}", value):
            raise ValueError(f"invalid number of parts `{name}={value}`: {_HINT}")
    return Layout(**{name: int(value) for name, value in parts.items()}, order=order)


def count_ranks(layout: Layout) -> int:
    """Return the number of ranks of a layout."""
    return math.prod(getattr(layout, axis) for axis in AXES)


def locate_ranks(ranks: pl.Series, layout: Layout) -> pl.DataFrame:
    """Find the coordinates of each rank.

    Args:
        ranks: Any ranks.
        layout: The layout.

    Returns:
        One row per rank, in order, with a column per axis of `AXES`, from 0; null where the rank is null or
        beyond the layout. Axes that are not in the order are 0.

    >>> locate_ranks(pl.Series([0, 1, 2, 5]), Layout(pp=2, tp=2, dp=2)).select("pp", "dp", "tp").rows()
    [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 1)]
    """
    rank = pl.col("rank")
    is_valid = rank.is_between(0, count_ranks(layout) - 1)
    step = 1
    columns = {axis: pl.lit(0) for axis in AXES}
    for axis in layout.order:
        columns[axis] = rank // step % getattr(layout, axis)
        step *= getattr(layout, axis)
    return (
        ranks.cast(pl.Int64)
        .alias("rank")
        .to_frame()
        .select(pl.when(is_valid).then(column).cast(pl.Int64).alias(axis) for axis, column in columns.items())
    )


def number_gpus(
    identities: Sequence[Identity],
    machines: Sequence[Machine],
    gpus: Mapping[ProcessDevice, DeviceGpu],
    count: int,
) -> dict[ProcessDevice, Rank]:
    """Number GPU processes by machine and GPU, as launchers do that start one process for each GPU.

    Machines are in the order of the ranks of what nsys launched on them (`GPU_ORDER`), else in the natural
    order of their names (`MACHINE_ORDER`), which is only a guess.

    Args:
        identities: All reports.
        machines: Machines of the reports, in natural order.
        gpus: GPU of each device.
        count: Number of ranks of the run.

    Returns:
        Ranks; empty unless every rank has a GPU of its own in these reports.
    """
    devices = list_process_devices(identities)
    machine_of = {report: number for number, machine in enumerate(machines) for report in machine.reports}
    places = {
        device: (machine_of[device.report], gpus[device].number) for device in devices if device in gpus
    }
    if not len(devices) == len(places) == len(set(places.values())) == count:
        return {}
    launched = [
        {find_rank(identities[report].session.launcher) for report in machine.reports} for machine in machines
    ]
    ranks = [ranks.pop() if len(ranks) == 1 else None for ranks in launched]
    nodes = [None if rank is None else rank.rank for rank in ranks]
    if len(machines) == 1 or sorted(node for node in nodes if node is not None) == [*range(len(machines))]:
        source, orders = GPU_ORDER, [node or 0 for node in nodes]
    else:
        source, orders = MACHINE_ORDER, [*range(len(machines))]
    ordered = sorted(devices, key=lambda device: (orders[places[device][0]], places[device][1]))
    return {device: Rank(rank, source, None) for rank, device in enumerate(ordered)}


def find_ranks(
    identities: Sequence[Identity], machines: Sequence[Machine], *, rank_from: str | None
) -> dict[ProcessDevice, Rank]:
    """Find the ranks of all processes.

    Args:
        identities: All reports.
        machines: Machines of the reports.
        rank_from: Pattern for names of files.

    Returns:
        Rank of each process and device with a known one.

    Raises:
        NsysPPError: `rank_from` matches no name.
        ValueError: `rank_from` is not a regular expression with a group.
    """
    devices = list_process_devices(identities)
    ranks = {
        device: rank
        for device in devices
        if (rank := _find_recorded(device, identities[device.report])) is not None
    }
    machine_of = {report: number for number, machine in enumerate(machines) for report in machine.reports}
    ranks = _drop_group_ranks(ranks, identities, machine_of)
    if any(_starts_ranks(identity) for identity in identities):
        ranks = {device: rank for device, rank in ranks.items() if rank.source != SLURM_TASK}

    def list_unranked() -> dict[int, Path]:
        ranked = {device.report for device in ranks}
        return {
            report: identity.path
            for report, identity in enumerate(identities)
            if report not in ranked and len(gpu_processes(identity)) <= 1
        }

    def add(rank_of: dict[int, int], source: str) -> None:
        ranks.update(
            (device, Rank(rank_of[device.report], source, None))
            for device in devices
            if device.report in rank_of
        )

    if rank_from is not None:
        add(read_ranks(list_unranked(), rank_from), "--rank-from")
    # where a process is in several reports, numbers in names of files count captures
    processes = [
        (machine_of[report], key)
        for report, identity in enumerate(identities)
        for key in gpu_processes(identity)
    ]
    if len(set(processes)) == len(processes):
        add(guess_ranks(list_unranked(), [rank.rank for rank in ranks.values()]), "file name")
        if not ranks:
            add(_number_files(identities), FILE_ORDER)
    return ranks


def _find_recorded(device: ProcessDevice, identity: Identity) -> Rank | None:
    """Find the rank of a device in its report: of the device, of its process, or of the only process."""
    ranks = identity.ranks.rows(named=True)  # a few, for which a query takes longer
    of_process = [row for row in ranks if row["process_key"] == device.process_key]
    of_device = [row for row in of_process if row["device_id"] == device.device_id]
    is_only_device = identity.devices["process_key"].to_list().count(device.process_key) <= 1
    candidates = [of_device, [row for row in of_process if row["device_id"] is None]]
    if is_only_device:
        candidates.append(of_process)
    if len(gpu_processes(identity)) <= 1:
        candidates.append([row for row in ranks if row["process_key"] is None])
    if device.process_key is None:
        candidates.append(ranks)
    for candidate in candidates:
        if len(candidate) == 1:
            (row,) = candidate
            return _check_rank(Rank(row["rank"], row["rank_source"], row["world_size"]))
    return None


def _starts_ranks(identity: Identity) -> bool:
    """Whether a task of Slurm starts several ranks, as with torchrun: then its number is none of a rank."""
    launcher = identity.session.launcher
    task = launcher.get(SLURM_TASK)
    several = len(gpu_processes(identity)) > 1 and identity.devices["gpu"].n_unique() > 1
    return task is not None and (several or launcher.get("RANK", task) != task)


def _check_rank(rank: Rank) -> Rank | None:
    """Return a rank that a run may have; the model has warned of others."""
    size = rank.world_size if rank.world_size is not None and 0 < rank.world_size <= MOST_RANKS else None
    return Rank(rank.rank, rank.source, size) if 0 <= rank.rank < MOST_RANKS else None


def _drop_group_ranks(
    ranks: dict[ProcessDevice, Rank], identities: Sequence[Identity], machine_of: dict[int, int]
) -> dict[ProcessDevice, Rank]:
    """Drop ranks of NCCL unless all are of the communicator of all ranks.

    Others are of communicators of groups.

    A process without its rank of NCCL has the rank of its launcher, if nsys launched only this process.
    """
    of_nccl = {device: rank for device, rank in ranks.items() if rank.source == "NCCL"}
    size = max((rank.world_size or 0 for rank in of_nccl.values()), default=0)
    owners: dict[int, set[tuple[int, int | None, int | None]]] = {}
    for device, rank in of_nccl.items():
        if rank.world_size == size:
            owners.setdefault(rank.rank, set()).add((machine_of[device.report], *device[1:]))
    is_of_all = all(len(processes) == 1 for processes in owners.values())
    kept = dict(ranks)
    for device, rank in of_nccl.items():
        if is_of_all and rank.world_size == size:
            continue
        del kept[device]
        identity = identities[device.report]
        of_launcher = find_rank(identity.session.launcher) if len(gpu_processes(identity)) <= 1 else None
        if of_launcher is not None and (checked := _check_rank(of_launcher)) is not None:
            kept[device] = checked
    return kept


def _number_files(identities: Sequence[Identity]) -> dict[int, int]:
    """Number reports in natural order; only several reports of one run, with one GPU process each."""
    is_run = len(split_runs([identity.session for identity in identities], gap_ns=_TOGETHER_NS)) <= 1
    if len(identities) < 2 or not is_run or any(len(gpu_processes(identity)) != 1 for identity in identities):
        return {}
    paths = [str(identity.path) for identity in identities]
    ordered = sorted(range(len(paths)), key=lambda report: (natural_key(paths[report]), paths[report]))
    return {report: number for number, report in enumerate(ordered)}

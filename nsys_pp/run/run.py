"""A run: the inputs of a command, and their roster, clocks and training, each computed once, on first use.

The clocks of all reports become one clock of the trace (`align_inputs`), and the frames of all reports on
that clock one `Training` (`find_training`). Captures of one nsys session (`nsys profile
--capture-range-end=repeat` writes a report per capture) are joined: rows of later captures get the report of
the first one, so that a process has one lane, one stage, and one list of steps. So are the processes that a
restart put in the place of earlier ones: a rank has one lane.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl
from msgspec import Struct, field
from msgspec.structs import replace

from nsys_pp.alignment.clocks import Alignment, align_clocks
from nsys_pp.arrays.columns import EVER, NEVER, index_rows, whole_numbers
from nsys_pp.arrays.names import natural_key
from nsys_pp.arrays.search import group_pairs
from nsys_pp.errors import ClockError, NsysPPError
from nsys_pp.frames.clock import CLOCKS, Clock, describe_groups
from nsys_pp.frames.conform import conform
from nsys_pp.frames.part import LOSS, NO_KERNEL, REPORT
from nsys_pp.frames.report import Session
from nsys_pp.frames.roster import Identity, capture_window, share_origin, share_session
from nsys_pp.frames.training import (
    GATHERED_FRAMES,
    LANE_FRAMES,
    LANE_KEYS,
    PAUSES,
    ROSTER_WITH_BOUNDS,
    RUN_STEPS,
    SCHEDULED_KINDS,
    Loss,
    Training,
)
from nsys_pp.options import ClockMode
from nsys_pp.progress import report_progress
from nsys_pp.read.parts import concat_frames
from nsys_pp.read.readers import order_of_path
from nsys_pp.roster.identity import name_paths
from nsys_pp.roster.ranks import Layout
from nsys_pp.roster.roster import build_roster, find_inconsistencies
from nsys_pp.run.inputs import (
    Batch,
    Skipped,
    collect_row_counts,
    drop_repeated,
    drop_strangers,
    leave_out_odd,
)
from nsys_pp.run.options import (
    RunOptions,
    StepWindow,
    format_window,
    parse_job_options,
    parse_offsets,
    parse_rank_from,
    parse_run_layout,
    parse_steps,
)
from nsys_pp.run.report import Input
from nsys_pp.training.causes import build_lane_states, measure_cover, measure_coverage
from nsys_pp.training.ideal import build_ideal
from nsys_pp.training.jobs import BY_POSITION
from nsys_pp.training.lanes import build_lanes
from nsys_pp.training.messages import pair_messages
from nsys_pp.training.numbering import (
    describe_cuts,
    describe_restart,
    describe_sources,
    number_steps,
    renumber_steps,
)
from nsys_pp.training.schedule import doubt_schedule, label_jobs, recognise_schedule, resolve_jobs
from nsys_pp.units import NS_PER_DAY, NS_PER_US, format_count

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
    mode: ClockMode,
    offsets_ns: Mapping[str, int],
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
    machines = dict(roster.select("report", "machine").unique("report").iter_rows())
    names = sorted(set(machines.values()), key=natural_key)
    for machine, offset_ns in sorted(offsets_ns.items()):
        if machine not in names:
            listed = ", ".join(f"`{name}`" for name in names[:10])
            raise ClockError(f"there is no machine `{machine}`", f"the machines are {listed}")
        if abs(offset_ns) > _MOST_OFFSET_DAYS * NS_PER_DAY:
            raise ClockError(
                f"the offset of `{machine}` is more than {_MOST_OFFSET_DAYS} days", "write it as in `-1.2ms`"
            )
    order = sorted(range(len(inputs)), key=lambda row: order_of_path(inputs[row].part.source))
    aligned = align_clocks(
        [replace(inputs[row].identity.session, machine=machines[row]) for row in order],
        [inputs[row].part.frames["anchors"] for row in order],
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
    facts: dict[str, str] = {}
    has_groups = bool(describe_groups(alignment.clocks["group"]))
    names = alignment.clocks["machine"]
    several = set(names.filter(names.is_duplicated()))
    for row in alignment.clocks.iter_rows(named=True):
        name = row["machine"]
        if name in several:
            name += f".report{row['reports'][0]}"
        facts |= {
            f"clock.{name}.source": row["source"],
            **({f"clock.{name}.group": str(row["group"])} if has_groups else {}),
            f"clock.{name}.offset_ns": str(row["offset_ns"]),
            f"clock.{name}.drift_ppm": f"{row['drift_ppm']:.3f}",
            f"clock.{name}.bound_ns": "unknown" if row["bound_ns"] is None else str(row["bound_ns"]),
        }
    return facts


def find_unrelated(clocks: pl.DataFrame) -> Iterator[str]:
    """Describe machines that only recorded UTC relates to others.

    Args:
        clocks: `CLOCKS`, refined.

    Yields:
        Sentences; none where all machines share operations, directly or through others.
    """
    groups = clocks.group_by("group", maintain_order=True).agg("machine")["machine"].to_list()
    if clocks["machine"].n_unique() < 2 or len(groups) < 2:
        return
    if names := clocks.filter(source="UTC")["machine"].unique(maintain_order=True).to_list():
        yield (
            f"{_join_names(names)}: no operation is shared beyond doubt with other reports, so only recorded "
            "UTC places them;"
            " machines that keep time by NTP differ by some milliseconds, by PTP by microseconds"
        )
    tied = [_join_names(list(dict.fromkeys(group))) for group in groups if len(group) > 1]
    if len(tied) > 1:
        shown = "; ".join(tied[:4])
        yield f"{len(tied)} groups of clocks share nothing beyond doubt, only UTC relates them: {shown}"


def _join_names(names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in sorted(names, key=natural_key)[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _warn(inputs: Sequence[Input], alignment: Alignment, mode: ClockMode) -> None:
    sources = alignment.clocks["source"].to_list()
    for row in alignment.without_utc:
        if sources[alignment.clock_of[row]] == "nothing":  # else operations that it shares align it
            warnings.warn(
                f"`{inputs[row].path}` does not know its UTC: it is drawn from the start of the earliest"
                " report",
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


_Place: TypeAlias = "tuple[Any, ...]"  # rank, machine and GPU
_RANGE_IDS = 1 << 40  # more than a report has rows
_GAP = 2  # between the numbers of counted steps of two captures, so that they are not consecutive


_PROCESSES = pl.Schema(
    {
        "report": pl.UInt32,
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "first_key": pl.Int64,
        "first_id": pl.Int32,
    }
)


class Captures(Struct, frozen=True, kw_only=True):
    """Captures of the reports of a run.

    Attributes:
        first: Report of the first capture of the session of each report; of most reports, the report itself.
        order: Place of each report: captures of a session follow each other, in order of time.
        step_offset: Added to the steps of each report, which counts them from 0 in each capture.
        processes: Of processes that took the place of earlier ones: report, process_key, device_id, and
            first_key and first_id of the first of them, in the first report.
    """

    first: list[int]
    order: list[int]
    step_offset: list[int]
    processes: pl.DataFrame = field(default_factory=_PROCESSES.to_frame)

    @property
    def has_later(self) -> bool:
        """Whether a report is a later capture of the session of another one."""
        return self.first != list(range(len(self.first)))

    def list_reports(self, first: int) -> list[int]:
        """List the captures of a session, by the report of the first one, in order of time."""
        own = [report for report, of in enumerate(self.first) if of == first]
        return sorted(own, key=self.order.__getitem__)

    def join(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Replace the report of each row by the first capture of its session; steps and ids are unique there.

        Args:
            frame: Rows with `report`, in any order.

        Returns:
            The rows by report and capture, in their order otherwise.
        """
        if not self.has_later:
            return frame
        frame = self.replace_processes(frame)
        report = whole_numbers(frame["report"])
        by_capture = np.argsort(np.array(self.order)[report], kind="stable")
        report, frame = report[by_capture], index_rows(frame, by_capture)
        ids = np.array(self.order)[report] * _RANGE_IDS
        added = {"step": np.array(self.step_offset)[report], "range_id": ids, "outer_id": ids}
        return frame.with_columns(
            pl.Series("report", np.array(self.first, dtype=np.uint32)[report]),
            *(frame[name] + pl.Series("", added[name]) for name in added if name in frame.columns),
        )

    def replace_processes(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Replace the processes of a restart by those whose place they took; rows keep their order."""
        if self.processes.is_empty() or "process_key" not in frame.columns:
            return frame
        keys = [key for key in LANE_KEYS if key in frame.columns]
        places = self.processes if "device_id" in keys else self.processes.unique(keys, keep="first")
        placed = frame.join(
            places.select(*keys, "first_key", "first_id"), on=keys, how="left", maintain_order="left"
        )
        new = {"process_key": "first_key", "device_id": "first_id"}
        replaced = [pl.coalesce(new[key], key).alias(key) for key in new if key in keys]
        return placed.with_columns(replaced).drop("first_key", "first_id")

    def find_process(self, report: int, first_key: int, first_id: int) -> tuple[int, int]:
        """Find the process and device in a report that took the place of those in the first report."""
        found = (
            self.processes.filter(report=report, first_key=first_key, first_id=first_id)
            .select("process_key", "device_id")
            .rows()
        )
        return found[0] if found else (first_key, first_id)

    def list_windows(self, starts_ns: Sequence[int]) -> Iterator[tuple[int, int]]:
        """List the time of each report among the captures of its session.

        From its start to the start of the next capture.

        Args:
            starts_ns: Start of each report on the trace's clock.

        Yields:
            Start and end of each; the first capture also has all time before it, the last one all time after
            it.
        """
        for report, first in enumerate(self.first):
            own = self.list_reports(first) if self.has_later else [report]
            at = own.index(report)
            since = starts_ns[report] if at else int(NEVER)
            yield since, starts_ns[own[at + 1]] if at + 1 < len(own) else int(EVER)

    def restore_ids(self, jobs: pl.DataFrame) -> pl.DataFrame:
        """Replace `range_id` after `join` by the ids of the reports; null stays null."""
        return jobs.with_columns(pl.col("range_id") % _RANGE_IDS)


def find_captures(inputs: Sequence[Input], machines: Sequence[str]) -> Captures:
    """Find the reports that are captures of one nsys session.

    A later capture belongs to the first one of its session that has all of its GPU processes, unless the two
    overlap in time, or have steps of one number: then its rows keep their report.

    Args:
        inputs: Parts with steps.
        machines: Machine of each.
    """
    first, offset = list(range(len(inputs))), [0] * len(inputs)
    sessions = [recorded.identity.session for recorded in inputs]
    time = [session.utc_epoch_ns or 0 for session in sessions]
    processes = [
        set(recorded.identity.devices.select("process_key", "device_id").drop_nulls().iter_rows())
        for recorded in inputs
    ]
    for group in _list_sessions(sessions, machines):
        # of the captures that are joined, by the first one
        steps: dict[int, set[tuple[int, int, int]]] = {}
        joined: dict[int, list[Session]] = {}
        for report in sorted(group, key=lambda report: (time[report], report)):
            frame = inputs[report].part.frames["steps"]
            own = set(frame.select("process_key", "device_id", "step").drop_nulls().iter_rows())
            for earlier in steps:
                last = max((step for *_, step in steps[earlier]), default=-_GAP)
                added = 0 if frame["is_numbered"].any() else last + _GAP
                moved = {(process, device, step + added) for process, device, step in own}
                has_all = processes[report] and processes[report] <= processes[earlier]
                follows = all(share_session(other, sessions[report]) for other in joined[earlier])
                if has_all and follows and moved.isdisjoint(steps[earlier]):
                    first[report], offset[report] = earlier, added
                    steps[earlier] |= moved
                    joined[earlier].append(sessions[report])
                    break
            else:
                steps[report], joined[report] = own, [sessions[report]]
    return Captures(first=first, order=_place(first, time), step_offset=offset)


def join_restarts(captures: Captures, inputs: Sequence[Input], roster: pl.DataFrame) -> Captures:
    """Join the reports of processes that took the place of earlier ones: of the same ranks on the same GPUs.

    Their steps get numbers below those of the earlier ones where the numbers do not go on: they began again.

    Args:
        captures: From `find_captures`.
        inputs: Parts with steps.
        roster: `ROSTER` of them.
    """
    known = {at: time for at, one in enumerate(inputs) if (time := capture_window(one.identity.session))}
    # where ranks are known, other processes on their GPUs are none; without ranks, one GPU tells nothing
    has_rank = pl.col("rank").is_not_null()
    is_place = has_rank | (~has_rank.any() & (pl.col("gpu").n_unique() > 1)).over("report")
    place = ("rank", "machine", "gpu")
    is_own = ~pl.struct(place).is_duplicated().any().over("report")
    running = roster.drop_nulls("gpu").filter(is_place).filter(is_own)
    places: dict[int, dict[_Place, tuple[int, int]]] = {}
    for report, key, device, *where in running.select(*LANE_KEYS, *place).iter_rows():
        if report in known and captures.first[report] == report:
            places.setdefault(report, {})[tuple(where)] = (key, device)
    lives: dict[int, list[int]] = {}  # reports of the processes that follow each other, by the first of them
    head_of: dict[_Place, int] = {}
    for report in sorted(places, key=known.__getitem__):
        heads = {head_of.get(place, report) for place in places[report]}
        head = heads.pop() if len(heads) == 1 else report
        if head != report:
            reports = [one for life in lives[head] for one in captures.list_reports(life)]
            is_over = max(known[one][1] for one in reports if one in known) <= known[report][0]
            is_new = {*places[report].values()}.isdisjoint(places[head].values())
            head = head if is_over and is_new else report
        lives.setdefault(head, []).append(report)
        head_of |= dict.fromkeys(places[report], head)
    first, offset, taken = [*captures.first], [*captures.step_offset], []
    steps = [recorded.part.frames["steps"]["step"] + of for recorded, of in zip(inputs, offset, strict=True)]
    numbers = {
        life: whole_numbers(pl.concat(steps[one] for one in captures.list_reports(life)).drop_nulls())
        for life in places
    }
    is_again = any(
        numbers[life].min(initial=EVER) <= numbers[before].max(initial=NEVER)
        for own in lives.values()
        for before, life in pairwise(own)
    )
    for head, own in lives.items():
        for number, life in enumerate(own[1:], start=1):
            for one in captures.list_reports(life):
                first[one] = head
                offset[one] -= number * _RANGE_IDS if is_again else 0
                taken += [(one, *process, *places[head][place]) for place, process in places[life].items()]
    return Captures(
        first=first,
        order=_place(first, [known.get(report, (0, 0))[0] for report in range(len(inputs))]),
        step_offset=offset,
        processes=pl.DataFrame(taken, schema=_PROCESSES, orient="row"),
    )


def _place(first: Sequence[int], time: Sequence[int]) -> list[int]:
    """Return the place of each report: reports with one first report follow each other, in order of time."""
    placed = sorted(range(len(first)), key=lambda report: (first[report], time[report], report))
    place = {report: at for at, report in enumerate(placed)}
    return [place[report] for report in range(len(first))]


def _list_sessions(sessions: Sequence[Session], machines: Sequence[str]) -> list[list[int]]:
    recorded = [report for report, session in enumerate(sessions) if session.origin_ns is not None]
    recorded.sort(key=lambda report: (machines[report], sessions[report].origin_ns))
    groups = [recorded[:1]]
    for last, report in pairwise(recorded):
        if machines[last] == machines[report] and share_origin(sessions[last], sessions[report]):
            groups[-1].append(report)
        else:
            groups.append([report])
    return [group for group in groups if len(group) > 1]


_SPAN = ("start_ns", "end_ns")
_HOST = ("host_start_ns", "host_end_ns")
_TIMES = {  # columns on the report's clock; others are durations
    "jobs": (*_SPAN, *_HOST, "compute_start_ns", "compute_end_ns"),
    "steps": (*_SPAN, *_HOST, "first_op_ns", "last_op_ns"),
    "batches": _SPAN,
    "compute_segments": _SPAN,
    "waits": (*_SPAN, "need_start_ns", "need_end_ns"),
    "gaps": (*_SPAN, "launch_ns"),
    "messages": (*_SPAN, "launch_ns"),
    "anchors": _SPAN,
    "kernels": (),
    "overheads": (),
}


class NumberedSteps(Struct, frozen=True, kw_only=True):
    """Lanes of a run, and the numbers of its steps."""

    lanes: pl.DataFrame  # LANES
    steps: pl.DataFrame  # RUN_STEPS
    numbers: pl.DataFrame  # STEP_NUMBERS
    notes: list[str]
    frames: Mapping[str, pl.DataFrame]  # those of `GATHERED_FRAMES` that they are made of
    is_inferred: bool  # some jobs are inferred


def number_run(
    inputs: Sequence[Input],
    roster: pl.DataFrame,
    clocks: Clocks,
    captures: Captures,
    *,
    infer_jobs: bool = False,
) -> NumberedSteps:
    """Find the lanes of all reports and number the steps of the run.

    Args:
        inputs: Parts with the frames of `GATHERED_FRAMES`.
        roster: `ROSTER` of them.
        clocks: Clocks of them.
        captures: From `find_captures`.
        infer_jobs: Infer jobs from the ranges of messages where no range is a job.
    """
    frames = _gather(inputs, clocks, ("jobs", "steps", "messages"), captures)
    # jobs that reports infer between ranges of messages are dropped, unless they are requested and all GPUs
    # have them
    is_inferred = pl.col("range_id").is_null() & pl.col("name").is_null()
    ran = frames["jobs"].filter(pl.col("device_id").is_not_null())
    lanes, inferred = (part.select(LANE_KEYS).unique().height for part in (ran, ran.filter(is_inferred)))
    has_inferred = infer_jobs and lanes == inferred > 0
    if inferred and not has_inferred:
        frames["jobs"] = frames["jobs"].filter(~is_inferred)
    bounds = (
        clocks.table.with_row_index("clock")
        .select("clock", report="reports", clock_group="group", bound_ns="bound_ns")
        .explode("report")
    )
    placed = (
        roster.join(bounds, on="report", how="left", maintain_order="left")
        .filter(pl.col("report").is_in([report for report, of in enumerate(captures.first) if of == report]))
        .pipe(conform, ROSTER_WITH_BOUNDS)
    )
    lanes_found, notes = build_lanes(placed, frames["jobs"], frames["steps"], frames["messages"])
    steps = _assign_lanes("steps", frames["steps"], lanes_found)
    if len(captures.processes) and lanes_found["rank"].has_nulls():
        notes.append("GPUs have new processes, as after a restart: each has one row of all of them")
    # where processes began again, numbers in names are of several steps
    is_again = min(captures.step_offset, default=0) < 0
    named = steps.with_columns(is_numbered=pl.lit(value=False)) if is_again else steps
    numbers = number_steps(named, lanes_found)
    return NumberedSteps(
        lanes=lanes_found,
        steps=renumber_steps(steps, numbers).drop_nulls("step").sort("step", "lane").pipe(conform, RUN_STEPS),
        numbers=numbers,
        notes=notes,
        frames=frames,
        is_inferred=has_inferred,
    )


def find_training(
    inputs: Sequence[Input],
    clocks: Clocks,
    captures: Captures,
    numbered: NumberedSteps,
    *,
    schedule: str | None = None,
    steps: StepWindow | None = None,
    infer_jobs: bool = False,
) -> Training:
    """Join the training frames of all reports.

    Args:
        inputs: Parts with the frames of `GATHERED_FRAMES`.
        clocks: Clocks of them.
        captures: From `find_captures`.
        numbered: From `number_run`.
        schedule: Name of the pipeline schedule; None: recognised.
        steps: Include only these steps.
        infer_jobs: Infer jobs from the ranges of messages where no range is a job.

    Raises:
        NsysPPError: `steps` contains none of the steps.
    """
    lanes, run_steps = numbered.lanes, numbered.steps
    others = [name for name in GATHERED_FRAMES if name not in numbered.frames]
    frames = {**numbered.frames, **_gather(inputs, clocks, others, captures)}
    by_lane = {name: _assign_lanes(name, frame, lanes) for name, frame in frames.items()}
    restarts = describe_restart(by_lane["steps"], numbered.numbers)
    by_lane |= {
        name: renumber_steps(frame, numbered.numbers)
        for name, frame in by_lane.items()
        if name not in ("steps", "anchors")
    }
    pauses = _list_pauses(inputs, clocks, captures, lanes)
    coverage = measure_coverage(lanes, by_lane["steps"], by_lane["compute_segments"], pauses)
    jobs, unknown = resolve_jobs(lanes, run_steps, by_lane["jobs"], schedule_name=schedule)
    transfers, unpaired = pair_messages(lanes=lanes, messages=by_lane["messages"], steps=run_steps, jobs=jobs)
    if steps is not None:  # all steps together show the peers of messages
        coverage = coverage.clear()  # what chosen steps leave out is no fact of the run
        is_selected = select_steps(run_steps, steps)
        run_steps, transfers = run_steps.filter(is_selected), transfers.filter(is_selected)
        by_lane |= {
            name: frame.filter(is_selected) for name, frame in by_lane.items() if "step" in frame.columns
        }
        jobs, unknown = resolve_jobs(lanes, run_steps, by_lane["jobs"], schedule_name=schedule)
    if lanes.height == 1:  # its order is that of one stage, and nothing depends on it
        unknown.clear()
    jobs = captures.restore_ids(jobs)
    if numbered.is_inferred:
        jobs = jobs.with_columns(is_inferred=pl.col("is_inferred") | pl.col("range_id").is_null())
        unknown.append(
            "no range is a forward or a backward: jobs are the launches between the ranges of messages"
        )
    elif infer_jobs and not jobs["kind"].is_in(SCHEDULED_KINDS).any():
        unknown.append("jobs cannot be inferred: not every GPU has ranges of its sends and receives")
    recognised = recognise_schedule(lanes, run_steps, jobs, schedule_name=schedule)
    recognised, uncertain = doubt_schedule(recognised, jobs, by_lane["compute_segments"])
    jobs = label_jobs(jobs, lanes, recognised)
    ideal, impossible = build_ideal(lanes, run_steps, jobs, recognised)
    presets = [recorded.part.facts.preset for recorded in inputs]
    return Training(
        lanes=lanes,
        steps=run_steps,
        jobs=jobs,
        transfers=transfers,
        lane_states=build_lane_states(
            lanes=lanes,
            steps=run_steps,
            jobs=jobs,
            data_jobs=_data_jobs(frames["jobs"], lanes),
            transfers=transfers,
            **{name: by_lane[name] for name in ("compute_segments", "waits", "messages", "anchors")},
        ),
        cover=measure_cover(steps=run_steps, compute_segments=by_lane["compute_segments"]),
        coverage=coverage,
        ideal=ideal,
        **{name: by_lane[name] for name in ("anchors", "batches", "gaps", "kernels", "overheads")},
        losses=tuple(
            Loss(report=captures.first[number], text=text.removeprefix(LOSS).removeprefix(NO_KERNEL))
            for number, recorded in enumerate(inputs)
            for text in recorded.part.facts.data_warnings
            if text.startswith((LOSS, NO_KERNEL))
        ),
        schedule=recognised,
        preset=max(presets, key=lambda preset: (preset != "", presets.count(preset))),
        zero_ns=clocks.zero_ns,
        notes=[
            *numbered.notes,
            *restarts,
            *describe_sources(by_lane["steps"], lanes),
            *(
                f"{groups}: waits and transfers of messages, spans of steps and critical paths across groups"
                " are unknown"
                for groups in [describe_groups(lanes["clock_group"])]
                if groups
            ),
            *describe_cuts(run_steps),
            *(
                f"{format_count(count, 'backward')} without a range: what is launched between a forward and"
                f" the optimizer after it (`{BY_POSITION}`)"
                for count in [jobs.filter(pl.col("name") == BY_POSITION).height]
                if count
            ),
            *unknown,
            *unpaired,
            *uncertain,
            *impossible,
            *_note_rules(inputs),
        ],
    )


def _list_pauses(
    inputs: Sequence[Input], clocks: Clocks, captures: Captures, lanes: pl.DataFrame
) -> pl.DataFrame:
    """List the times between the captures of each lane (`PAUSES`)."""
    rows: list[tuple[int, int, int]] = []
    for lane, first in lanes.select("lane", "report").rows() if captures.has_later else ():
        sessions = [(at, inputs[at].identity.session) for at in captures.list_reports(first)]
        windows = [
            clocks.clocks[at].to_trace(np.array([session.time_shift_ns, session.capture_end_ns]))
            for at, session in sessions
            if session.capture_end_ns is not None
        ]
        rows += [(lane, int(one[1]), int(after[0])) for one, after in pairwise(windows) if after[0] > one[1]]
    return pl.DataFrame(rows, schema=PAUSES, orient="row")


def select_steps(steps: pl.DataFrame, window: StepWindow) -> pl.Expr:
    """Return the mask of rows with a `step` in a window.

    Args:
        steps: `RUN_STEPS`.
        window: Steps of [first, last).

    Raises:
        NsysPPError: It contains none of the steps.
    """
    first, last = window
    is_selected = pl.col("step").is_not_null()
    if first is not None:
        is_selected &= pl.col("step") >= first
    if last is not None:
        is_selected &= pl.col("step") < last
    if steps.filter(is_selected).is_empty():
        numbers = steps["step"].unique().sort().to_list()
        raise NsysPPError(
            f"no step is in `{format_window(window)}`",
            f"the steps of these reports are {numbers[0]} to {numbers[-1]}"
            if numbers
            else "only processes with GPU work have steps (docs/presets.md)",
        )
    return is_selected


def _assign_lanes(name: str, frame: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """Replace report, process and device of each row by its lane; rows without a lane are dropped."""
    keys = lanes.select("lane", *LANE_KEYS)
    by_lane = frame.join(keys, on=LANE_KEYS, how="inner", maintain_order="left").drop(LANE_KEYS)
    # in one chunk: many small ones, one per report, are slow to scan repeatedly
    return conform(by_lane.rechunk(), LANE_FRAMES[name])


def _gather(
    inputs: Sequence[Input], clocks: Clocks, names: Iterable[str], captures: Captures
) -> dict[str, pl.DataFrame]:
    """Concatenate the frames of all reports on the trace's clock, with a column `report`.

    Captures of a session are joined.
    """
    gathered = {}
    for name in names:
        frame, sizes = concat_frames([recorded.part.frames for recorded in inputs], name)
        report = pl.Series("report", np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes))
        moved = []
        for times in (frame[column] for column in _TIMES[name]):  # null stays null
            by_report = np.split(times.fill_null(0).to_numpy(), np.cumsum(sizes)[:-1])
            on_trace = [clock.to_trace(part) for clock, part in zip(clocks.clocks, by_report, strict=True)]
            moved.append(pl.Series(times.name, np.concatenate(on_trace)).set(times.is_null(), None))
        frame = captures.join(frame.with_columns(*moved, report))
        gathered[name] = conform(frame, GATHERED_FRAMES[name])
    return gathered


def _data_jobs(jobs: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """List the intervals of loading data on the host of each lane: lane, host_start_ns, host_end_ns.

    Only those of threads with other jobs delay launches: another thread loads the next batch meanwhile. They
    delay the GPUs of these jobs, all GPUs of the process where these launched nothing.
    """
    process = ["report", "process_key"]
    thread = [*process, "thread_key"]
    is_data = pl.col("kind") == "data"
    loading = jobs[[*thread, *_HOST, "kind"]].filter(is_data).unique()
    working = jobs[[*thread, "device_id", "kind"]].filter(~is_data).drop("kind").unique()
    own = working.drop_nulls("device_id")
    others = working.join(own, on=thread, how="anti").drop("device_id")
    delayed = pl.concat(
        [
            lanes.join(own, on=[*process, "device_id"]).select("lane", *thread),
            lanes.join(others, on=process).select("lane", *thread),
        ]
    )
    return loading.join(delayed, on=thread).select("lane", *_HOST)


def _note_rules(inputs: Sequence[Input]) -> list[str]:
    """Describe different presets of the reports, and patterns that match no range of any report."""
    presets = [recorded.part.facts.preset for recorded in inputs]
    names, notes = sorted(set(presets) - {""}), []
    if len(names) > 1:
        counts = ", ".join(f"`{name}` in {presets.count(name):,}" for name in names)
        notes.append(
            f"reports name their jobs by different presets ({counts}): `--preset` says which is right"
        )
    first, *others = (recorded.part.facts.unmatched for recorded in inputs)
    unmatched = [option for option in first if all(option in names for names in others)]
    return [*notes, *(f"`{option}` fits no range" for option in unmatched)]


class Run:
    """All reports of a training.

    Nothing is read before it is used: `inputs` reads the reports, `roster` and `clocks` need the inputs,
    `training` needs all of these.

    Args:
        batch: Batch of the inputs.
        options: Keywords.
        read: Reads the inputs of the run; called once.
        last_stage: Last stage that the command uses: with `keep_going`, inputs that show a defect in it are
            left out.

    Raises:
        OptionError: A value is invalid.
    """

    def __init__(
        self,
        batch: Batch,
        options: RunOptions,
        *,
        read: Callable[[Run], Sequence[Input]],
        last_stage: Literal["clocks", "numbered_steps", "training"] = "training",
    ) -> None:
        self._last_stage = last_stage
        self.batch = batch
        self.steps = parse_steps(options.get("steps"))
        self._layout = parse_run_layout(options.get("layout"))
        self._rank_from = parse_rank_from(options.get("rank_from"))
        self._clock = options.get("clock", "collectives")
        self._offsets_ns = parse_offsets(options.get("offsets"))
        self._schedule = options.get("schedule")
        self._infer_jobs = options.get("infer_jobs", False)
        self._read = read
        self.job_options = parse_job_options(options)

    def __repr__(self) -> str:
        """Return the number of inputs, if they are read."""
        return f"Run({len(self.__dict__.get('inputs', self.batch.inputs))} inputs)"

    @cached_property
    def inputs(self) -> list[Input]:
        """Inputs in order, one for each recording; warns of reports with reasons to doubt their events.

        With `keep_going`, those that show a defect in a later stage are left out.

        Raises:
            ReportError: An input cannot be read, two are the same recording, or two cannot be of one run.
        """
        read = self._read(self)
        doubtful = group_pairs(  # reports by the reason to doubt some of their events
            (text, recorded.path) for recorded in read for text in recorded.part.facts.data_warnings
        )
        for text, paths in doubtful.items():
            warnings.warn(text.replace(REPORT, name_paths(paths)), stacklevel=4)
        report_progress(self.batch.progress, "aligning reports", 1)
        inputs = drop_strangers(
            drop_repeated(read, self.batch),
            self.batch,
            rank_from=self._rank_from,
            offsets_ns=self._offsets_ns,
        )
        if not self.batch.keeps_going:
            return inputs
        tried = self

        def work(some: Sequence[Input]) -> None:
            nonlocal tried
            tried = copy(self)
            tried.__dict__["inputs"] = list(some)
            getattr(tried, self._last_stage)

        kept = leave_out_odd(inputs, work, lambda odd, error: self.batch.skip(odd.path, error))
        self.__dict__.update(tried.__dict__)  # its stages are computed already
        return kept

    @cached_property
    def row_counts(self) -> pl.DataFrame:
        """Rows of all reports: read, used, and left out by reason (`RUN_ROW_COUNTS`)."""
        return collect_row_counts(
            {recorded.path: recorded.part.frames["row_counts"] for recorded in self.inputs}
        )

    @cached_property
    def roster(self) -> pl.DataFrame:
        """Machines, GPUs, ranks and stages of all reports (`ROSTER`); warns of inconsistencies.

        Raises:
            NsysPPError: A rank exceeds the layout, or `rank_from` matches no file name.
        """
        return build_run_roster(
            [recorded.identity for recorded in self.inputs],
            layout=self._layout,
            rank_from=self._rank_from,
            offsets_ns=self._offsets_ns,
        )

    @cached_property
    def clocks(self) -> Clocks:
        """Clocks of all reports, aligned; warns of clocks that cannot be compared with others.

        Raises:
            ClockError: An offset is of an unknown machine, or of years.
        """
        return align_inputs(self.inputs, self.roster, mode=self._clock, offsets_ns=self._offsets_ns)

    @cached_property
    def captures(self) -> Captures:
        """Reports that are captures of one nsys session, or of processes that a restart replaced.

        Their processes have a lane each, with the first report.
        """
        machines = dict(self.roster.select("report", "machine").iter_rows())
        found = find_captures(self.inputs, [machines.get(report, "") for report in range(len(self.inputs))])
        return join_restarts(found, self.inputs, self.roster)

    @cached_property
    def numbered_steps(self) -> NumberedSteps:
        """Lanes and steps of all reports, without the rest of the training."""
        return number_run(self.inputs, self.roster, self.clocks, self.captures, infer_jobs=self._infer_jobs)

    @cached_property
    def training(self) -> Training:
        """Training of all reports.

        Raises:
            NsysPPError: `steps` contains none of the steps.
        """
        numbered = self.numbered_steps
        report_progress(self.batch.progress, "finding the causes of bubbles", 1)
        return find_training(
            self.inputs,
            self.clocks,
            self.captures,
            numbered,
            schedule=self._schedule,
            steps=self.steps,
            infer_jobs=self._infer_jobs,
        )

    @cached_property
    def capture_windows(self) -> list[tuple[int, int]]:
        """Start and end of each report among the captures of its session, on the trace's clock."""
        starts = [
            recorded.identity.session.time_shift_ns + int(clock.offset_ns[0])
            for recorded, clock in zip(self.inputs, self.clocks.clocks, strict=True)
        ]
        return [*self.captures.list_windows(starts)]

    @cached_property
    def staged_roster(self) -> pl.DataFrame:
        """`roster` with the stages of the training's lanes where it has none."""
        keys = ["process_key", "device_id"]
        first = pl.Series("first", self.captures.first, dtype=pl.UInt32)
        stages = self.training.lanes.select(*keys, "stage", "stage_source", first="report")
        roster = self.captures.replace_processes(self.roster)
        roster = roster.with_columns(first=first.gather(roster["report"])).join(
            stages, on=["first", *keys], how="left", maintain_order="left", suffix="_of_lane"
        )
        filled = [pl.coalesce(name, f"{name}_of_lane").alias(name) for name in ("stage", "stage_source")]
        return roster.with_columns(*filled, *self.roster.select(keys)).select(self.roster.columns)

    @property
    def skipped(self) -> Skipped:
        """Skipped inputs, each with its error."""
        return self.batch.skipped


def build_run_roster(
    identities: Sequence[Identity],
    *,
    layout: Layout | None,
    rank_from: str | None,
    offsets_ns: Mapping[str, int] | None = None,
) -> pl.DataFrame:
    """Build the roster of all reports (`ROSTER`); warns of inconsistencies.

    Raises:
        NsysPPError: A rank exceeds the layout, or `rank_from` matches no file name.
    """
    roster = build_roster(identities, layout=layout, rank_from=rank_from)
    for sentence in find_inconsistencies(identities, roster, layout=layout, offsets_ns=offsets_ns):
        warnings.warn(sentence, stacklevel=4)
    return roster

"""Captures of one nsys session: reports that follow each other in time, whose processes are the same lanes.

`nsys profile --capture-range-end=repeat` writes a report per capture. Rows of later captures get the report of the
first one, so that a process has one lane, one stage, and one list of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import fill_null, index_rows, keep_rows, numbers, set_column, whole_numbers
from nsys_pp.arrays.series import build_column
from nsys_pp.errors import NsysPPError
from nsys_pp.frames.clock import Clock, describe_groups
from nsys_pp.frames.columns import select_columns
from nsys_pp.frames.conform import conform
from nsys_pp.frames.part import pick_losses
from nsys_pp.frames.report import Session
from nsys_pp.frames.roster import share_origin, share_session
from nsys_pp.frames.training import (
    GATHERED_FRAMES,
    LANE_FRAMES,
    LANE_KEYS,
    ROSTER_WITH_BOUNDS,
    SCHEDULED_KINDS,
    Loss,
    Training,
)
from nsys_pp.read.parts import concat_frames
from nsys_pp.run.clocks import Clocks
from nsys_pp.run.inputs import Input
from nsys_pp.run.options import StepWindow
from nsys_pp.training.causes import build_lane_states, measure_cover
from nsys_pp.training.ideal import build_ideal
from nsys_pp.training.inferred_jobs import reconstruct_jobs
from nsys_pp.training.lanes import build_lanes
from nsys_pp.training.numbering import (
    describe_cuts,
    describe_phases,
    describe_restart,
    describe_sources,
    join_steps,
    number_steps,
    renumber_steps,
)
from nsys_pp.training.schedule import doubt_schedule, label_jobs, recognise_schedule, resolve_jobs
from nsys_pp.training.transfers import pair_messages

_Step: TypeAlias = "tuple[int, int, int]"  # process, device and step
_EVER = 1 << 62  # no time is as large
_RANGE_IDS = 1 << 40  # more than a report has rows
_GAP = 2  # between the numbers of counted steps of two captures, so that they are not consecutive


class Captures(Struct, frozen=True, kw_only=True):
    """Captures of the reports of a run.

    Attributes:
        first: Report of the first capture of the session of each report; of most reports, the report itself.
        order: Place of each report: captures of a session follow each other, in order of time.
        step_offset: Added to the steps of each report, which counts them from 0 in each capture.
    """

    first: list[int]
    order: list[int]
    step_offset: list[int]

    @property
    def has_later(self) -> bool:
        """Whether a report is a later capture of the session of another one."""
        return self.first != list(range(len(self.first)))

    def list_reports(self, first: int) -> list[int]:
        """List the captures of a session, by the report of the first one, in order of time."""
        own = [report for report, of in enumerate(self.first) if of == first]
        return sorted(own, key=self.order.__getitem__)

    def join(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Replace the report of each row by the first capture of its session, with steps and ids that are unique there.

        Args:
            frame: Rows with `report`, in any order.

        Returns:
            The rows by report and capture, in their order otherwise.
        """
        if not self.has_later:
            return frame
        report = whole_numbers(frame["report"])
        by_capture = np.argsort(np.array(self.order)[report], kind="stable")
        report, frame = report[by_capture], index_rows(frame, by_capture)
        ids = np.array(self.order)[report] * _RANGE_IDS
        added = {"step": np.array(self.step_offset)[report], "range_id": ids, "outer_id": ids}
        return frame.with_columns(
            build_column("report", np.array(self.first, dtype=np.uint32)[report]),
            *(frame[name] + build_column("", added[name]) for name in added if name in frame.columns),
        )

    def list_windows(self, starts_ns: Sequence[int]) -> list[tuple[int, int]]:
        """List the time of each report among the captures of its session: from its start to the start of the next capture.

        Args:
            starts_ns: Start of each report on the trace's clock.

        Returns:
            Start and end of each; the first capture also has all time before it, the last one all time after it.
        """
        windows = [(-_EVER, _EVER)] * len(self.first)
        for report, first in enumerate(self.first):
            own = self.list_reports(first) if self.has_later else [report]
            at = own.index(report)
            since = starts_ns[report] if at else -_EVER
            windows[report] = (since, starts_ns[own[at + 1]] if at + 1 < len(own) else _EVER)
        return windows

    def restore_ids(self, jobs: pl.DataFrame) -> pl.DataFrame:
        """Replace `range_id` after `join` by the ids of the reports; null stays null."""
        return jobs.with_columns(pl.col("range_id") % _RANGE_IDS) if self.has_later else jobs


def find_captures(inputs: Sequence[Input], machines: Sequence[str]) -> Captures:
    """Find the reports that are captures of one nsys session.

    A later capture belongs to the first one of its session that has all of its GPU processes, unless the two overlap in time, or
    have steps of one number: then its rows keep their report.

    Args:
        inputs: Parts with steps.
        machines: Machine of each.
    """
    first, offset = list(range(len(inputs))), [0] * len(inputs)
    time = [recorded.identity.session.utc_epoch_ns or 0 for recorded in inputs]
    for session in _list_sessions(inputs, machines):
        # of the captures that are joined, by the first one
        steps: dict[int, set[_Step]] = {}
        joined: dict[int, list[Session]] = {}
        for report in sorted(session, key=lambda report: (time[report], report)):
            keys, facts = _list_processes(inputs[report]), inputs[report].identity.session
            own, is_numbered = _list_steps(inputs[report])
            for earlier in steps:
                last = max((step for *_, step in steps[earlier]), default=-_GAP)
                added = 0 if is_numbered else last + _GAP
                moved = {(process, device, step + added) for process, device, step in own}
                has_all = keys and keys <= _list_processes(inputs[earlier])
                follows = all(share_session(other, facts) for other in joined[earlier])
                if has_all and follows and moved.isdisjoint(steps[earlier]):
                    first[report], offset[report] = earlier, added
                    steps[earlier] |= moved
                    joined[earlier].append(facts)
                    break
            else:
                steps[report], joined[report] = own, [facts]
    placed = sorted(range(len(inputs)), key=lambda report: (first[report], time[report], report))
    place = dict(zip(placed, range(len(inputs)), strict=True))
    return Captures(first=first, order=[place[report] for report in range(len(inputs))], step_offset=offset)


def _list_sessions(inputs: Sequence[Input], machines: Sequence[str]) -> list[list[int]]:
    """List the nsys sessions with several reports, each by its reports."""
    recorded = [report for report, one in enumerate(inputs) if one.identity.session.origin_ns is not None]
    recorded.sort(key=lambda report: (machines[report], inputs[report].identity.session.origin_ns))
    groups: list[list[int]] = []
    for report in recorded:
        before = groups[-1][-1] if groups else None
        if (
            before is not None
            and machines[before] == machines[report]
            and share_origin(inputs[before].identity.session, inputs[report].identity.session)
        ):
            groups[-1].append(report)
        else:
            groups.append([report])
    return [group for group in groups if len(group) > 1]


def _list_processes(recorded: Input) -> set[tuple[int, int]]:
    """List the GPU processes of a report: process and device."""
    devices = recorded.identity.devices
    return set(devices.select("process_key", "device_id").drop_nulls().iter_rows())


def _list_steps(recorded: Input) -> tuple[set[_Step], bool]:
    """List the steps of a report, and whether any number is from a name."""
    steps = recorded.part.frames["steps"]
    listed = steps.select("process_key", "device_id", "step").drop_nulls()
    return set(listed.iter_rows()), bool(steps["is_numbered"].any())


_SPAN = ("start_ns", "end_ns")
_HOST = ("host_start_ns", "host_end_ns")
_TIMES = {  # columns on the report's clock; others are durations
    "jobs": (*_SPAN, *_HOST, "compute_start_ns", "compute_end_ns"),
    "steps": (*_SPAN, *_HOST),
    "batches": _SPAN,
    "phases": _SPAN,
    "compute_segments": _SPAN,
    "waits": (*_SPAN, "need_start_ns", "need_end_ns"),
    "gaps": (*_SPAN, "launch_ns"),
    "messages": (*_SPAN, "launch_ns"),
    "anchors": _SPAN,
    "kernels": (),
    "overheads": (),
}
_BY_STEP = (
    "batches",
    "phases",
    "jobs",
    "compute_segments",
    "waits",
    "gaps",
    "messages",
    "kernels",
    "overheads",
)
_AS_RECORDED = ("batches", "phases", "gaps", "kernels", "overheads")  # frames of a training
_NOT_INFERRED = "jobs cannot be inferred from messages"
_BETWEEN_RANGES = "no range is a forward or a backward: jobs are the launches between the ranges of messages"
_INFERRED = "no range tells jobs: all are inferred from the cadence of messages, and none is certain"


class NumberedSteps(Struct, frozen=True, kw_only=True):
    """Lanes of a run, and the numbers of its steps."""

    lanes: pl.DataFrame  # LANES
    steps: pl.DataFrame  # RUN_STEPS
    numbers: pl.DataFrame  # STEP_NUMBERS
    notes: list[str]


def find_training(
    inputs: Sequence[Input],
    roster: pl.DataFrame,
    clocks: Clocks,
    captures: Captures,
    *,
    schedule: str | None = None,
    steps: StepWindow | None = None,
    infer_jobs: bool = False,
) -> Training:
    """Join the training frames of all reports.

    Args:
        inputs: Parts with the frames of `GATHERED_FRAMES`.
        roster: `ROSTER` of them.
        clocks: Clocks of them.
        captures: From `find_run_captures`.
        schedule: Name of the pipeline schedule; None: recognised.
        steps: Include only these steps.
        infer_jobs: Infer jobs from messages where no range is a job.

    Raises:
        NsysPPError: `steps` contains none of the steps.
    """
    frames = _gather(inputs, clocks, GATHERED_FRAMES, captures)
    frames["jobs"], is_inferred = _choose_jobs(frames["jobs"], infer_jobs=infer_jobs)
    lanes, notes = _find_lanes(roster, clocks, frames, captures)
    by_lane = {name: _assign_lanes(name, frame, lanes) for name, frame in frames.items()}
    numbers = number_steps(by_lane["steps"])
    notes += describe_restart(by_lane["steps"], numbers)
    by_lane |= {name: renumber_steps(by_lane[name], numbers) for name in _BY_STEP}
    run_steps = join_steps(by_lane["steps"], numbers)
    if steps is not None:
        run_steps, by_lane = _filter_steps(run_steps, by_lane, steps)
    jobs, unknown = resolve_jobs(lanes, run_steps, by_lane["jobs"], schedule_name=schedule)
    jobs = captures.restore_ids(jobs)
    transfers, unpaired = pair_messages(lanes=lanes, messages=by_lane["messages"], steps=run_steps, jobs=jobs)
    if is_inferred:
        jobs = jobs.with_columns(is_inferred=pl.col("is_inferred") | pl.col("range_id").is_null())
        unknown.append(_BETWEEN_RANGES)
    elif infer_jobs and not jobs["kind"].is_in(SCHEDULED_KINDS).any():
        inferred, reason = reconstruct_jobs(
            lanes=lanes, steps=run_steps, compute_segments=by_lane["compute_segments"], transfers=transfers
        )
        jobs = jobs if reason else inferred
        unknown.append(f"{_NOT_INFERRED}: {reason}" if reason else _INFERRED)
    recognised = recognise_schedule(lanes, run_steps, jobs, schedule_name=schedule)
    recognised, uncertain = doubt_schedule(recognised, jobs, by_lane["compute_segments"])
    jobs = label_jobs(jobs, lanes, recognised)
    lane_states = build_lane_states(
        lanes=lanes,
        steps=run_steps,
        jobs=jobs,
        data_jobs=_data_jobs(frames["jobs"], lanes),
        transfers=transfers,
        **{name: by_lane[name] for name in ("compute_segments", "waits", "anchors")},
    )
    ideal, impossible = build_ideal(lanes, run_steps, jobs, recognised)
    presets = [recorded.part.facts.preset for recorded in inputs]
    return Training(
        lanes=lanes,
        steps=run_steps,
        jobs=jobs,
        transfers=transfers,
        lane_states=lane_states,
        cover=measure_cover(steps=run_steps, compute_segments=by_lane["compute_segments"]),
        ideal=ideal,
        **{name: by_lane[name] for name in _AS_RECORDED},
        losses=_list_losses(inputs, captures),
        schedule=recognised,
        preset=max(presets, key=lambda preset: (preset != "", presets.count(preset))),
        zero_ns=clocks.zero_ns,
        notes=[
            *notes,
            *_note_steps(by_lane, lanes),
            *describe_cuts(run_steps),
            *unknown,
            *unpaired,
            *uncertain,
            *impossible,
            *_note_rules(inputs, presets),
        ],
    )


def number_run(
    inputs: Sequence[Input], roster: pl.DataFrame, clocks: Clocks, captures: Captures
) -> NumberedSteps:
    """Find the lanes of all reports and number the steps of the run; arguments as in `find_training`."""
    frames = _gather(inputs, clocks, ("jobs", "steps", "messages"), captures)
    frames["jobs"], _ = _choose_jobs(frames["jobs"], infer_jobs=False)
    lanes, notes = _find_lanes(roster, clocks, frames, captures)
    steps = _assign_lanes("steps", frames["steps"], lanes)
    numbers = number_steps(steps)
    return NumberedSteps(lanes=lanes, steps=join_steps(steps, numbers), numbers=numbers, notes=notes)


def find_run_captures(inputs: Sequence[Input], roster: pl.DataFrame) -> Captures:
    """Find the reports that are captures of one nsys session; arguments as in `find_training`."""
    machines = dict(roster.select("report", "machine").iter_rows())
    return find_captures(inputs, [machines.get(report, "") for report in range(len(inputs))])


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
        asked = f"{'' if first is None else first}:{'' if last is None else last}"
        numbers = steps["step"].unique().sort().to_list()
        hint = "steps are known of processes that ran something on a GPU (docs/presets.md)"
        if numbers:
            hint = f"the steps of these reports are {numbers[0]} to {numbers[-1]}"
        raise NsysPPError(f"no step is in `--steps {asked}`", hint)
    return is_selected


def _choose_jobs(jobs: pl.DataFrame, *, infer_jobs: bool) -> tuple[pl.DataFrame, bool]:
    """Drop the jobs that reports infer between ranges of messages, unless they are requested and all GPUs have them.

    Returns:
        `GATHERED_FRAMES`: jobs; whether some are inferred.
    """
    if not jobs["range_id"].null_count():
        return jobs, False
    is_inferred = pl.col("range_id").is_null()
    ran = jobs.filter(pl.col("device_id").is_not_null())
    lanes, inferred = (part.select(LANE_KEYS).unique().height for part in (ran, ran.filter(is_inferred)))
    if not inferred:
        return jobs, False
    if infer_jobs and lanes == inferred:
        return jobs, True
    return jobs.filter(~is_inferred), False


def _find_lanes(
    roster: pl.DataFrame, clocks: Clocks, frames: Mapping[str, pl.DataFrame], captures: Captures
) -> tuple[pl.DataFrame, list[str]]:
    """List the lanes (`LANES`), with notes on their stages."""
    bounds = (
        clocks.table.with_row_index("clock")
        .select("clock", report="reports", clock_group="group", bound_ns="bound_ns")
        .explode("report")
    )
    roster = roster.join(bounds, on="report", how="left", maintain_order="left")
    first = [report for report, of in enumerate(captures.first) if of == report]
    roster = roster.filter(pl.col("report").is_in(first))
    return build_lanes(
        conform(roster, ROSTER_WITH_BOUNDS), frames["jobs"], frames["steps"], frames["messages"]
    )


def _assign_lanes(name: str, frame: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """Replace report, process and device of each row by its lane; rows without a lane are dropped."""
    report, process, device = (numbers(frame[name]) for name in LANE_KEYS)
    lane = np.full(len(frame), -1)
    of_lane = whole_numbers(lanes["report"])
    firsts, stops = (np.searchsorted(report, of_lane + end).tolist() for end in (0, 1))  # by report
    for number, own_process, own_device, first, stop in zip(
        *(lanes[name].to_list() for name in ("lane", *LANE_KEYS[1:])), firsts, stops, strict=True
    ):
        is_own = (process[first:stop] == own_process) & (device[first:stop] == own_device)
        lane[first:stop][is_own] = number
    has_lane = lane >= 0
    kept = select_columns(frame, [name for name in frame.columns if name not in LANE_KEYS])
    if not has_lane.all():
        kept = keep_rows(kept, has_lane)
    # in one chunk: many small ones, one per report, are slow to scan repeatedly
    by_lane = kept.rechunk().hstack([build_column("lane", lane[has_lane].astype(np.uint32))])
    return conform(by_lane, LANE_FRAMES[name])


def _gather(
    inputs: Sequence[Input], clocks: Clocks, names: Iterable[str], captures: Captures
) -> dict[str, pl.DataFrame]:
    """Concatenate the frames of all reports on the trace's clock, with a column `report`; captures of a session are joined."""
    gathered = {}
    for name in names:
        frame, sizes = concat_frames([recorded.part.frames for recorded in inputs], name)
        report = build_column("report", np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes))
        for column in _TIMES[name]:
            frame = set_column(frame, _move(frame[column], sizes, clocks.clocks))
        gathered[name] = conform(captures.join(frame.hstack([report])), GATHERED_FRAMES[name])
    return gathered


def _filter_steps(
    steps: pl.DataFrame, by_lane: dict[str, pl.DataFrame], window: StepWindow
) -> tuple[pl.DataFrame, dict[str, pl.DataFrame]]:
    """Keep the rows of the steps in a window.

    Raises:
        NsysPPError: It contains none of the steps.
    """
    is_selected = select_steps(steps, window)
    kept = {
        name: frame.filter(is_selected) if "step" in frame.columns else frame
        for name, frame in by_lane.items()
    }
    return steps.filter(is_selected), kept


def _data_jobs(jobs: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """List the intervals of loading data on the host of each lane: lane, host_start_ns, host_end_ns.

    Only those of threads with other jobs delay launches: another thread loads the next batch meanwhile. They delay the GPUs of
    these jobs, all GPUs of the process where these launched nothing.
    """
    process = ["report", "process_key"]
    thread = [*process, "thread_key"]
    is_data = pl.col("kind") == "data"
    loading = jobs[[*thread, *_HOST, "kind"]].filter(is_data).unique()
    if loading.is_empty():
        return pl.DataFrame(
            schema={"lane": lanes.schema["lane"], **{name: jobs.schema[name] for name in _HOST}}
        )
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


def _note_steps(by_lane: Mapping[str, pl.DataFrame], lanes: pl.DataFrame) -> list[str]:
    """Describe inferred steps and phases, and the groups of clocks."""
    sources = describe_sources(by_lane["steps"], lanes)
    return [*sources, *describe_phases(by_lane["phases"], lanes), *_note_groups(lanes)]


def _note_groups(lanes: pl.DataFrame) -> list[str]:
    """Describe the groups of clocks of a run with several."""
    groups = describe_groups(lanes["clock_group"])
    across = "waits and transfers of messages, spans of steps and critical paths across groups are unknown"
    return [f"{groups}: {across}"] if groups else []


def _note_rules(inputs: Sequence[Input], presets: Sequence[str]) -> list[str]:
    """Describe different presets of the reports, and patterns without a range."""
    return [*_note_presets(presets), *_note_unmatched(inputs)]


def _note_unmatched(inputs: Sequence[Input]) -> list[str]:
    """Describe the patterns that match no range of any report."""
    unmatched = [recorded.part.facts.unmatched for recorded in inputs]
    return [
        f"`{option}` fits no range" for option in unmatched[0] if all(option in names for names in unmatched)
    ]


def _note_presets(presets: Sequence[str]) -> list[str]:
    """Describe the presets of a run with several."""
    names = sorted(set(presets) - {""})
    if len(names) < 2:
        return []
    counts = ", ".join(f"`{name}` in {presets.count(name):,}" for name in names)
    return [f"reports name their jobs by different presets ({counts}): `--preset` says which is right"]


def _list_losses(inputs: Sequence[Input], captures: Captures) -> tuple[Loss, ...]:
    """List the messages of nsys on lost events, by report."""
    return tuple(
        Loss(report=captures.first[number], text=text)
        for number, recorded in enumerate(inputs)
        for text in pick_losses(recorded.part.facts.data_warnings)
    )


def _move(times: pl.Series, sizes: Sequence[int], clocks: Sequence[Clock]) -> pl.Series:
    """Map times of reports, one report after the other, to the trace's clock; null stays null."""
    if all(len(clock.offset_ns) == 1 for clock in clocks):
        return times + build_column("", np.repeat([clock.offset_ns[0] for clock in clocks], sizes))
    by_report = np.split(fill_null(times, 0).to_numpy(), np.cumsum(sizes)[:-1])
    moved = [clock.to_trace(part) for clock, part in zip(clocks, by_report, strict=True)]
    moved_times = build_column(times.name, np.concatenate(moved))
    return moved_times.set(times.is_null(), None) if times.null_count() else moved_times

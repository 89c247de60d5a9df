"""Training of a run: the frames of all reports on the trace's clock, joined into one `Training`.

It begins with the captures of one nsys session (`nsys profile --capture-range-end=repeat` writes a report per
capture): rows of later captures get the report of the first one, so that a process has one lane, one stage,
and one list of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import index_rows, whole_numbers
from nsys_pp.errors import NsysPPError
from nsys_pp.frames.clock import Clock, describe_groups
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
from nsys_pp.training.lanes import build_lanes
from nsys_pp.training.messages import pair_messages
from nsys_pp.training.numbering import (
    describe_cuts,
    describe_restart,
    describe_sources,
    join_steps,
    number_steps,
    renumber_steps,
)
from nsys_pp.training.schedule import doubt_schedule, label_jobs, recognise_schedule, resolve_jobs

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
        """Replace the report of each row by the first capture of its session; steps and ids are unique there.

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
            pl.Series("report", np.array(self.first, dtype=np.uint32)[report]),
            *(frame[name] + pl.Series("", added[name]) for name in added if name in frame.columns),
        )

    def list_windows(self, starts_ns: Sequence[int]) -> list[tuple[int, int]]:
        """List the time of each report among the captures of its session.

        From its start to the start of the next capture.

        Args:
            starts_ns: Start of each report on the trace's clock.

        Returns:
            Start and end of each; the first capture also has all time before it, the last one all time after
            it.
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
        steps: dict[int, set[_Step]] = {}
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
    placed = sorted(range(len(inputs)), key=lambda report: (first[report], time[report], report))
    place = {report: at for at, report in enumerate(placed)}
    return Captures(first=first, order=[place[report] for report in range(len(inputs))], step_offset=offset)


def _list_sessions(sessions: Sequence[Session], machines: Sequence[str]) -> list[list[int]]:
    """List the nsys sessions with several reports, each by its reports."""
    recorded = [report for report, session in enumerate(sessions) if session.origin_ns is not None]
    recorded.sort(key=lambda report: (machines[report], sessions[report].origin_ns))
    groups: list[list[int]] = []
    for report in recorded:
        last = groups[-1][-1] if groups else report
        is_same = machines[last] == machines[report] and share_origin(sessions[last], sessions[report])
        if groups and is_same:
            groups[-1].append(report)
        else:
            groups.append([report])
    return [group for group in groups if len(group) > 1]


_SPAN = ("start_ns", "end_ns")
_HOST = ("host_start_ns", "host_end_ns")
_TIMES = {  # columns on the report's clock; others are durations
    "jobs": (*_SPAN, *_HOST, "compute_start_ns", "compute_end_ns"),
    "steps": (*_SPAN, *_HOST),
    "batches": _SPAN,
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
    "jobs",
    "compute_segments",
    "waits",
    "gaps",
    "messages",
    "kernels",
    "overheads",
)
_AS_RECORDED = ("batches", "gaps", "kernels", "overheads")  # frames of a training
_NOT_INFERRED = "jobs cannot be inferred: not every GPU has ranges of its sends and receives"
_BETWEEN_RANGES = "no range is a forward or a backward: jobs are the launches between the ranges of messages"


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
    is_inferred = pl.col("range_id").is_null()
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
    first = [report for report, of in enumerate(captures.first) if of == report]
    placed = roster.join(bounds, on="report", how="left", maintain_order="left")
    placed = placed.filter(pl.col("report").is_in(first)).pipe(conform, ROSTER_WITH_BOUNDS)
    lanes_found, notes = build_lanes(placed, frames["jobs"], frames["steps"], frames["messages"])
    steps = _assign_lanes("steps", frames["steps"], lanes_found)
    numbers = number_steps(steps)
    return NumberedSteps(
        lanes=lanes_found,
        steps=join_steps(steps, numbers),
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
    by_lane |= {name: renumber_steps(by_lane[name], numbered.numbers) for name in _BY_STEP}
    if steps is not None:
        is_selected = select_steps(run_steps, steps)
        run_steps = run_steps.filter(is_selected)
        by_lane |= {
            name: frame.filter(is_selected) for name, frame in by_lane.items() if "step" in frame.columns
        }
    jobs, unknown = resolve_jobs(lanes, run_steps, by_lane["jobs"], schedule_name=schedule)
    jobs = captures.restore_ids(jobs)
    transfers, unpaired = pair_messages(lanes=lanes, messages=by_lane["messages"], steps=run_steps, jobs=jobs)
    if numbered.is_inferred:
        jobs = jobs.with_columns(is_inferred=pl.col("is_inferred") | pl.col("range_id").is_null())
        unknown.append(_BETWEEN_RANGES)
    elif infer_jobs and not jobs["kind"].is_in(SCHEDULED_KINDS).any():
        unknown.append(_NOT_INFERRED)
    recognised = recognise_schedule(lanes, run_steps, jobs, schedule_name=schedule)
    recognised, uncertain = doubt_schedule(recognised, jobs, by_lane["compute_segments"])
    jobs = label_jobs(jobs, lanes, recognised)
    lane_states = build_lane_states(
        lanes=lanes,
        steps=run_steps,
        jobs=jobs,
        data_jobs=_data_jobs(frames["jobs"], lanes),
        transfers=transfers,
        **{name: by_lane[name] for name in ("compute_segments", "waits", "messages", "anchors")},
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
        losses=tuple(
            Loss(report=captures.first[number], text=text)
            for number, recorded in enumerate(inputs)
            for text in pick_losses(recorded.part.facts.data_warnings)
        ),
        schedule=recognised,
        preset=max(presets, key=lambda preset: (preset != "", presets.count(preset))),
        zero_ns=clocks.zero_ns,
        notes=[
            *numbered.notes,
            *restarts,
            *describe_sources(by_lane["steps"], lanes),
            *_note_groups(lanes),
            *describe_cuts(run_steps),
            *unknown,
            *unpaired,
            *uncertain,
            *impossible,
            *_note_rules(inputs),
        ],
    )


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
        hint = "only processes with GPU work have steps (docs/presets.md)"
        if numbers:
            hint = f"the steps of these reports are {numbers[0]} to {numbers[-1]}"
        raise NsysPPError(f"no step is in `--steps {asked}`", hint)
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
        moved = [_move(frame[column], sizes, clocks.clocks) for column in _TIMES[name]]
        frame = captures.join(frame.with_columns(*moved, report))
        gathered[name] = conform(frame, GATHERED_FRAMES[name])
    return gathered


def _move(times: pl.Series, sizes: Sequence[int], clocks: Sequence[Clock]) -> pl.Series:
    """Map times of reports, one report after the other, to the trace's clock; null stays null."""
    by_report = np.split(times.fill_null(0).to_numpy(), np.cumsum(sizes)[:-1])
    moved = [clock.to_trace(part) for clock, part in zip(clocks, by_report, strict=True)]
    return pl.Series(times.name, np.concatenate(moved)).set(times.is_null(), None)


def _data_jobs(jobs: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """List the intervals of loading data on the host of each lane: lane, host_start_ns, host_end_ns.

    Only those of threads with other jobs delay launches: another thread loads the next batch meanwhile. They
    delay the GPUs of these jobs, all GPUs of the process where these launched nothing.
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


def _note_groups(lanes: pl.DataFrame) -> list[str]:
    """Describe the groups of clocks of a run with several."""
    groups = describe_groups(lanes["clock_group"])
    across = "waits and transfers of messages, spans of steps and critical paths across groups are unknown"
    return [f"{groups}: {across}"] if groups else []


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

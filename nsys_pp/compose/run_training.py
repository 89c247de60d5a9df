"""What all reports together say of a training: one view of all lanes, on the trace's clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import numbers
from nsys_pp.compose.trace_layout import Plan
from nsys_pp.errors import NsysPPError
from nsys_pp.frames.clock import ANCHORS, Clock
from nsys_pp.frames.training import REPORT_FRAMES, Training
from nsys_pp.training.run.bubbles import build_lane_states, measure_cover
from nsys_pp.training.run.cadence import reconstruct_jobs
from nsys_pp.training.run.ideal import build_ideal
from nsys_pp.training.run.ids import resolve_jobs
from nsys_pp.training.run.labels import label_jobs
from nsys_pp.training.run.lanes import build_lanes
from nsys_pp.training.run.run_steps import join_steps, number_steps, renumber_steps
from nsys_pp.training.run.schedule import recognise_schedule
from nsys_pp.training.run.transfers import pair_messages

SCHEMAS: Mapping[str, pl.Schema] = {**REPORT_FRAMES, "anchors": ANCHORS}

_SPAN = ("start_ns", "end_ns")
_HOST = ("host_start_ns", "host_end_ns")
_TIMES = {  # columns that are times on the report's clock; others are durations
    "jobs": (*_SPAN, *_HOST, "compute_start_ns", "compute_end_ns"),
    "steps": (*_SPAN, *_HOST),
    "compute_segments": (*_SPAN, "launch_ns", "need_start_ns", "need_end_ns"),
    "messages": _SPAN,
    "anchors": _SPAN,
    "kernels": (),
}
NOT_INFERRED = "jobs cannot be inferred from messages"
_INFERRED = "no range tells jobs: all are inferred from the cadence of messages, and none is certain"
_KEYS = ("report", "process_key", "device_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """The lanes of a run, and the numbers of its steps."""

    lanes: pl.DataFrame  # LANES
    steps: pl.DataFrame  # RUN_STEPS
    numbers: pl.DataFrame  # STEP_NUMBERS
    notes: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """What the user says of a training, where reports do not tell it."""

    preset: str | None = None  # rules that say which ranges are jobs: a name or a file; None: what fits
    job_patterns: tuple[str, ...] = ()
    step_patterns: tuple[str, ...] = ()
    schedule: str | None = None  # name of the schedule; None: as recognised
    steps: tuple[int | None, int | None] | None = None  # only steps of [first, last)
    infer_jobs: bool = False  # make jobs of the cadence of messages where no range tells them

    def of_parts(self) -> dict[str, Any]:
        """Give what parts are made with; None where nothing was said."""
        return {
            "preset": self.preset,
            "job_patterns": self.job_patterns or None,
            "step_patterns": self.step_patterns or None,
        }


def find_training(plan: Plan, options: TrainingOptions | None = None) -> Training:
    """Put what reports say of their training together.

    Args:
        plan: Who is who, and where clocks stand; its parts have the frames of `SCHEMAS`.
        options: What the user says.

    Raises:
        NsysPPError: None of the steps that are asked for is there.
    """
    options = options or TrainingOptions()
    every = _gather(plan, SCHEMAS)
    lanes, notes = _find_lanes(plan, every)
    by_lane = {name: _by_lane(frame, lanes) for name, frame in every.items()}
    numbers = number_steps(by_lane["steps"])
    for name in ("jobs", "compute_segments", "messages", "kernels"):
        by_lane[name] = renumber_steps(by_lane[name], numbers)
    steps = join_steps(by_lane["steps"], numbers)
    if options.steps is not None:
        steps, by_lane = _choose(steps, by_lane, options.steps)
    jobs, unknown = resolve_jobs(lanes, steps, by_lane["jobs"], schedule_name=options.schedule)
    transfers, unpaired = pair_messages(lanes=lanes, messages=by_lane["messages"], jobs=jobs)
    if options.infer_jobs and jobs.is_empty():
        jobs, reason = reconstruct_jobs(
            lanes=lanes, steps=steps, compute_segments=by_lane["compute_segments"], transfers=transfers
        )
        unknown.append(f"{NOT_INFERRED}: {reason}" if reason else _INFERRED)
    schedule = recognise_schedule(lanes, steps, jobs, schedule_name=options.schedule)
    jobs = label_jobs(jobs, lanes, schedule)
    lane_states = build_lane_states(
        lanes=lanes,
        steps=steps,
        compute_segments=by_lane["compute_segments"],
        jobs=jobs,
        data_jobs=_data_jobs(every["jobs"], lanes),
        transfers=transfers,
        anchors=by_lane["anchors"],
    )
    ideal, impossible = build_ideal(lanes, steps, jobs, schedule)
    presets = [one.part.facts["preset"] for one in plan.given]
    return Training(
        lanes=lanes,
        steps=steps,
        jobs=jobs,
        transfers=transfers,
        lane_states=lane_states,
        cover=measure_cover(steps=steps, compute_segments=by_lane["compute_segments"]),
        ideal=ideal,
        kernels=by_lane["kernels"],
        schedule=schedule,
        preset=max(presets, key=lambda preset: (preset != "", presets.count(preset))),
        zero_ns=plan.clocks.zero_ns,
        notes=[*notes, *unknown, *unpaired, *impossible, *_doubt_presets(presets), *_name_unmatched(plan)],
    )


def number_run(plan: Plan) -> Numbered:
    """Find the lanes of all reports, and the steps of the run, and nothing else; `plan` as for `find_training`."""
    every = _gather(plan, ("jobs", "steps"))
    lanes, notes = _find_lanes(plan, every)
    steps = _by_lane(every["steps"], lanes)
    numbers = number_steps(steps)
    return Numbered(lanes=lanes, steps=join_steps(steps, numbers), numbers=numbers, notes=notes)


def choose_steps(steps: pl.DataFrame, window: tuple[int | None, int | None]) -> pl.Expr:
    """Tell rows by their `step`: of [first, last).

    Args:
        steps: `RUN_STEPS`.
        window: First and last; None: no limit.

    Raises:
        NsysPPError: None of them is there.
    """
    first, last = window
    is_chosen = pl.col("step").is_not_null()
    if first is not None:
        is_chosen &= pl.col("step") >= first
    if last is not None:
        is_chosen &= pl.col("step") < last
    if steps.filter(is_chosen).is_empty():
        asked = f"{'' if first is None else first}:{'' if last is None else last}"
        numbers = steps["step"].unique().sort().to_list()
        known = f"the steps of these reports are {numbers[0]} to {numbers[-1]}"
        hint = (
            known if numbers else "steps are known of processes that ran something on a GPU (docs/presets.md)"
        )
        raise NsysPPError(f"no step is in `--steps {asked}`", hint)
    return is_chosen


def _find_lanes(plan: Plan, every: Mapping[str, pl.DataFrame]) -> tuple[pl.DataFrame, list[str]]:
    """List the lanes (`LANES`), with notes on their stages."""
    roster = plan.roster.join(_bounds(plan), on="report", how="left", maintain_order="left")
    return build_lanes(roster, every["jobs"], every["steps"])


def _by_lane(frame: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """Name the lane of each row instead of its report, process and device; rows of no lane are left out."""
    report, process, device = (numbers(frame[name]) for name in _KEYS)
    lane = np.full(len(frame), -1)
    for number, one, *key in lanes.select("lane", *_KEYS).iter_rows():
        rows = slice(*np.searchsorted(report, [one, one + 1]))  # rows are in order of reports
        lane[rows][(process[rows] == key[0]) & (device[rows] == key[1])] = number
    is_there = lane >= 0
    kept = frame[[name for name in frame.columns if name not in _KEYS]]
    if not is_there.all():
        kept = kept.filter(pl.Series(is_there))
    # of one piece: many small ones, a report's each, are slow to go through time and again
    return kept.rechunk().hstack([pl.Series("lane", lane[is_there].astype(np.uint32))])


def _gather(plan: Plan, names: Iterable[str]) -> dict[str, pl.DataFrame]:
    """Put the frames of all reports under each other, with `report`, on the trace's clock."""
    gathered = {}
    for name in names:
        frames = [one.part.frames[name] for one in plan.given]
        frame, sizes = pl.concat(frames), [len(each) for each in frames]
        report = pl.Series("report", np.repeat(np.arange(len(frames), dtype=np.uint32), sizes))
        moved = (_move(frame[column], sizes, plan.clocks.clocks) for column in _TIMES[name])
        gathered[name] = frame.with_columns(*moved, report)
    return gathered


def _choose(
    steps: pl.DataFrame, by_lane: dict[str, pl.DataFrame], window: tuple[int | None, int | None]
) -> tuple[pl.DataFrame, dict[str, pl.DataFrame]]:
    """Keep the steps of [first, last).

    Raises:
        NsysPPError: None of them is there.
    """
    is_chosen = choose_steps(steps, window)
    kept = {
        name: frame.filter(is_chosen) if "step" in frame.columns else frame for name, frame in by_lane.items()
    }
    return steps.filter(is_chosen), kept


def _data_jobs(jobs: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """List when the host of each lane loaded data: lane, host_start_ns, host_end_ns."""
    loading = jobs[["kind", "report", "process_key", *_HOST]].filter(kind="data").drop("kind").unique()
    return (
        lanes.select("lane", "report", "process_key")
        .join(loading, on=["report", "process_key"])
        .select("lane", *_HOST)
    )


def _name_unmatched(plan: Plan) -> list[str]:
    """Name what the user asked for that fits no range of any report."""
    asked = [one.part.facts["unmatched"] for one in plan.given]
    return [f"`{option}` fits no range" for option in asked[0] if all(option in some for some in asked)]


def _doubt_presets(presets: Sequence[str]) -> list[str]:
    """Say where reports speak different languages."""
    found = sorted(set(presets) - {""})
    if len(found) < 2:
        return []
    counts = ", ".join(f"`{name}` in {presets.count(name):,}" for name in found)
    return [f"reports name their jobs by different presets ({counts}): `--preset` says which is right"]


def _move(times: pl.Series, sizes: Sequence[int], clocks: Sequence[Clock]) -> pl.Series:
    """Move times of reports, one report after the other, onto the trace's clock; null stays null."""
    own = np.split(times.fill_null(0).to_numpy(), np.cumsum(sizes)[:-1])
    moved = pl.Series(
        times.name, np.concatenate([c.to_trace(each) for c, each in zip(clocks, own, strict=True)])
    )
    return moved.set(times.is_null(), None) if times.null_count() else moved


def _bounds(plan: Plan) -> pl.DataFrame:
    """List the error bound of each report's clock."""
    return plan.clocks.table.select(report="reports", bound_ns="bound_ns").explode("report")

"""`nsys-pp summary`: where the time went, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from nsys_pp.aggregates.processes import build_places, place_frames
from nsys_pp.aggregates.range_items import MOST_NAMES
from nsys_pp.compose.batch import Skipped
from nsys_pp.compose.inputs import Input, drop_repeated, read_all
from nsys_pp.compose.progress import Progress
from nsys_pp.compose.run_training import TrainingOptions, choose_steps, number_run
from nsys_pp.compose.trace_layout import Overrides, make_plan
from nsys_pp.compose.work import WorkOptions
from nsys_pp.frames.aggregates import AGGREGATE_FRAMES, Summary
from nsys_pp.model.recorded import say_absent
from nsys_pp.tables.summary.registry import TABLES
from nsys_pp.tables.summary.table import SummaryTable, TableOptions

_FOLDED = (
    f"in {{}} of the reports, ranges have more than {MOST_NAMES:,} names: numbers in them are shown as #"
)
SUMMARY_TABLES: Mapping[str, SummaryTable] = TABLES


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryResult:
    """Tables of a summary."""

    tables: dict[str, pl.DataFrame]  # by name; not those that are absent
    absent: dict[str, str]  # of tables that need what no report has: how to record it
    notes: list[str] = field(default_factory=list)  # what was guessed or doubted, in sentences
    skipped: Skipped


def summarise(
    inputs: Sequence[str | Path],
    *,
    tables: Sequence[str] | None = None,
    by: str = "run",
    paddle_compat: bool = False,
    ops: tuple[str, ...] | None = None,
    scope: str | None = None,
    training: TrainingOptions | None = None,
    overrides: Overrides | None = None,
    keep_going: bool = False,
    nsys: str | None = None,
    work: WorkOptions | None = None,
    progress: Progress | None = None,
) -> SummaryResult:
    """Say where the time went.

    Args:
        inputs: Reports, parts, directories of them, or glob patterns. Of parts no event is read again.
        tables: Names in `SUMMARY_TABLES`; all of them if None.
        by: What rows are split by: a key of `SUMMARY_GROUPS`.
        paddle_compat: Count communication as Paddle's tables do.
        ops: Which operations count for GPU times of ranges; None: as parts have it, else kernels.
        scope: Whose calls count for them; None: as parts have it, else "auto".
        training: What is said of jobs and steps; its steps are all that counts, where they are given.
        overrides: What is said of clocks and ranks.
        keep_going: Skip reports that cannot be read, and say so in the result.
        nsys: The nsys that exports `.nsys-rep` files.
        work: Where reports are worked on; one by one in this process if None.
        progress: Told what is going on.

    Raises:
        ReportError: A report cannot be read, or is there twice; or a part was made with other options.
        NsysPPError: Rules cannot be read; or none of the steps that are asked for is there.
    """
    training = training or TrainingOptions()
    given, batch = read_all(
        inputs,
        {**training.of_parts(), "ops": ops, "scope": scope},
        doing="summing up",
        with_aggregates=True,
        keep_going=keep_going,
        nsys=nsys,
        work=work,
        progress=progress,
    )
    different = drop_repeated(given, batch)
    summary, notes = _put_together(different, training, overrides or Overrides())
    chosen = tuple(TABLES) if tables is None else tuple(tables)
    recorded = frozenset[str]().union(*summary.recorded)
    needs = {name: TABLES[name].needs for name in chosen}
    absent = {
        name: say_absent(some, recorded) for name, some in needs.items() if some and not recorded & set(some)
    }
    how = TableOptions(by=by, paddle_compat=paddle_compat)
    made = {name: TABLES[name].build(summary, how) for name in chosen if name not in absent}
    return SummaryResult(tables=made, absent=absent, notes=notes, skipped=batch.skipped)


def _put_together(
    given: Sequence[Input], training: TrainingOptions, overrides: Overrides
) -> tuple[Summary, list[str]]:
    """Put the sums of all reports together, with the numbers of steps of the whole run."""
    plan = make_plan(list(given), root="", devices=None, overrides=overrides)
    numbered = number_run(plan)
    reports = [{name: one.part.frames[name] for name in AGGREGATE_FRAMES} for one in given]
    places = build_places(plan.roster, numbered.lanes, reports)
    frames = place_frames(reports, places, numbered.numbers)
    if training.steps is not None:
        window = choose_steps(numbered.steps, training.steps)
        frames = {name: frame.filter(window) for name, frame in frames.items()}
    recorded = tuple(frozenset(one.part.facts["recorded"]) for one in given)
    folded = sum(one.part.facts["is_folded"] for one in given)
    notes = [*numbered.notes, *([_FOLDED.format(folded)] if folded else [])]
    return Summary(places=places, frames=frames, recorded=recorded), notes

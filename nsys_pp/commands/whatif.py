"""`nsys-pp whatif`: the step of a run without its slow ranks, links and hosts, or with other jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import polars as pl

from nsys_pp.commands.pipeline import build_pipeline
from nsys_pp.errors import OptionError
from nsys_pp.options import SCHEDULES
from nsys_pp.output.formats import ExportOptions, find_exporter
from nsys_pp.run.inputs import Batch, Result
from nsys_pp.run.options import Inputs, RunOptions, StepOptions, check_choice, check_keywords
from nsys_pp.tables.whatif import WHATIF_TABLE as WHATIF_TABLE
from nsys_pp.tables.whatif import Answer, Question, answer
from nsys_pp.tables.words import format_time
from nsys_pp.training.paired import pair_runs
from nsys_pp.training.whatif import WhatIf


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WhatIfResult(Result):
    """Predicted steps.

    Attributes:
        predictions: One row per change, with the predicted time of a mean step and its gain in ns.
        notes: What is assumed, how far to trust it, and notes on the run, in sentences.
    """

    predictions: pl.DataFrame
    notes: tuple[str, ...]
    _run: WhatIf
    _answer: Answer

    def draw(self, output: str | Path, *, force: bool = False) -> None:
        """Draw each rank as measured, and below as replayed with all changes together.

        Args:
            output: A trace of all steps (.pftrace), or a chart of the step that changes most (.html, .svg or
                .png).
            force: Replace an existing output.

        Raises:
            OutputError: The output exists, or cannot be written.
            OptionError: Its extension is another one.
        """
        target, found = Path(output), self._answer
        exporter = find_exporter(target)
        if exporter is None:
            raise OptionError(
                "output", f"unknown extension of {target}; expected .pftrace, .html, .svg or .png"
            )
        pair = pair_runs(self._run, found.change, found.planned, is_short=exporter.name != "trace")
        step, gain = self.predictions.select("step_ns", "gain_ns").row(-1)
        usual = f"{format_time(step + gain)}{' for as many micro-batches' * (found.more != 1)}"
        title = (
            f"{found.title}: a step of {format_time(step)} instead of {usual}"
            f" ({format_time(abs(gain))} {'shorter' if gain >= 0 else 'longer'} on average)"
        )
        exporter.write(pair, target, ExportOptions(force=force, title=title, has_all_steps=True))


def whatif(
    inputs: Inputs,
    *,
    heal: str | Sequence[str] = (),
    scale: str | Sequence[str] = (),
    balance: bool = False,
    schedule: str | None = None,
    micro_batches: int | None = None,
    recorded_schedule: str | None = None,
    **options: Unpack[StepOptions],
) -> WhatIfResult:
    """Predict the mean step of a run with other durations or jobs, by replaying all that ran.

    Args:
        inputs: Reports, parts, folders of them, or glob patterns.
        heal: What shall take as long as on its peers, where it takes longer: "rank=5", "stage=3",
            "machine=node2", "host=6", "link=2-4", "data", "lengths" (of jobs) or "all". Without any, all
            that gain.
        scale: What shall take a factor of its time: "stage=3:0.8", "link=all:0.5", "kind=backward:0.9".
        balance: All stages shall have the same compute, as if layers were split evenly.
        schedule: Schedule of the jobs, instead of the recorded one.
        micro_batches: Micro-batches of a step, each as large as the recorded ones.
        recorded_schedule: Schedule of the recorded jobs. Default: detected.
        options: See `nsys_pp.RunOptions`.

    Raises:
        ReportError: A report cannot be read, or is named twice.
        OptionError: A change is invalid, or names nothing of the run.
        MissingDataError: There are no GPU operations or steps, or the recorded steps cannot be replayed.
    """
    check_keywords(options, StepOptions)
    for name, value in (("schedule", schedule), ("recorded_schedule", recorded_schedule)):
        if value is not None:
            check_choice(name, value, SCHEDULES)
    if micro_batches is not None and not (isinstance(micro_batches, int) and 1 <= micro_batches <= 10_000):
        raise OptionError("micro_batches", f"invalid number {micro_batches!r}; expected 1 to 10,000")
    question = Question(
        heal=(heal,) if isinstance(heal, str) else tuple(heal),
        scale=(scale,) if isinstance(scale, str) else tuple(scale),
        balance=balance,
        schedule=schedule,
        micro_batches=micro_batches,
    )
    own: RunOptions = {**options, "schedule": recorded_schedule}
    result = build_pipeline(Batch(inputs, own), own)
    run = WhatIf(result.training)
    found = answer(run, question)
    return WhatIfResult(
        predictions=WHATIF_TABLE.build(found),
        notes=(*found.notes, *result.training.notes),
        skipped=result.skipped,
        row_counts=result.row_counts,
        _run=run,
        _answer=found,
    )

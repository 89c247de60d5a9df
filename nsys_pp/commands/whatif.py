"""`nsys-pp whatif`: the step of a run without its slow ranks, links and hosts, or with other durations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

import polars as pl

from nsys_pp.commands.pipeline import build_pipeline
from nsys_pp.run.inputs import Batch, Result
from nsys_pp.run.options import Inputs, RunOptions, check_keywords
from nsys_pp.tables.whatif import WHATIF_TABLE as WHATIF_TABLE
from nsys_pp.tables.whatif import describe_trust
from nsys_pp.training.whatif import WhatIf


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WhatIfResult(Result):
    """Predicted steps.

    Attributes:
        predictions: One row per change, with the predicted time of a mean step and its gain in ns.
        notes: How far they can be trusted, and notes on the run, in sentences.
    """

    predictions: pl.DataFrame
    notes: tuple[str, ...]


def whatif(
    inputs: Inputs, *, heal: Sequence[str] = (), scale: Sequence[str] = (), **options: Unpack[RunOptions]
) -> WhatIfResult:
    """Predict the mean step of a run with other durations, by replaying its jobs, messages and collectives.

    Args:
        inputs: Reports, parts, folders of them, or glob patterns.
        heal: What shall take as long as on its peers, where it takes longer: "rank=5", "stage=3",
            "machine=node2", "host=6", "link=2-4", "data" or "all". Without any, and without `scale`, all that
            gain.
        scale: What shall take a factor of its time: "stage=3:0.8", "link=all:0.5", "kind=backward:0.9".
        options: See `nsys_pp.RunOptions`.

    Raises:
        ReportError: A report cannot be read, or is named twice.
        OptionError: A change is invalid, or names nothing of the run.
        MissingDataError: There are no GPU operations or steps, or the recorded steps cannot be replayed.
    """
    check_keywords(options, RunOptions)
    result = build_pipeline(Batch(inputs, options), options)
    run = WhatIf(result.training)
    return WhatIfResult(
        predictions=WHATIF_TABLE.build(run, heal, scale),
        notes=(describe_trust(run), *result.training.notes),
        skipped=result.skipped,
        row_counts=result.row_counts,
    )

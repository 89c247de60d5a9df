"""Result of `nsys-pp merge`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from nsys_pp.frames.conform import ShortRepr
from nsys_pp.frames.verdict import Verdict
from nsys_pp.options import Split
from nsys_pp.output.split_index import SplitFile
from nsys_pp.run.batch import Skipped


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MergeResult(ShortRepr):
    """Counts of a trace, or of the traces of a divided run."""

    output: Path  # the trace; of a divided run its overview; the folder of traces of machines
    reports: int
    machines: int
    gpus: int
    slices: int  # of the whole run; divided by steps, in all traces but the overview
    events: int  # slices, marks and samples of counters of `output`
    split: Split  # "none", or division of the run: "machine", "rank" or "step"
    files: list[SplitFile]  # traces of a divided run, other than the overview
    index: Path | None  # page that links them
    omits_ranges: bool  # the overview shows the load of GPUs in place of ranges
    notes: list[str]  # inferred, refused and doubtful facts of the training, in sentences
    verdict: Verdict  # of the training; no findings without jobs
    skipped: Skipped
    row_counts: pl.DataFrame  # `RUN_ROW_COUNTS`: rows of all reports, used, and left out by reason

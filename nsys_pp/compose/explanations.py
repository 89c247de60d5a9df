"""Data of a run that explain findings of its verdict: reports are read once more only where a finding needs them."""

from __future__ import annotations

from functools import partial

from nsys_pp.compose.requested_metrics import read_clock_sums
from nsys_pp.compose.run import Run
from nsys_pp.frames.explanations import Explanations
from nsys_pp.frames.training import Training


def explain(run: Run, training: Training) -> Explanations:
    """Return the functions that read the data of a run."""
    return Explanations(read_clocks=partial(read_clock_sums, run, training))

"""Messages of MPI, paired over all reports."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.mpi_messages import MPI_MESSAGES

UNPAIRED = pl.Enum(
    [
        "unknown communicator",
        "a rank with several processes",
        "any sender or tag",
        "several threads",
        "no counterpart",
        "different counts",
        "sizes or times that do not fit",
        "clocks that cannot be compared",
    ]
)
"""Reasons that a send or receive has no counterpart."""

PART_MPI_MESSAGES = build_schema(
    {**MPI_MESSAGES, "process_row": pl.String},  # name of the row of the process in the drawing of the report
    name="PART_MPI_MESSAGES",
)

RUN_MPI_MESSAGES = build_schema(
    {  # `PART_MPI_MESSAGES` of all reports, on the trace's clock, in order of the reports
        **PART_MPI_MESSAGES,
        "report": pl.UInt32,
        "clock": pl.UInt32,
        "clock_group": pl.UInt32,
        "bound_ns": pl.Int64,
    },
    name="RUN_MPI_MESSAGES",
)

MPI_PAIRS = build_schema(
    {  # one row per send or receive, in order of `RUN_MPI_MESSAGES`
        "other": pl.UInt32,  # row of its counterpart; null without one
        "unpaired": UNPAIRED,  # reason; null with a counterpart
        "is_guess": pl.Boolean,  # earlier messages of one side may be missing; null without a counterpart
    },
    name="MPI_PAIRS",
)

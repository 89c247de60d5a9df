"""Messages of MPI in the part of a report (`--show mpi`)."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.mpi_pairs import PART_MPI_MESSAGES
from nsys_pp.frames.report import Report
from nsys_pp.write.trace.tracks import name_process_row

FRAME = "mpi_messages"
"""Name of the frame in parts."""


def list_mpi_messages(report: Report) -> pl.DataFrame:
    """List the messages of a report for its part (`PART_MPI_MESSAGES`)."""
    names = [
        (key, name_process_row(name, pid))
        for key, pid, name in report.active_processes.select("process_key", "pid", "name").iter_rows()
    ]
    rows = pl.DataFrame(names, schema={"process_key": pl.Int64, "process_row": pl.String}, orient="row")
    return report.mpi_messages.join(rows, on="process_key", how="left", maintain_order="left").pipe(
        conform, PART_MPI_MESSAGES
    )

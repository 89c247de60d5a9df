"""Align a folder of simulated reports and compare it with its truth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec.structs import replace

from nsys_pp.alignment.clocks import Alignment, align_clocks
from nsys_pp.arrays.types import Floats
from tests.alignment.score import TrueClock, errors_ns, report_bounds_ns, to_trace_ns
from tests.alignment.test_anchors import anchors_of, open_report


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Alignment of a simulated run, compared with the truth."""

    alignment: Alignment
    errors_ns: Floats  # of each report
    bounds_ns: Floats
    messages: int  # with both sides recorded
    backwards: int  # messages that end before they began, on the trace's clock
    seconds: float  # duration of the alignment


def align_folder(folder: Path) -> Result:
    """Align all reports of a simulated data set."""
    truth = pl.read_parquet(folder / "truth" / "clocks.parquet")
    sessions, anchors, clocks = [], [], {}
    for row in truth.iter_rows(named=True):
        report = open_report(folder / row["report"])
        session = report.session
        assert session.capture_end_ns is not None
        sessions.append(replace(session, machine=row["machine"]))
        anchors.append(anchors_of(report))
        clocks[row["report"]] = TrueClock(
            origin_ns=row["capture_utc_ns"],
            rate=1 + row["drift_ppb"] / 1e9,
            first_ns=0,
            last_ns=session.capture_end_ns,
        )
    start = perf_counter()
    alignment = align_clocks(sessions, anchors)
    seconds = perf_counter() - start
    arrivals = _arrivals_ns(alignment, clocks, pl.read_parquet(folder / "truth" / "messages.parquet"))
    return Result(
        alignment=alignment,
        errors_ns=errors_ns(alignment, list(clocks.values())),
        bounds_ns=report_bounds_ns(alignment),
        messages=len(arrivals),
        backwards=int((arrivals < 0).sum()),
        seconds=seconds,
    )


def _arrivals_ns(
    alignment: Alignment, clocks: dict[str, TrueClock], messages: pl.DataFrame
) -> npt.NDArray[np.int64]:
    """Return the time from start of the send to end of the receive of each message, on the trace's clock."""
    numbers = {name: at for at, name in enumerate(clocks)}
    both = messages.drop_nulls(["send_correlation_id", "receive_correlation_id"])

    def at(report: str, true_ns: int) -> int:
        return to_trace_ns(alignment.report_clocks[numbers[report]], clocks[report].report_ns(true_ns))

    return np.array(
        [
            at(row["receive_report"], row["receive_end_ns"]) - at(row["send_report"], row["send_start_ns"])
            for row in both.iter_rows(named=True)
        ],
        dtype=np.int64,
    )

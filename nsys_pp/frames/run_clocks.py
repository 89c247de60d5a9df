"""Clocks and rows of a run, computed once, by which each machine draws its own trace.

The file is a zip: `CLOCKS_MEMBER` has the facts of the run, and of each machine one member has its reports
and rows, and one the encoded blocks of the rows of the training. A machine reads its own members alone.
"""

from __future__ import annotations

from msgspec import Struct

from nsys_pp.frames.part import Encoded, PartOptions, Row

FORMAT = 1
CLOCKS_MEMBER = "clocks.json"


class ReportClock(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Clock of a report, and its rows."""

    report_id: int  # fingerprint of the recording
    number: int  # among the reports of the run
    from_ns: list[int]  # pieces of its `Clock`
    offset_ns: list[int]
    rows: dict[str, Row]  # of its GPUs, by name in the report
    attributes: dict[str, str]  # metadata of the trace, in addition to that of the run


class TrainingRows(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Encoded rows that depend on all reports: steps, jobs, messages with their arrows."""

    number: int  # among all of the run, in order of a trace
    encoded: Encoded
    rows: dict[str, Row]
    attributes: dict[str, str]


class MachineClocks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Clocks and rows for the trace of a machine, in addition to its reports."""

    machine: str
    order: int  # among the machines of a trace
    description: str  # of its clock and its bound, for people
    file_name: str  # of its trace
    ranks: list[int]
    steps: list[int]
    reports: list[ReportClock]
    rows_by_bus: dict[str, Row]  # of its GPUs, by the name of their metrics in other reports
    training: list[TrainingRows]


class MachineReports(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine and its reports, by which a report finds its clock."""

    machine: str
    report_ids: list[int]


class RunClocks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts of a run."""

    format: int
    made_by: str  # version of nsys-pp
    part_format: int  # of the encoded blocks
    options: PartOptions  # that rows of the training depend on
    zero_ns: int  # start of the earliest session, on the clock of the run
    is_utc: bool
    attributes: dict[str, str]  # metadata of each trace: offset, drift and bound of all clocks
    machines: list[
        MachineReports
    ]  # the first one is the run itself, without reports; then in order of the trace

"""Raw frames of a report: their schemas, the groups that they are read by, and the counts of rows kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args

import polars as pl
from msgspec import Struct, field

from nsys_pp.frames.conform import DataTypes, Schema, build_schema, extend_schema

# Groups of data to read in addition to the session: NVTX ranges; calls and GPU operations; demangled names of
# kernels; details of operations (these names, grids, registers, bytes); data of CPU threads (names of calls;
# colors, categories and payloads of ranges); communication between ranks (payloads of NCCL's ranges, calls of
# MPI); calls of the operating system; data of the host for summaries (these calls, runs of threads,
# allocations); kinds of memory of copies; the number of rows of every exported table; metrics of GPUs for the
# overview of a trace, and these and metrics of the network for sums in parts; and the kinds of data that a
# trace has on request (`nsys_pp.options.SHOW_KINDS`), each with the prefix `show_`.
Group = Literal[
    "ranges",
    "ops",
    "kernel_names",
    "details",
    "cpu",
    "communication",
    "os_calls",
    "host",
    "tables",
    "overview",
    "metric_sums",
    "network_sums",
    "show_os",
    "show_states",
    "show_samples",
    "show_sync",
    "show_mpi",
    "show_ucx",
    "show_libraries",
    "show_profiler",
    "show_memory",
    "show_metrics",
    "show_counters",
    "show_network",
    "show_other",
]

SHOW_GROUPS: frozenset[Group] = frozenset(group for group in get_args(Group) if group.startswith("show_"))
ON_REQUEST: frozenset[Group] = SHOW_GROUPS | {
    "overview",
    "metric_sums",
    "network_sums",
}  # read only if `--show` or a table asks
# All groups that analyses read.
ALL_GROUPS: frozenset[Group] = frozenset(get_args(Group)) - ON_REQUEST - {"tables"}
# Groups for the identity of a report, its jobs, and the anchors of its clock.
SURVEY_GROUPS: frozenset[Group] = frozenset({"ranges", "ops", "communication"})


def find_show_groups(kinds: Iterable[str]) -> frozenset[Group]:
    """Return the groups of kinds of data that are shown on request."""
    return frozenset(group for group in SHOW_GROUPS if group.removeprefix("show_") in {*kinds})


_STACK: DataTypes = {  # frames of stacks
    "stack_id": pl.Int64,
    "symbol": pl.Int32,
    "module": pl.Int32,
    "depth": pl.Int64,  # 0: the innermost
}

# Columns by raw frame.
COLUMNS_ON_REQUEST: Mapping[str, DataTypes] = {
    "activities": {  # intervals and instants of many tables
        "table": pl.String,  # its exported name
        "source": pl.String,  # row of the trace: "OS calls", "MPI"; the exported name of an unknown table
        "start": pl.Int64,
        "end": pl.Int64,  # null: an instant
        "thread": pl.Int64,
        "process": pl.Int64,  # where no thread is known
        "name_id": pl.Int32,
        "text": pl.String,  # name, where no string is referred to
        "bytes": pl.Int64,
        "peer": pl.Int64,
        "tag": pl.Int64,
        "stream": pl.Int64,
        "correlation": pl.Int64,
        "is_kept": pl.Boolean,  # false: no event of its kind
        "stack_id": pl.Int64,  # 0: none
        "address": pl.Int64,
        "count": pl.Int64,  # events that the row stands for
        "detail": pl.String,  # kind of memory; text of an event without a name
        "cpu": pl.Int64,
    },
    "mpi_requests": {  # calls that start requests, or wait for them; one row per request
        "start": pl.Int64,
        "end": pl.Int64,
        "thread": pl.Int64,
        "name_id": pl.Int32,
        "request": pl.Int64,
    },
    "switches": {
        "time": pl.Int64,
        "thread": pl.Int64,
        "cpu": pl.Int64,
        "is_in": pl.Int64,
        "state": pl.String,  # of a thread that leaves its processor; null where unknown
    },
    "samples": {"id": pl.Int64, "time": pl.Int64, "thread": pl.Int64, "cpu": pl.Int64},
    "stacks": {  # frames of the stacks of samples
        "sample": pl.Int64,
        "symbol": pl.Int32,
        "module": pl.Int32,
        "depth": pl.Int64,  # 0: the innermost
    },
    "os_stacks": _STACK,  # of calls of the operating system
    "cuda_stacks": _STACK,  # of CUDA calls
    "call_stacks": {  # CUDA calls with a stack
        "start": pl.Int64,
        "end": pl.Int64,
        "thread": pl.Int64,
        "name_id": pl.Int32,
        "stack_id": pl.Int64,  # 0: none
    },
    "gpu_metrics": {"time": pl.Int64, "type": pl.Int64, "metric": pl.Int64, "value": pl.Float64},
    "gpu_metric_names": {"type": pl.Int64, "metric": pl.Int64, "name": pl.String},
    "soc_metrics": {"time": pl.Int64, "type": pl.Int64, "metric": pl.Int64, "value": pl.Float64},
    "soc_metric_names": {"type": pl.Int64, "metric": pl.Int64, "name": pl.String},
    "generic_events": {
        "time": pl.Int64,
        "type": pl.Int64,
        "text": pl.String,  # JSON
        "thread": pl.Int64,
        "id": pl.Int64,  # null: its values are in the text alone
    },
    "generic_event_types": {"type": pl.Int64, "text": pl.String, "name_id": pl.Int32},  # JSON, or a name
    "generic_fields": {"type": pl.Int64, "field": pl.Int64, "name_id": pl.Int32},
    "generic_values": {  # one of four columns has the value
        "id": pl.Int64,  # of the event
        "field": pl.Int64,
        "integer": pl.Int64,
        "unsigned": pl.Int64,  # stored as signed 64 bits
        "float": pl.Float64,
        "double": pl.Float64,
    },
    "network_metrics": {
        "table": pl.String,  # its exported name
        "source": pl.String,
        "start": pl.Int64,
        "end": pl.Int64,
        "device": pl.Int64,
        "port": pl.Int64,  # null before 2025
        "list": pl.Int64,
        "index": pl.Int64,
        "value": pl.Float64,
    },
    "network_metric_names": {"list": pl.Int64, "index": pl.Int64, "name": pl.String, "unit": pl.String},
    "network_cards": {"card": pl.Int64, "device": pl.Int64},
    "network_card_names": {"card": pl.Int64, "device": pl.Int64, "name": pl.String},
    "processor_counts": {  # intervals of counters
        "table": pl.String,  # its exported name
        "source": pl.String,  # "CPU", "cluster" or "component"
        "start": pl.Int64,
        "end": pl.Int64,
        "unit": pl.Int64,  # number of the processor, cluster or component
        "set": pl.Int64,  # of `processor_values`; null: the row has its value
        "event": pl.Int64,
        "value": pl.Float64,
    },
    "processor_values": {
        "table": pl.String,
        "source": pl.String,
        "set": pl.Int64,
        "event": pl.Int64,
        "value": pl.Float64,
    },
    "processor_counter_names": {
        "table": pl.String,
        "source": pl.String,
        "event": pl.Int64,
        "label": pl.String,
        "name": pl.String,
        "measure": pl.String,  # unit of the values
    },
    "processor_components": {"unit": pl.Int64, "name": pl.String, "instance": pl.Int64},
    "gpu_contexts": {  # changes of the context that a GPU runs
        "time": pl.Int64,
        "order": pl.Int64,  # of changes at the same time
        "gpu": pl.Int64,
        "context": pl.Int64,
        "process": pl.Int64,
        "change": pl.String,  # "restored", "saved" or "other"
    },
    "memory_pools": {  # sizes of pools of memory, after an operation on them
        "table": pl.String,
        "source": pl.String,
        "time": pl.Int64,
        "process": pl.Int64,
        "device": pl.Int32,
        "address": pl.Int64,
        "size": pl.Int64,
        "used": pl.Int64,
        "is_end": pl.Boolean,  # the pool is destroyed
    },
}

ROW_COUNTS = build_schema(
    {  # one row per stage, table and reason; the rows of a table were all read: used + left out = read
        # Stages that leave out rows.
        # * file: rows of the file, by their numbers; only of tables whose numbers have gaps, so that rows are
        #   missing.
        # * report: rows that were read; used are those in the frames of the report.
        # * projection: ranges and GPU operations of the report; used are ranges with a projection, and
        #   operations with a launch.
        "stage": pl.Enum(["file", "report", "projection"]),
        "table": pl.String,  # our name: "kernels"; in stage "projection" a frame: "ranges"
        "source": pl.String,  # name in the report; null in stage "projection"
        "reason": pl.String,  # why the rows were left out; null: they were used
        "row_count": pl.Int64,
    },
    name="ROW_COUNTS",
)

RUN_ROW_COUNTS = extend_schema(
    ROW_COUNTS,
    {"report": pl.String},  # path of the report, as named or found
    name="RUN_ROW_COUNTS",
)


class RowTally(Struct, kw_only=True):
    """Rows of the tables of a report: read, and left out so far; other rows are used.

    Attributes:
        read: Rows that were read, by table.
        sources: Name of each table in the report.
        left_out: Rows that were left out, by table and reason.
        missing: Rows that the numbers of a table's rows promise and its file lacks, by table.
    """

    read: dict[str, int] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    left_out: dict[tuple[str, str], int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)

    def leave_out(self, table: str, reason: str, count: int) -> None:
        """Count rows that are left out."""
        if count:
            self.left_out[table, reason] = self.left_out.get((table, reason), 0) + count

    def build(self) -> pl.DataFrame:
        """Build the counts of stages "file" and "report" (`ROW_COUNTS`), in the order of reading."""
        rows: list[tuple[str, str, str | None, str | None, int]] = []
        for table, count in self.missing.items():
            source, reasons = self.sources.get(table), {"missing: their numbers have gaps": count}
            rows += list_counts("file", table, self.read[table] + count, reasons, source=source)
        for table, count in self.read.items():
            reasons = {reason: lost for (name, reason), lost in self.left_out.items() if name == table}
            rows += list_counts("report", table, count, reasons, source=self.sources.get(table))
        return build_row_counts(rows)


def list_counts(
    stage: str, table: str, count: int, left_out: Mapping[str, int], *, source: str | None = None
) -> Iterator[tuple[str, str, str | None, str | None, int]]:
    """Yield the rows of `ROW_COUNTS` for one table.

    Args:
        stage: As in `ROW_COUNTS`.
        table: Name of the table or frame.
        count: Rows that the stage received.
        left_out: Rows that it left out, by reason; others are used.
        source: Name in the report.
    """
    yield stage, table, source, None, count - sum(left_out.values())
    for reason, rows in left_out.items():
        if rows:
            yield stage, table, source, reason, rows


def build_row_counts(rows: Iterable[tuple[str, str, str | None, str | None, int]]) -> pl.DataFrame:
    """Build `ROW_COUNTS` from its rows."""
    return pl.DataFrame([*rows], schema=ROW_COUNTS, orient="row")


MEMORY_KIND = pl.Enum(["pageable", "pinned", "device", "array", "managed", "device static", "managed static"])

_OP: DataTypes = {
    "start": pl.Int64,
    "end": pl.Int64,
    "device": pl.Int32,
    "context": pl.Int32,
    "stream": pl.Int64,
    "correlation": pl.Int64,
    "process": pl.Int64,
    "graph_node": pl.Int64,
    "graph": pl.Int64,
}

_STREAM_CALL: DataTypes = {
    "process": pl.Int64,
    "correlation": pl.Int64,
    "context": pl.Int32,
    "stream": pl.Int64,
    "event": pl.Int64,
    "record": pl.Int64,  # of the event, which calls that wait for it share with the call that made it
}

_MPI_CALL: DataTypes = {
    "start": pl.Int64,
    "end": pl.Int64,
    "thread": pl.Int64,
    "name_id": pl.Int32,
    "communicator": pl.Int64,
}


_COLUMNS: Mapping[str, DataTypes] = {
    "strings": {"id": pl.Int32, "text": pl.String},
    # ranges and marks, the rows that name domains and categories, and notes about threads, devices and files
    "nvtx": {
        "row": pl.Int64,
        "kind": pl.Enum(["push_pop", "start_end", "mark", "category", "domain", "note"]),
        "start": pl.Int64,
        "end": pl.Int64,
        "thread": pl.Int64,
        "end_thread": pl.Int64,
        "text": pl.String,  # Categorical in a table of many rows
        "text_id": pl.Int32,
        "domain": pl.Int64,
        "category": pl.Int64,
        "color": pl.Int64,
    },
    "payloads": {  # only rows with one
        "row": pl.Int64,
        "thread": pl.Int64,
        "uint64": pl.Int64,
        "int64": pl.Int64,
        "double": pl.Float64,
        "uint32": pl.Int64,
        "int32": pl.Int64,
        "float": pl.Float32,
        "json_id": pl.Int32,
        "json": pl.String,
        "binary": pl.String,  # hexadecimal
    },
    "payload_fields": {  # layout of binary payloads
        "domain": pl.Int64,
        "schema": pl.Int64,
        "index": pl.Int64,
        # null: not one of the simple types
        "type": pl.Enum(["int", "uint", "float", "char", "address"]),
        "bytes": pl.Int64,
        "name": pl.String,
        "count": pl.Int64,
        "offset": pl.Int64,
    },
    "calls": {
        "start": pl.Int64,
        "end": pl.Int64,
        "thread": pl.Int64,
        "correlation": pl.Int64,
        "name_id": pl.Int32,
    },
    "kernels": {
        **_OP,
        "name_id": pl.Int32,
        "full_name_id": pl.Int32,
        "registers": pl.Int32,
        "grid_x": pl.Int32,
        "grid_y": pl.Int32,
        "grid_z": pl.Int32,
        "block_x": pl.Int32,
        "block_y": pl.Int32,
        "block_z": pl.Int32,
        "static_shared": pl.Int64,
        "dynamic_shared": pl.Int64,
    },
    "copies": {
        **_OP,
        "direction": pl.Enum(
            [
                *("HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"),
                *("Unified HtoD", "Unified DtoH", "Unified DtoD"),
            ]
        ),
        "bytes": pl.Int64,
        "source": MEMORY_KIND,
        "target": MEMORY_KIND,
    },
    "sets": {**_OP, "bytes": pl.Int64},
    "graphs": _OP,  # graphs that were traced as one operation
    "decompressions": {**_OP, "bytes": pl.Int64},
    "synchronizations": _STREAM_CALL,  # calls that wait for a stream or an event
    "cuda_events": _STREAM_CALL,  # calls that record an event
    "processes": {"process": pl.Int64, "pid": pl.Int64, "name": pl.String},
    "thread_names": {"thread": pl.Int64, "name_id": pl.Int32},
    "gpus": {
        "id": pl.Int32,
        "name": pl.String,
        "bus_location": pl.String,
        "uuid": pl.String,
        "ordinal": pl.Int64,
    },
    "cuda_gpus": {"ordinal": pl.Int64, "name": pl.String, "bus_location": pl.String},  # of 2019
    "cuda_devices": {"pid": pl.Int64, "device": pl.Int32, "gpu": pl.Int64, "uuid": pl.String},
    "contexts": {
        "host": pl.Int64,
        "vm": pl.Int64,
        "pid": pl.Int64,
        "device": pl.Int32,
        "context": pl.Int32,
        "default_stream": pl.Int64,
    },
    "streams": {
        "host": pl.Int64,
        "vm": pl.Int64,
        "pid": pl.Int64,
        "context": pl.Int32,
        "stream": pl.Int64,
        "priority": pl.Int64,
        "kind": pl.Enum(["default", "blocking", "non-blocking"]),
    },
    "stream_names": {
        "host": pl.Int64,
        "vm": pl.Int64,
        "pid": pl.Int64,
        "context": pl.Int32,
        "stream": pl.Int64,
        "name": pl.String,
    },
    "session": {"utc_epoch": pl.Int64, "system_clock": pl.Int64},
    "capture": {"duration": pl.Int64, "session_start": pl.Int64},
    "ranks": {"thread": pl.Int64, "rank": pl.Int64},  # of MPI
    "mpi_messages": {**_MPI_CALL, "peer": pl.Int64, "tag": pl.Int64, "bytes": pl.Int64, "request": pl.Int64},
    "mpi_collectives": {**_MPI_CALL, "bytes": pl.Int64, "received_bytes": pl.Int64},
    "mpi_communicators": {  # one row per creation
        "rank": pl.Int64,  # of the process, among all
        "time": pl.Int64,
        "communicator": pl.Int64,
        "size": pl.Int64,
        "parent": pl.Int64,  # handle of the communicator it was made of; 0: of none
        "local_rank": pl.Int64,  # of the process, in the communicator
        "root": pl.Int64,  # rank, among all, of the process that numbered the communicator
        "number": pl.Int64,  # of the communicator, by that process
    },
    "os_calls": {
        "start": pl.Int64,
        "end": pl.Int64,
        "thread": pl.Int64,
        "name_id": pl.Int32,
        "is_call": pl.Boolean,  # null: an event of the tracing itself
    },
    "thread_switches": {
        "time": pl.Int64,
        "thread": pl.Int64,
        "is_in": pl.Int64,  # 0: off the processor; else onto it
    },
    "cuda_memory": {
        "time": pl.Int64,
        "process": pl.Int64,
        "device": pl.Int32,
        "correlation": pl.Int64,
        "kind": MEMORY_KIND,
        "action": pl.Enum(["allocation", "release"]),
        "address": pl.Int64,  # unsigned, stored as signed 64 bits
        "bytes": pl.Int64,
    },
    **{  # of tracing, and of CUDA as CUPTI records it: they hold a thread
        name: {"start": pl.Int64, "end": pl.Int64, "thread": pl.Int64, "name_id": pl.Int32}
        for name in ("overheads", "cuda_overheads")
    },
    "diagnostics": {  # of nsys itself
        "severity": pl.Enum(["info", "warning", "error", "verbose"]),
        "text": pl.String,
    },
    **COLUMNS_ON_REQUEST,
    "facts": {"name": pl.String, "value": pl.String},  # nsys_version, hostname, ...
    "launcher": {"name": pl.String, "value": pl.String},  # allow-listed variables
}

SCHEMAS: Mapping[str, Schema] = {name: build_schema(columns) for name, columns in _COLUMNS.items()}


TIMES = ("start", "end", "time")  # columns of times
_CALL = ("start", "end", "thread")
# Columns without which a row is of no use, by raw frame; the first reason first.
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "nvtx": ("kind", "thread"),
    "calls": _CALL,
    "synchronizations": ("process", "correlation"),
    "cuda_events": ("process", "correlation"),
    "mpi_messages": _CALL,
    "mpi_collectives": _CALL,
    "os_calls": ("is_call", *_CALL),
    "thread_switches": ("time", "thread", "is_in"),
    "cuda_memory": ("time", "process", "action"),
    "ranks": ("thread", "rank"),
    "activities": ("start",),
    "switches": ("time", "thread", "is_in"),
    "samples": ("time", "thread"),
    "stacks": ("sample", "symbol"),
    "os_stacks": ("stack_id", "symbol"),
    "cuda_stacks": ("stack_id", "symbol"),
    "call_stacks": _CALL,
    "mpi_requests": ("start", "thread"),
    "overheads": _CALL,
    "cuda_overheads": _CALL,
    "gpu_metrics": ("time", "type", "metric", "value"),
    "soc_metrics": ("time", "type", "metric", "value"),
    "generic_events": ("time", "type"),
    "processor_counts": ("start",),
    "gpu_contexts": ("time", "change"),
    "memory_pools": ("time", "process", "address"),
    "network_metrics": ("start", "value"),
    "diagnostics": ("text",),
    **dict.fromkeys(("kernels", "copies", "sets", "graphs", "decompressions"), ("start", "end")),
}
_OP_COLUMNS = ("device", "stream", "correlation")
# Columns that every version of nsys writes, and without which results differ.
EXPECTED: Mapping[str, tuple[str, ...]] = {
    "nvtx": ("start", "end", "text", "text_id", "domain", "end_thread"),
    "calls": ("correlation", "name_id"),
    "kernels": (*_OP_COLUMNS, "name_id", "full_name_id"),
    "copies": (*_OP_COLUMNS, "direction", "bytes"),
    "sets": (*_OP_COLUMNS, "bytes"),
}


class ExportedTable(Struct, frozen=True, kw_only=True):
    """A table of an export.

    Attributes:
        name: Its name there.
        row_count: Number of its rows.
        frames: Raw frames that it fills or would fill; () for tables that are counted at most.
        groups: Groups that read it; () for none, or for a table that is always read.
        is_known: It has an entry in `nsys_pp.read.names`.
    """

    name: str
    row_count: int
    frames: tuple[str, ...]
    groups: tuple[Group, ...]
    is_known: bool


class RawReport(Struct, frozen=True, kw_only=True):
    """The raw frames of an export.

    `frames` has all keys and schemas of `SCHEMAS`; frames of other groups than `groups`, and released ones,
    are empty. `recorded` has the number of rows of every table in the export, by our name, also of tables
    that are never read. `tally` counts the rows that were read, and those that were left out. `tables` lists
    all tables of the export, known or not; empty without group "tables". `lost` names absent columns of
    `EXPECTED`.
    """

    path: Path
    groups: frozenset[Group]
    frames: dict[str, pl.DataFrame]
    recorded: Mapping[str, int]
    tally: RowTally = field(default_factory=RowTally)
    tables: tuple[ExportedTable, ...] = ()
    lost: tuple[str, ...] = ()

    def keep(self, table: str, passes: pl.Series, reason: str) -> int:
        """Keep the rows of a table where `passes` is true; others are counted under the reason.

        No rows are dropped in another way. Without rows to drop the frame is not copied. Of a frame of many
        exported tables, the rows of each are counted by its name.

        Returns:
            The number of rows that were left out.
        """
        count = len(passes) - int(passes.sum() or 0)
        if count:
            frame = self.frames[table]
            self.frames[table] = frame.filter(passes)
            if "table" in frame.columns:
                for name, rows in frame["table"].filter(~passes.fill_null(value=False)).value_counts().rows():
                    self.tally.leave_out(name, reason, rows)
            else:
                self.tally.leave_out(table, reason, count)
        return count

    def release(self, *tables: str) -> None:
        """Free the rows of tables that were read for the last time: their frames become empty."""
        for table in tables:
            self.frames[table] = SCHEMAS[table].to_frame()

    def __getitem__(self, table: str) -> pl.DataFrame:
        """Return the frame of `table`."""
        return self.frames[table]

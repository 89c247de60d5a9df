"""Raw frames: rows of an export under the names of this package, from `nsys_pp.read` to `nsys_pp.model`.

Values are as recorded: ids unresolved, time as exported. Only enumerations are translated into the words below, so
that names of nsys occur in `nsys_pp.read.tables` only. Missing tables are empty frames, missing columns are null.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl
from msgspec import Struct, field

from nsys_pp.frames.columns import filter_rows
from nsys_pp.frames.conform import Schema, build_schema
from nsys_pp.frames.groups import Group
from nsys_pp.frames.raw_on_request import COLUMNS_ON_REQUEST
from nsys_pp.frames.row_counts import RowTally

NVTX_KIND = pl.Enum(["push_pop", "start_end", "mark", "category", "domain", "note"])
COPY_DIRECTION = pl.Enum(
    [
        *("HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"),
        *("Unified HtoD", "Unified DtoH", "Unified DtoD"),
    ]
)
STREAM_KIND = pl.Enum(["default", "blocking", "non-blocking"])
FIELD_TYPE = pl.Enum(["int", "uint", "float", "char", "address"])
MEMORY_KIND = pl.Enum(["pageable", "pinned", "device", "array", "managed", "device static", "managed static"])
MEMORY_ACTION = pl.Enum(["allocation", "release"])
SEVERITY = pl.Enum(["info", "warning", "error", "verbose"])

_Columns = Mapping[str, pl.DataType | type[pl.DataType]]

_OP: _Columns = {
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

_STREAM_CALL: _Columns = {
    "process": pl.Int64,
    "correlation": pl.Int64,
    "context": pl.Int32,
    "stream": pl.Int64,
    "event": pl.Int64,
    "record": pl.Int64,  # of the event, which calls that wait for it share with the call that made it
}

_MPI_CALL: _Columns = {
    "start": pl.Int64,
    "end": pl.Int64,
    "thread": pl.Int64,
    "name_id": pl.Int32,
    "communicator": pl.Int64,
}


_COLUMNS: Mapping[str, _Columns] = {
    "strings": {"id": pl.Int32, "text": pl.String},
    "nvtx": {  # ranges and marks, the rows that name domains and categories, and notes about threads, devices and files
        "row": pl.Int64,
        "kind": NVTX_KIND,
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
        "type": FIELD_TYPE,  # null: not one of the simple types
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
    "copies": {**_OP, "direction": COPY_DIRECTION, "bytes": pl.Int64},
    "copy_kinds": {  # memory of each copy
        "process": pl.Int64,
        "correlation": pl.Int64,
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
        "kind": STREAM_KIND,
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
        "action": MEMORY_ACTION,
        "address": pl.Int64,  # unsigned, stored as signed 64 bits
        "bytes": pl.Int64,
    },
    **{  # of tracing, and of CUDA as CUPTI records it: they hold a thread
        name: {"start": pl.Int64, "end": pl.Int64, "thread": pl.Int64, "name_id": pl.Int32}
        for name in ("overheads", "cuda_overheads")
    },
    "diagnostics": {"severity": SEVERITY, "text": pl.String},  # of nsys itself
    **COLUMNS_ON_REQUEST,
    "facts": {"name": pl.String, "value": pl.String},  # nsys_version, hostname, ...
    "launcher": {"name": pl.String, "value": pl.String},  # allow-listed variables
}

SCHEMAS: Mapping[str, Schema] = {name: build_schema(columns) for name, columns in _COLUMNS.items()}


class ExportedTable(Struct, frozen=True, kw_only=True):
    """A table of an export.

    Attributes:
        name: Its name there.
        row_count: Number of its rows.
        frames: Raw frames that it fills or would fill; () for tables that are counted at most.
        groups: Groups that read it; () for none, or for a table that is always read.
        is_known: It has an entry in `nsys_pp.read.tables`.
    """

    name: str
    row_count: int
    frames: tuple[str, ...]
    groups: tuple[Group, ...]
    is_known: bool


class RawReport(Struct, frozen=True, kw_only=True):
    """The raw frames of an export.

    `frames` has all keys and schemas of `SCHEMAS`; frames of other groups than `groups`, and released ones, are empty. `recorded` has the
    number of rows of every table in the export, by our name, also of tables that are never read. `tally` counts the rows that
    were read, and those that were left out. `tables` lists all tables of the export, known or not; empty without group "tables".
    """

    path: Path
    groups: frozenset[Group]
    frames: dict[str, pl.DataFrame]
    recorded: Mapping[str, int]
    tally: RowTally = field(default_factory=RowTally)
    tables: tuple[ExportedTable, ...] = ()

    def keep(self, table: str, passes: pl.Series, reason: str) -> int:
        """Keep the rows of a table where `passes` is true; others are counted under the reason.

        No rows are dropped in another way. Without rows to drop the frame is not copied. Of a frame of many exported
        tables, the rows of each are counted by its name.

        Returns:
            The number of rows that were left out.
        """
        count = len(passes) - int(passes.sum() or 0)
        if count:
            frame = self.frames[table]
            self.frames[table] = filter_rows(frame, passes)
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

"""Raw frames: rows of an export under the names of this package, from `nsys_pp.read` to `nsys_pp.model`.

Values are as recorded: ids unresolved, time as exported. Only enumerations are translated into the words below, so
that names of nsys occur in `nsys_pp.read.tables` only. Missing tables are empty frames, missing columns are null.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

import polars as pl
from msgspec import Struct

from nsys_pp.frames.conform import Schema, build_schema

Group = Literal["ranges", "ops", "kernel_names", "details", "cpu", "communication", "os_calls", "host"]
"""Groups of data to read in addition to the session: NVTX ranges; calls and GPU operations; demangled names of
kernels; details of operations (these names, grids, registers, bytes); data of CPU threads (names of calls; colors, categories and payloads of ranges);
communication between ranks (payloads of NCCL's ranges, calls of MPI); calls of the operating system; data of the host
for summaries (these calls, runs of threads, allocations)."""

ALL_GROUPS: frozenset[Group] = frozenset(get_args(Group))

NVTX_KIND = pl.Enum(["push_pop", "start_end", "mark", "category", "domain"])
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
    "nvtx": {  # ranges and marks, and the rows that name domains and categories
        "row": pl.Int64,
        "kind": NVTX_KIND,
        "start": pl.Int64,
        "end": pl.Int64,
        "thread": pl.Int64,
        "end_thread": pl.Int64,
        "text": pl.String,
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
    "capture": {"duration": pl.Int64},
    "ranks": {"thread": pl.Int64, "rank": pl.Int64},  # of MPI
    "mpi_messages": {**_MPI_CALL, "peer": pl.Int64, "tag": pl.Int64, "bytes": pl.Int64},
    "mpi_collectives": {**_MPI_CALL, "bytes": pl.Int64, "received_bytes": pl.Int64},
    "mpi_communicators": {  # one row per creation
        "rank": pl.Int64,  # of the process, among all
        "time": pl.Int64,
        "communicator": pl.Int64,
        "size": pl.Int64,
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
    "diagnostics": {"severity": SEVERITY, "text": pl.String},  # of nsys itself
    "facts": {"name": pl.String, "value": pl.String},  # nsys_version, hostname, ...
    "launcher": {"name": pl.String, "value": pl.String},  # allow-listed variables
}

SCHEMAS: Mapping[str, Schema] = {name: build_schema(columns) for name, columns in _COLUMNS.items()}


class RawReport(Struct, frozen=True, kw_only=True):
    """The raw frames of an export.

    `frames` has all keys and schemas of `SCHEMAS`; frames of other groups than `groups`, and released ones, are empty. `recorded` has the
    number of rows of every table in the export, by our name, also of tables that are never read.
    """

    path: Path
    groups: frozenset[Group]
    frames: dict[str, pl.DataFrame]
    recorded: Mapping[str, int]

    def release(self, *tables: str) -> None:
        """Free the rows of tables that were read for the last time: their frames become empty."""
        for table in tables:
            self.frames[table] = SCHEMAS[table].to_frame()

    def __getitem__(self, table: str) -> pl.DataFrame:
        """Return the frame of `table`."""
        return self.frames[table]

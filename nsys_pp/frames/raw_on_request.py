"""Columns of the raw frames that are read on request (`--show`); continues `nsys_pp.frames.raw`."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

_Columns = Mapping[str, pl.DataType | type[pl.DataType]]

_STACK: _Columns = {  # frames of stacks
    "stack_id": pl.Int64,
    "symbol": pl.Int32,
    "module": pl.Int32,
    "depth": pl.Int64,  # 0: the innermost
}

COLUMNS_ON_REQUEST: Mapping[str, _Columns] = {
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
"""Columns by raw frame."""

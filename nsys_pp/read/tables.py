"""Names of nsys' tables and columns, of all versions; no other module has them.

A `Table` maps an exported table to a raw frame (`nsys_pp.frames.raw.SCHEMAS`) and its columns to columns of the frame. Exports of every version from 2019
(no version table at all) to schema 3.28.1 are read by their contents, not by their version: every table and most columns are optional, a changed name is a second name in a tuple, and the first existing name counts.
"""

from __future__ import annotations

from collections.abc import Mapping

from nsys_pp.frames.raw import Group
from nsys_pp.read.table import Column, Table
from nsys_pp.read.tables_on_request import MEMORY_KINDS, OVERHEADS

ROW_ID = "rowid"  # not a column: the position of the row in its table
STRINGS_TABLE = "StringIds"  # in every export
PAYLOAD_FIELDS_TABLE = "NVTX_PAYLOAD_SCHEMA_ENTRIES"


def _c(*names: str, groups: tuple[Group, ...] = (), words: Mapping[int, str | int] | None = None) -> Column:
    return Column(names, groups, words)


def _same(*names: str) -> dict[str, Column]:
    return {name: Column((name,)) for name in names}


_NVTX_KINDS: dict[int, str | int] = {
    33: "category",
    34: "mark",
    59: "push_pop",
    60: "start_end",
    70: "push_pop",  # imported nvtxt
    71: "start_end",
    75: "domain",
    # names of threads and processes, ends of domains, names of devices, contexts and streams
    **dict.fromkeys((39, 72, 73, 74, 76, 97, 98, 99), "note"),
}
_COPY_DIRECTIONS: dict[int, str | int] = dict(
    enumerate(
        (
            *("HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"),
            *("Unified HtoD", "Unified DtoH", "Unified DtoD"),
        ),
        start=1,
    )
)
_STREAM_KINDS: dict[int, str | int] = {1: "blocking", 2: "non-blocking", 3: "default"}

# NVTX's numbers of payload field types; C's long has 64 bits on the platforms of nsys.
# Numbers from 1 << 24 on are enumerations defined by the program; those of NCCL have 32 bits.
_PROGRAM_TYPES = 1 << 24
_FIELD_TYPES: dict[int, str | int] = {
    **dict.fromkeys((1, 2), "char"),
    **dict.fromkeys((3, 5, 7, 9, 11, 13, 15, 17), "int"),
    **dict.fromkeys((4, 6, 8, 10, 12, 14, 16, 18, 22), "uint"),
    **dict.fromkeys((19, 20), "float"),
    23: "address",
}
_FIELD_BYTES: dict[int, str | int] = {
    **dict.fromkeys((1, 2, 11, 12), 1),
    **dict.fromkeys((3, 4, 13, 14), 2),
    **dict.fromkeys((5, 6, 15, 16, 19), 4),
    **dict.fromkeys((7, 8, 9, 10, 17, 18, 20, 22, 23), 8),
}

_OS_CALLS: dict[int, str | int] = {27: True}  # other rows are the start and the end of tracing
_MEMORY_ACTIONS: dict[int, str | int] = {0: "allocation", 1: "release"}
_SEVERITIES: dict[int, str | int] = {1: "info", 2: "warning", 3: "error", 4: "verbose"}
_OP = {
    **_same("start", "end"),
    "device": _c("deviceId"),
    "context": _c("contextId"),
    "stream": _c("streamId"),
    "correlation": _c("correlationId"),
    "process": _c("globalPid"),
    "graph_node": _c("graphNodeId"),
    "graph": _c("graphId"),
}
_STREAM_CALL = {
    "process": _c("globalPid"),
    "correlation": _c("correlationId"),
    "context": _c("contextId"),
    "stream": _c("streamId"),
    "event": _c("eventId"),
    "record": _c("eventSyncId"),
}
_MPI_CALL = {
    **_same("start", "end"),
    "thread": _c("globalTid"),
    "name_id": _c("textId"),
    "communicator": _c("commHandle"),
}
_CUDA_OWNER = {"host": _c("hwId"), "vm": _c("vmId"), "pid": _c("processId")}
_NAME_VALUE = {"name": _c("name"), "value": _c("value")}

EXPORT_FACTS = {
    "EXPORT_PRODUCT_VERSION": "nsys_version",
    "EXPORT_SCHEMA_VERSION": "schema_version",
    "EXPORT_CONFIG_TIME_SHIFT": "time_shift_ns",
}
CAPTURE_FACTS = {
    "CUDA_GRAPH_TRACE_OPTIONS:MODE": "graph_mode",
    "PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE": "graph_mode",
}
SYSTEM_FACTS = {
    "Hostname": "hostname",
    "NSYS_HW_ID": "hardware_id",
    "SystemUID": "system_id",
    "CudaDriverVersion": "cuda_driver_version",
    "NvDriverVersion": "driver_version",
    "OsDescription": "os",
}

# The recorded environment is secret except for these variables: whole numbers, or a list of devices.
# `nsys_pp.frames.ids` reads ranks from them.
LAUNCHER_NUMBERS = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK"),
    *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_JOB_ID"),
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    *("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_SIZE"),
    *("PMI_RANK", "PMI_LOCAL_RANK", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALRANKID"),
    *("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_RANK_IN_NODE"),
    *("PALS_RANKID", "PALS_LOCAL_RANKID", "ALPS_APP_PE"),
    *("FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_SIZE"),
    *("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_SIZE"),
)
_DEVICE = r"(?:\d{1,3}|(?:GPU|MIG|MIG-GPU)-[0-9a-fA-F-]{1,40}(?:/\d{1,3}){0,2})"
LAUNCHER_VARIABLE = (
    rf"^(?:({'|'.join(LAUNCHER_NUMBERS)})=\"?(\d{{1,12}})\"?"
    rf"|(CUDA_VISIBLE_DEVICES)=\"?({_DEVICE}(?:,{_DEVICE})*)\"?)$"
)
ENVIRONMENT_ROWS = {
    "PROCESS_0:ENVIRONMENT_VARIABLE": "variable",  # NAME="value", one variable a row
    "ENVIRONMENT_VARIABLE": "variable",
    "DeviceEnvironment": "block",  # NAME=value;NAME=value;...
}
USER_ROWS = ("UserName",)  # of the tables of names and values
FACT_TABLES = ("META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV", "META_DATA_EXPORT", "EXPORT_META_DATA")

TABLES = (
    *OVERHEADS,
    Table("strings", (STRINGS_TABLE,), {"id": _c("id"), "text": _c("value")}),
    Table(
        "nvtx",
        ("NVTX_EVENTS",),
        {
            "row": _c(ROW_ID, "eventId"),
            "kind": _c("eventType", words=_NVTX_KINDS),
            **_same("start", "end"),
            "thread": _c("globalTid"),
            "end_thread": _c("endGlobalTid"),
            "text": _c("text"),
            "text_id": _c("textId"),
            "domain": _c("domainId"),
            "category": _c("category", groups=("cpu",)),
            "color": _c("color", groups=("cpu",)),
        },
        groups=("ranges",),
    ),
    Table(
        "payloads",
        ("NVTX_EVENTS",),
        {
            "row": _c(ROW_ID, "eventId"),
            "thread": _c("globalTid", groups=("communication",)),
            "uint64": _c("uint64Value", groups=("cpu",)),
            "int64": _c("int64Value", groups=("cpu",)),
            "double": _c("doubleValue", groups=("cpu",)),
            "uint32": _c("uint32Value", groups=("cpu",)),
            "int32": _c("int32Value", groups=("cpu",)),
            "float": _c("floatValue", groups=("cpu",)),
            "json_id": _c("jsonTextId", groups=("cpu",)),
            "json": _c("jsonText", groups=("cpu",)),
            "binary": _c("binaryData", groups=("cpu", "communication")),
        },
        groups=("cpu", "communication"),
        # structures without a recorded layout cannot be read
        useless_without={"communication": PAYLOAD_FIELDS_TABLE},
        any_of=("uint64", "int64", "double", "uint32", "int32", "float", "json_id", "json", "binary"),
    ),
    Table(
        "payload_fields",
        (PAYLOAD_FIELDS_TABLE,),
        {
            "domain": _c("domainId"),
            "schema": _c("schemaId"),
            "index": _c("idx"),
            "type": Column(("type",), words=_FIELD_TYPES, words_beyond=(_PROGRAM_TYPES, "uint")),
            "bytes": Column(("type",), words=_FIELD_BYTES, words_beyond=(_PROGRAM_TYPES, 4)),
            "name": _c("name"),
            "count": _c("arrayOrUnionDetail"),
            "offset": _c("offset"),
        },
        groups=("cpu", "communication"),
    ),
    Table(
        "calls",
        ("CUPTI_ACTIVITY_KIND_RUNTIME",),
        {
            **_same("start", "end"),
            "thread": _c("globalTid"),
            "correlation": _c("correlationId"),
            "name_id": _c("nameId", groups=("cpu", "communication")),
        },
        groups=("ops",),
    ),
    Table(
        "kernels",
        ("CUPTI_ACTIVITY_KIND_KERNEL",),
        {
            **_OP,
            "name_id": _c("shortName", "demangledName"),
            "full_name_id": _c("demangledName", groups=("kernel_names", "details")),
            "registers": _c("registersPerThread", groups=("details",)),
            **{f"grid_{axis.lower()}": _c(f"grid{axis}", groups=("details",)) for axis in "XYZ"},
            **{f"block_{axis.lower()}": _c(f"block{axis}", groups=("details",)) for axis in "XYZ"},
            "static_shared": _c("staticSharedMemory", groups=("details",)),
            "dynamic_shared": _c("dynamicSharedMemory", groups=("details",)),
        },
        groups=("ops",),
    ),
    Table(
        "copies",
        ("CUPTI_ACTIVITY_KIND_MEMCPY",),
        {
            **_OP,
            "direction": _c("copyKind", words=_COPY_DIRECTIONS),
            "bytes": _c("bytes", groups=("details",)),
        },
        groups=("ops",),
    ),
    Table(
        "sets",
        ("CUPTI_ACTIVITY_KIND_MEMSET",),
        {**_OP, "bytes": _c("bytes", groups=("details",))},
        groups=("ops",),
    ),
    Table("graphs", ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE",), _OP, groups=("ops",)),
    Table(
        "decompressions",
        ("CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS",),
        {**_OP, "bytes": _c("sourceBytes", "bytes", groups=("details",))},
        groups=("ops",),
    ),
    *(
        Table(frame, (name,), _STREAM_CALL, groups=("communication", "show_sync"))
        for frame, name in (
            ("synchronizations", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"),
            ("cuda_events", "CUPTI_ACTIVITY_KIND_CUDA_EVENT"),
        )
    ),
    Table("processes", ("PROCESSES",), {"process": _c("globalPid"), **_same("pid", "name")}),
    Table("thread_names", ("ThreadNames",), {"thread": _c("globalTid"), "name_id": _c("nameId")}),
    Table(
        "gpus",
        ("TARGET_INFO_GPU",),
        {
            "id": _c("id", "deviceId"),
            **_same("name", "uuid"),
            "bus_location": _c("busLocation"),
            "ordinal": _c("cuDevice"),
        },
    ),
    Table(
        "cuda_gpus",
        ("TARGET_INFO_CUDA_GPU",),
        {"ordinal": _c("deviceId"), "name": _c("name"), "bus_location": _c("pciBusId")},
    ),
    Table(
        "cuda_devices",
        ("TARGET_INFO_CUDA_DEVICE",),
        {"pid": _c("pid"), "device": _c("cudaId"), "gpu": _c("gpuId"), "uuid": _c("uuid")},
    ),
    Table(
        "contexts",
        ("TARGET_INFO_CUDA_CONTEXT_INFO", "TARGET_INFO_CUDA_NULL_STREAM"),
        {
            **_CUDA_OWNER,
            "device": _c("deviceId"),
            "context": _c("contextId"),
            "default_stream": _c("nullStreamId", "streamId"),
        },
    ),
    Table(
        "streams",
        ("TARGET_INFO_CUDA_STREAM",),
        {
            **_CUDA_OWNER,
            "context": _c("contextId"),
            "stream": _c("streamId"),
            "priority": _c("priority"),
            "kind": _c("flag", words=_STREAM_KINDS),
        },
    ),
    Table(
        "stream_names",
        ("TARGET_INFO_NVTX_CUDA_STREAM",),
        {**_CUDA_OWNER, "context": _c("contextId"), "stream": _c("streamId"), "name": _c("name")},
    ),
    Table(
        "session",
        ("TARGET_INFO_SESSION_START_TIME",),
        {"utc_epoch": _c("utcEpochNs"), "system_clock": _c("systemClockNs")},
    ),
    Table("capture", ("ANALYSIS_DETAILS",), {**_same("duration"), "session_start": _c("startTime")}),
    Table("ranks", ("MPI_RANKS",), {"thread": _c("globalTid"), "rank": _c("rank")}),
    Table(
        "mpi_messages",
        ("MPI_P2P_EVENTS",),
        {
            **_MPI_CALL,
            "peer": _c("remoteRank"),
            "tag": _c("tag"),
            "bytes": _c("size"),
            "request": _c("requestHandle", groups=("show_mpi",)),
        },
        groups=("communication", "show_mpi"),
    ),
    Table(
        "mpi_collectives",
        ("MPI_COLLECTIVES_EVENTS",),
        {**_MPI_CALL, "bytes": _c("size"), "received_bytes": _c("recvSize")},
        groups=("communication",),
    ),
    Table(
        "mpi_communicators",
        ("MPI_COMMUNICATORS",),
        {
            "rank": _c("rank"),
            "time": _c("timestamp"),
            "communicator": _c("commHandle"),
            "size": _c("size"),
            "parent": _c("parentHandle", groups=("show_mpi",)),
            "local_rank": _c("localRank", groups=("show_mpi",)),
            "root": _c("groupRoot", groups=("show_mpi",)),
            "number": _c("groupRootUid", groups=("show_mpi",)),
        },
        groups=("communication", "show_mpi"),
    ),
    Table(
        "os_calls",
        ("OSRT_API",),
        {
            **_same("start", "end"),
            "thread": _c("globalTid"),
            "name_id": _c("nameId"),
            "is_call": _c("eventClass", words=_OS_CALLS),
        },
        groups=("host", "os_calls"),
    ),
    Table(
        "thread_switches",
        ("SCHED_EVENTS",),
        {"time": _c("start"), "thread": _c("globalTid"), "is_in": _c("isSchedIn")},
        groups=("host",),
    ),
    Table(
        "cuda_memory",
        ("CUDA_GPU_MEMORY_USAGE_EVENTS",),
        {
            "time": _c("start"),
            "process": _c("globalPid"),
            "device": _c("deviceId"),
            "correlation": _c("correlationId"),
            "kind": _c("memKind", words=MEMORY_KINDS),
            "action": _c("memoryOperationType", words=_MEMORY_ACTIONS),
            **_same("address", "bytes"),
        },
        groups=("host", "show_memory"),
    ),
    Table(
        "diagnostics",
        ("DIAGNOSTIC_EVENT",),
        {"severity": _c("severity", words=_SEVERITIES), "text": _c("text")},
    ),
    Table("facts", ("META_DATA_EXPORT", "EXPORT_META_DATA"), _NAME_VALUE, rows_named=EXPORT_FACTS),
    Table("facts", ("META_DATA_CAPTURE",), _NAME_VALUE, rows_named=CAPTURE_FACTS),
    Table("facts", ("TARGET_INFO_SYSTEM_ENV",), _NAME_VALUE, rows_named=SYSTEM_FACTS),
    Table("launcher", ("META_DATA_CAPTURE",), _NAME_VALUE, rows_named=ENVIRONMENT_ROWS),
    Table("launcher", ("TARGET_INFO_SYSTEM_ENV",), _NAME_VALUE, rows_named=ENVIRONMENT_ROWS),
)

# Tables that are only counted, to list the recorded kinds of data. In 2024 the table of graph nodes lost its name to one of graphs.
COUNTED = (
    Table("graph_nodes", ("CUDA_GRAPH_NODE_EVENTS",), {}),
    Table("graph_nodes", ("CUDA_GRAPH_EVENTS",), {}, must_have=("graphNodeId",)),
    Table("graph_creations", ("CUDA_GRAPH_EVENTS",), {}, must_have=("graphId",)),
    Table("host_callbacks", ("CUDA_HOST_CALLBACK",), {}),
    Table("cpu_samples", ("COMPOSITE_EVENTS",), {}),
    Table("gpu_metrics", ("GPU_METRICS",), {}),
    Table("gpu_context_switches", ("GPU_CONTEXT_SWITCH_EVENTS", "FECS_EVENTS"), {}),
    Table("nic_metrics", ("NET_NIC_METRIC",), {}),
    Table("mpi_other", ("MPI_OTHER_EVENTS",), {}),
    Table("ucx_calls", ("UCP_EVENTS",), {}),
    Table("cublas_calls", ("CUBLAS_EVENTS",), {}),
    Table("cudnn_calls", ("CUDNN_EVENTS",), {}),
)

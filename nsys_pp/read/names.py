"""All tables and columns of nsys that are read, by any of their names, and the raw frames that they fill."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from nsys_pp.frames.raw import Group


class Column(Struct, frozen=True):
    """A column to read: its names, newest first, and the groups that need it."""

    names: tuple[str, ...]
    groups: tuple[Group, ...] = ()  # read for any of these; (): whenever the table is read
    words: Mapping[int, str | int] | None = None  # enumeration -> our words; other numbers become null
    words_beyond: tuple[int, str | int] | None = None  # (first number, word for it and all larger numbers)


class Table(Struct, frozen=True):
    """An exported table that fills a raw frame, or a part of it."""

    frame: str
    names: tuple[str, ...]
    columns: Mapping[str, Column]
    groups: tuple[Group, ...] = ()  # read for any of these; (): always
    useless_without: Mapping[Group, str] = field(default_factory=dict)  # group -> table that it requires
    superseded_by: Mapping[Group, str] = field(default_factory=dict)  # group -> table that has it instead
    must_have: tuple[str, ...] = ()  # exported columns that identify the table
    any_of: tuple[str, ...] = ()  # rows where one of these frame columns is set; () for all rows
    rows_named: Mapping[str, str] = field(
        default_factory=dict
    )  # name of a row -> name of the fact in the raw frame
    title: str = ""  # of its row in a trace: column "source" of the raw frame


class Source(Struct, frozen=True):
    """A `Table` in one export: its name, and its columns that exist and are needed."""

    table: Table
    name: str
    columns: Mapping[str, str]  # raw column -> exported column
    lost: tuple[str, ...] = ()  # needed columns of `EXPECTED` that the export lacks


def _c(*names: str, groups: tuple[Group, ...] = (), words: Mapping[int, str | int] | None = None) -> Column:
    return Column(names, groups, words)


_GPU_METRICS: tuple[Group, ...] = ("show_metrics", "overview", "metric_sums")
_NETWORK: tuple[Group, ...] = ("show_network", "network_sums")
_NETWORK_METRIC = {
    "start": _c("start"),
    "end": _c("end"),
    "device": _c("globalId"),
    "port": _c("portId"),
    "list": _c("metricsListId"),
    "index": _c("metricsIdx"),
    "value": _c("value"),
}
_EVENT = {
    "time": _c("timestamp", "rawTimestamp"),
    "type": _c("typeId"),
    "text": _c("data"),
    "thread": _c("globalTid"),
}


def _list_metrics(prefix: str, rows: str, names: str, groups: tuple[Group, ...]) -> tuple[Table, Table]:
    """Describe the tables of values and of names of metrics that have one row per sample and metric."""
    return (
        Table(
            f"{prefix}_metrics",
            (rows,),
            {
                "time": _c("timestamp", "rawTimestamp"),
                "type": _c("typeId"),
                "metric": _c("metricId"),
                "value": _c("value"),
            },
            groups=groups,
            must_have=("typeId", "metricId", "value"),  # copies without rows have others
        ),
        Table(
            f"{prefix}_metric_names",
            (names,),
            {"type": _c("typeId"), "metric": _c("metricId"), "name": _c("metricName")},
            groups=groups,
            must_have=("typeId", "metricId", "metricName"),
        ),
    )


# Tables of GPU metrics since 2023, which traces and parts have without being asked.
METRIC_TABLES = _list_metrics("gpu", "GPU_METRICS", "TARGET_INFO_GPU_METRICS", _GPU_METRICS)

TABLES_OF_SAMPLES = (
    *METRIC_TABLES,
    *_list_metrics("soc", "SOC_METRICS", "TARGET_INFO_SOC_METRICS", ("show_metrics",)),
    # GPU metrics of versions before 2023.4, and other events of the system: values as JSON, since 2025 also
    # in a table
    Table(
        "generic_events",
        ("GENERIC_EVENTS",),
        {**_EVENT, "id": _c("genericEventId")},
        groups=(*_GPU_METRICS, "show_other"),
        superseded_by=dict.fromkeys(_GPU_METRICS, "GPU_METRICS"),
    ),
    Table("generic_events", ("ETW_EVENTS",), _EVENT, groups=("show_other",), must_have=("typeId",)),
    Table(
        "generic_event_types",
        ("GENERIC_EVENT_TYPES",),
        {"type": _c("typeId"), "text": _c("data"), "name_id": _c("nameId")},
        groups=("show_other",),
    ),
    Table(
        "generic_fields",
        ("GENERIC_EVENT_TYPE_FIELDS",),
        {"type": _c("typeId"), "field": _c("fieldIdx"), "name_id": _c("fieldNameId")},
        groups=("show_other",),
    ),
    Table(
        "generic_values",
        ("GENERIC_EVENT_DATA",),
        {
            "id": _c("genericEventId"),
            "field": _c("fieldIdx"),
            "integer": _c("intVal"),
            "unsigned": _c("uintVal"),
            "float": _c("floatVal"),
            "double": _c("doubleVal"),
        },
        groups=("show_other",),
    ),
    Table("network_metrics", ("NET_NIC_METRIC",), _NETWORK_METRIC, groups=_NETWORK, title="network card"),
    Table("network_metrics", ("NET_IB_SWITCH_METRIC",), _NETWORK_METRIC, groups=_NETWORK, title="IB switch"),
    Table(
        "network_metric_names",
        ("TARGET_INFO_NETWORK_METRICS",),
        {"list": _c("metricsListId"), "index": _c("metricsIdx"), "name": _c("name"), "unit": _c("unit")},
        groups=_NETWORK,
    ),
    Table(
        "network_cards",
        ("NIC_ID_MAP",),
        {"card": _c("nicId"), "device": _c("globalId")},
        groups=_NETWORK,
    ),
    Table(
        "network_card_names",
        ("TARGET_INFO_NIC_INFO",),
        {"card": _c("nicId"), "device": _c("globalId", "GUID"), "name": _c("name")},
        groups=_NETWORK,
    ),
    # counters of cores (2019 to 2026), of the memory system around them, and by `perf`: their tables were
    # renamed in 2025
    Table(
        "processor_counts",
        ("PMU_EVENTS",),
        {"start": _c("start"), "end": _c("end"), "unit": _c("cpu"), "set": _c("counter_id")},
        groups=("show_counters",),
        title="CPU",
    ),
    Table(
        "processor_counts",
        ("UNCORE_PMU_EVENTS",),
        {"start": _c("start"), "end": _c("end"), "unit": _c("clusterId"), "set": _c("counterId")},
        groups=("show_counters",),
        title="cluster",
    ),
    *(
        Table(
            "processor_counts",
            (f"PERF_EVENT_{kind}_EVENT",),
            {
                "start": _c("start"),
                "end": _c("end"),
                "unit": _c("componentId"),
                "event": _c("eventId", "metricId"),
                "value": _c("count", "value"),
            },
            groups=("show_counters",),
            title="component",
        )
        for kind in ("CPU_RAW", "CPU_METRIC", "SOC_OR_CPU_RAW", "SOC_OR_CPU_METRIC")
    ),
    Table(
        "processor_values",
        ("PMU_EVENT_COUNTERS",),
        {"set": _c("id"), "event": _c("idx"), "value": _c("value")},
        groups=("show_counters",),
        title="CPU",
    ),
    Table(
        "processor_values",
        ("UNCORE_PMU_EVENT_VALUES",),
        {"set": _c("id"), "event": _c("rawId"), "value": _c("value")},
        groups=("show_counters",),
        title="cluster",
    ),
    Table(
        "processor_counter_names",
        ("PMU_EVENT_REQUESTS",),
        {"event": _c("id"), "name": _c("event_name")},
        groups=("show_counters",),
        title="CPU",
    ),
    Table(
        "processor_counter_names",
        ("TARGET_INFO_PERF_METRIC",),
        {"event": _c("id"), "label": _c("displayName"), "name": _c("name"), "measure": _c("unit")},
        groups=("show_counters",),
        title="component",
    ),
    Table(
        "processor_components",
        ("TARGET_INFO_COMPONENT",),
        {"unit": _c("componentId"), "name": _c("name"), "instance": _c("instance")},
        groups=("show_counters",),
    ),
)


_THREAD_STATES: dict[int, str | int] = dict(
    enumerate(
        (
            *("interruptible", "uninterruptible", "stopped", "terminated", "unscheduled", "waiting"),
            *("OS runtime", "initialized", "transition"),
        ),
        start=2,  # 0 is unknown, and 1 running
    )
)
# of contexts of GPUs: the numbers 1 to 6 and 9 are requests, acknowledgements and starts of work
_CONTEXT_CHANGES: dict[int, str | int] = {
    **dict.fromkeys((1, 2, 3, 4, 5, 6, 9), "other"),
    7: "saved",
    8: "restored",
}
_OS_CALLS: dict[int, str | int] = {27: True}  # other rows are the start and the end of tracing
_NAMES_OF_CALLS = ("nameId", "textId")
_CALL = {
    "start": _c("start"),
    "end": _c("end"),
    "thread": _c("globalTid"),
    "name_id": _c(*_NAMES_OF_CALLS),
}
MEMORY_KINDS: dict[int, str | int] = dict(
    enumerate(("pageable", "pinned", "device", "array", "managed", "device static", "managed static"))
)
_AT_PROCESS = {"start": _c("start"), "process": _c("globalPid")}
_STACK = {"stack_id": _c("id"), "symbol": _c("symbol"), "module": _c("module"), "depth": _c("stackDepth")}
_MPI = {**_CALL, "bytes": _c("size", "recvSize"), "peer": _c("remoteRank"), "tag": _c("tag")}
_UCX = {**_CALL, "bytes": _c("packedSize"), "peer": _c("peerWorkerUid"), "tag": _c("tag")}
_OPENMP_KINDS = (
    *("CANCEL", "CRITICAL_SECTION", "DISPATCH", "FLUSH", "LOCK_DESTROY", "LOCK_INIT", "MASTER"),
    *("MUTEX_RELEASED", "MUTEX_WAIT", "PARALLEL", "REDUCTION", "SYNC_REGION", "SYNC_REGION_WAIT", "TASK"),
    *("TASK_CREATE", "TASK_SCHEDULE", "THREAD", "WORKSHARE"),
)
_LIBRARIES = {
    "cuDNN": ("CUDNN_EVENTS",),
    "cuBLAS": ("CUBLAS_EVENTS",),
    "OpenACC": tuple(f"CUPTI_ACTIVITY_KIND_OPENACC_{kind}" for kind in ("DATA", "LAUNCH", "OTHER")),
    "OpenMP": tuple(f"OPENMP_EVENT_KIND_{kind}" for kind in _OPENMP_KINDS),
    "video": ("NVVIDEO_DECODER_API", "NVVIDEO_ENCODER_API", "NVVIDEO_JPEG_API"),
    "Vulkan": ("VULKAN_API", "VULKAN_DEBUG_API"),
    "OpenGL": ("OPENGL_API",),
    "Direct3D": ("DX12_API", "D3D11_PIX_DEBUG_API", "D3D12_PIX_DEBUG_API", "DXGI_API", "NVAPI_API"),
}


def _activities(title: str, name: str, group: Group, columns: dict[str, Column]) -> Table:
    return Table("activities", (name,), columns, groups=(group,), title=title)


TABLES_ON_REQUEST = (
    Table(
        "activities",
        ("OSRT_API",),
        {**_CALL, "is_kept": Column(("eventClass",), words=_OS_CALLS), "stack_id": _c("callchainId")},
        groups=("show_os",),
        title="OS calls",
    ),
    Table(
        "switches",
        ("SCHED_EVENTS",),
        {
            "time": _c("start"),
            "thread": _c("globalTid"),
            "cpu": _c("cpu"),
            "is_in": _c("isSchedIn"),
            "state": Column(("threadState",), words=_THREAD_STATES),
        },
        groups=("show_states",),
    ),
    Table(
        "gpu_contexts",
        ("GPU_CONTEXT_SWITCH_EVENTS", "FECS_EVENTS"),
        {
            "time": _c("timestamp"),
            "order": _c("seqNo"),
            "gpu": _c("gpuId"),
            "context": _c("contextId"),
            "process": _c("globalPid"),
            "change": Column(("tag",), words=_CONTEXT_CHANGES),
        },
        groups=("show_states",),
    ),
    Table(
        "samples",
        ("COMPOSITE_EVENTS",),
        {"id": _c("id"), "time": _c("start"), "thread": _c("globalTid"), "cpu": _c("cpu")},
        groups=("show_samples",),
        must_have=("start",),  # copies without rows lack it
    ),
    Table(
        "stacks",
        ("SAMPLING_CALLCHAINS",),
        {"sample": _c("id"), "symbol": _c("symbol"), "module": _c("module"), "depth": _c("stackDepth")},
        groups=("show_samples",),
    ),
    _activities("system calls", "SYSCALL", "show_os", _CALL),
    Table("os_stacks", ("OSRT_CALLCHAINS",), _STACK, groups=("show_os",)),
    Table("cuda_stacks", ("CUDA_CALLCHAINS",), _STACK, groups=("show_samples",)),
    Table(
        "call_stacks",
        ("CUPTI_ACTIVITY_KIND_RUNTIME",),
        {**_CALL, "stack_id": _c("callchainId")},
        groups=("show_samples",),
        any_of=("stack_id",),
    ),
    Table(
        "activities",
        ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",),
        {
            "start": _c("start"),
            "end": _c("end"),
            "process": _c("globalPid"),
            "correlation": _c("correlationId"),
            "stream": _c("streamId"),
        },
        groups=("show_sync",),
        title="CUDA synchronization",
    ),
    _activities("MPI", "MPI_P2P_EVENTS", "show_mpi", _MPI),
    _activities("MPI", "MPI_COLLECTIVES_EVENTS", "show_mpi", _MPI),
    _activities("MPI", "MPI_START_WAIT_EVENTS", "show_mpi", _CALL),
    _activities("MPI", "MPI_OTHER_EVENTS", "show_mpi", _CALL),
    Table(
        "mpi_requests",
        ("MPI_START_WAIT_EVENTS",),
        {**_CALL, "request": _c("requestHandle")},
        groups=("show_mpi",),
    ),
    _activities("UCX", "UCP_EVENTS", "show_ucx", _CALL),
    _activities("UCX", "UCP_SUBMIT_EVENTS", "show_ucx", _UCX),
    _activities("UCX", "UCP_PROGRESS_EVENTS", "show_ucx", _UCX),
    *(
        _activities(title, name, "show_libraries", {**_CALL, "bytes": _c("bytes")})
        for title, names in _LIBRARIES.items()
        for name in names
    ),
    _activities("profiler overhead", "PROFILER_OVERHEAD", "show_profiler", _CALL),
    _activities("CUDA overhead", "CUPTI_ACTIVITY_KIND_OVERHEAD", "show_profiler", _CALL),
    _activities("CUDA compilation", "CUPTI_ACTIVITY_KIND_JIT", "show_profiler", _CALL),
    Table(
        "activities",
        ("DIAGNOSTIC_EVENT",),
        {
            "start": _c("timestamp"),
            "text": _c("text"),
            # other messages have times of other clocks
            "is_kept": Column(("timestampType",), words={1: True}),
        },
        groups=("show_profiler",),
        title="messages of nsys",
    ),
    _activities(
        "memory operations",
        "CUDA_GPU_MEMORY_USAGE_EVENTS",
        "show_memory",
        {
            **_AT_PROCESS,
            "text": Column(("memoryOperationType",), words={0: "allocation", 1: "release"}),
            "bytes": _c("bytes"),
            "address": _c("address"),
            "detail": Column(("memKind",), words=MEMORY_KINDS),
        },
    ),
    _activities(
        "memory pools",
        "CUDA_GPU_MEMORY_POOL_EVENTS",
        "show_memory",
        {
            **_AT_PROCESS,
            "text": Column(("operationType",), words={1: "created", 2: "destroyed", 3: "trimmed"}),
            "bytes": _c("localMemoryPoolSize"),
            "address": _c("address"),
            "detail": Column(("poolType",), words={1: "local", 2: "imported"}),
        },
    ),
    *(
        Table(
            "memory_pools",
            (name,),
            {
                "time": _c("start"),
                "process": _c("globalPid"),
                "device": _c("deviceId"),
                "address": _c(address),
                "size": _c("localMemoryPoolSize"),
                "used": _c("localMemoryPoolUtilizedSize"),
                **more,
            },
            groups=("show_memory",),
            title="memory pools",
            any_of=() if more else ("size", "used"),  # destroyed pools have no sizes
        )
        for name, address, more in (
            (
                "CUDA_GPU_MEMORY_POOL_EVENTS",
                "address",
                {"is_end": Column(("operationType",), words={1: False, 2: True, 3: False})},
            ),
            ("CUDA_GPU_MEMORY_USAGE_EVENTS", "localMemoryPoolAddress", {}),
        )
    ),
    _activities(
        "page faults on GPUs",
        "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
        "show_memory",
        {
            **_AT_PROCESS,
            "end": _c("end"),
            "text": Column(
                ("faultAccessType",),
                words={
                    0: "unknown access",
                    1: "read",
                    2: "write",
                    3: "atomic access",
                    4: "prefetch",
                },
            ),
            "count": _c("numberOfPageFaults"),
            "address": _c("address"),
        },
    ),
    _activities(
        "page faults on CPUs",
        "CUDA_UM_CPU_PAGE_FAULT_EVENTS",
        "show_memory",
        # the function, by its name
        {**_AT_PROCESS, "address": _c("address"), "name_id": _c("CpuInstruction")},
    ),
    *TABLES_OF_SAMPLES,
)

_STARTS, _ENDS = ("start", "timestamp", "startedAt"), ("end", "endedAt")


def describe_unknown(name: str, columns: Sequence[str]) -> Table | None:
    """Describe a table that has no entry by its columns; None if it has no times.

    Nearly all tables of events have the same names for times, threads, processes and names. A row without an
    end is an instant; one without a thread is of its process, and without a process of the system.
    """
    if not any(start in columns for start in _STARTS) or is_enumeration(name):
        return None
    found = {
        "start": _c(*_STARTS),
        "end": _c(*_ENDS),
        "thread": _c("globalTid"),
        "process": _c("globalPid"),
        "name_id": _c(*_NAMES_OF_CALLS, "apiCallId"),
        "text": _c("text", "name"),
        "bytes": _c("bytes", "bytesProcessed"),
        "stream": _c("streamId"),
        "cpu": _c("cpu"),
        "address": _c("address"),
        "count": _c("count", "value"),
        "detail": _c("data"),
    }
    return Table("activities", (name,), found, groups=("show_other",), title=name)


def is_enumeration(name: str) -> bool:
    """Return whether a table lists the words of numbers; their meanings are constants here."""
    return name.upper().startswith(("ENUM_", "UNWINDMETHODTYPE"))


ROW_ID = "rowid"  # not a column: the position of the row in its table
PAYLOAD_FIELDS_TABLE = "NVTX_PAYLOAD_SCHEMA_ENTRIES"


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


# The recorded environment is secret except for these variables: whole numbers, or a list of devices.
# `nsys_pp.frames.launchers` reads ranks from them.
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
LAUNCHER_VARIABLE = re.compile(
    rf"^(?:({'|'.join(LAUNCHER_NUMBERS)})=\"?(\d{{1,12}})\"?"
    rf"|(CUDA_VISIBLE_DEVICES)=\"?({_DEVICE}(?:,{_DEVICE})*)\"?)$"
)
STRINGS = "StringIds"  # among them environments, as blocks
BLOCK = "DeviceEnvironment"
ENVIRONMENT_ROWS = {
    "PROCESS_0:ENVIRONMENT_VARIABLE": "variable",  # NAME="value", one variable a row
    "ENVIRONMENT_VARIABLE": "variable",
    BLOCK: "block",  # NAME=value;NAME=value;... in 2022 with zeros instead
}
USER_ROWS = ("UserName",)  # of the tables of names and values
FACT_TABLES = ("META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV", "META_DATA_EXPORT", "EXPORT_META_DATA")

TABLES = (
    *(
        Table(frame, (name,), _CALL, groups=("host", "os_calls"))
        for frame, name in (
            ("overheads", "PROFILER_OVERHEAD"),
            ("cuda_overheads", "CUPTI_ACTIVITY_KIND_OVERHEAD"),
        )
    ),
    Table("strings", (STRINGS,), {"id": _c("id"), "text": _c("value")}),
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
            "source": _c("srcKind", groups=("details", "cpu"), words=MEMORY_KINDS),
            "target": _c("dstKind", groups=("details", "cpu"), words=MEMORY_KINDS),
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
        {
            "pid": _c("pid"),
            "device": _c("cudaId"),
            "gpu": _c("gpuId"),
            "uuid": _c("uuid"),
        },
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
            "kind": _c("flag", words={1: "blocking", 2: "non-blocking", 3: "default"}),
        },
    ),
    Table(
        "stream_names",
        ("TARGET_INFO_NVTX_CUDA_STREAM",),
        {
            **_CUDA_OWNER,
            "context": _c("contextId"),
            "stream": _c("streamId"),
            "name": _c("name"),
        },
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
            "action": _c("memoryOperationType", words={0: "allocation", 1: "release"}),
            **_same("address", "bytes"),
        },
        groups=("host", "show_memory"),
    ),
    Table(
        "diagnostics",
        ("DIAGNOSTIC_EVENT",),
        {
            "severity": _c("severity", words={1: "info", 2: "warning", 3: "error", 4: "verbose"}),
            "text": _c("text"),
        },
    ),
    Table(
        "facts",
        ("META_DATA_EXPORT", "EXPORT_META_DATA"),
        _NAME_VALUE,
        rows_named={
            "EXPORT_PRODUCT_VERSION": "nsys_version",
            "EXPORT_SCHEMA_VERSION": "schema_version",
            "EXPORT_CONFIG_TIME_SHIFT": "time_shift_ns",
        },
    ),
    Table(
        "facts",
        ("META_DATA_CAPTURE",),
        _NAME_VALUE,
        rows_named={
            "CUDA_GRAPH_TRACE_OPTIONS:MODE": "graph_mode",
            "PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE": "graph_mode",
        },
    ),
    Table(
        "facts",
        ("TARGET_INFO_SYSTEM_ENV",),
        _NAME_VALUE,
        rows_named={
            "Hostname": "hostname",
            "NSYS_HW_ID": "hardware_id",
            "SystemUID": "system_id",
            "CudaDriverVersion": "cuda_driver_version",
            "NvDriverVersion": "driver_version",
            "OsDescription": "os",
        },
    ),
    Table("launcher", ("META_DATA_CAPTURE",), _NAME_VALUE, rows_named=ENVIRONMENT_ROWS),
    Table("launcher", ("TARGET_INFO_SYSTEM_ENV",), _NAME_VALUE, rows_named=ENVIRONMENT_ROWS),
)

# Tables that are only counted, to list the recorded kinds of data. In 2024 the table of graph nodes lost its
# name to one of graphs.
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

_SPELLINGS = {
    name.lower(): name
    for table in (*TABLES, *METRIC_TABLES, *COUNTED, *TABLES_ON_REQUEST)
    for name in (*table.names, *(name for column in table.columns.values() for name in column.names))
}
KNOWN = frozenset(_SPELLINGS.values())


def spell(name: str) -> str:
    """Return a known name of a table or column as nsys writes it; names of SQLite are equal in any case.

    >>> spell("nvtx_events"), spell("mine")
    ('NVTX_EVENTS', 'mine')
    """
    # as bytes, as no other letters than those of ASCII are equal in two cases
    lower = name.encode("utf-8", "surrogateescape").lower().decode("utf-8", "surrogateescape")
    return _SPELLINGS.get(lower, name)

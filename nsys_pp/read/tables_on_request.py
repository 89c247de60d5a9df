"""Names of nsys' tables that a trace has on request (`--show`), and of their columns; continues `nsys_pp.read.tables`.

Facts: DDL of exports of schema 3.0.0 (nsys 2022.4) and 3.7.2 (2023.4), columns of real exports of 2020 to 2026.
"""

from __future__ import annotations

from collections.abc import Sequence

from nsys_pp.frames.raw import Group
from nsys_pp.read.table import Column, Table
from nsys_pp.read.tables_of_samples import TABLES_OF_SAMPLES


def _c(*names: str) -> Column:
    return Column(names)


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
_SESSION_TIME: dict[int, str | int] = {1: True}  # other messages have times of other clocks
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
_ACCESSES: dict[int, str | int] = {
    0: "unknown access",
    1: "read",
    2: "write",
    3: "atomic access",
    4: "prefetch",
}
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


OVERHEADS = tuple(
    Table(frame, (name,), _CALL, groups=("host", "os_calls"))
    for frame, name in (
        ("overheads", "PROFILER_OVERHEAD"),
        ("cuda_overheads", "CUPTI_ACTIVITY_KIND_OVERHEAD"),
    )
)

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
    ),
    Table(
        "stacks",
        ("SAMPLING_CALLCHAINS",),
        {"sample": _c("id"), "symbol": _c("symbol"), "module": _c("module"), "depth": _c("stackDepth")},
        groups=("show_samples",),
    ),
    Table(
        "copy_kinds",
        ("CUPTI_ACTIVITY_KIND_MEMCPY",),
        {
            "process": _c("globalPid"),
            "correlation": _c("correlationId"),
            "source": Column(("srcKind",), words=MEMORY_KINDS),
            "target": Column(("dstKind",), words=MEMORY_KINDS),
        },
        groups=("copy_kinds",),
        any_of=("source", "target"),
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
            "is_kept": Column(("timestampType",), words=_SESSION_TIME),
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
            "text": Column(("faultAccessType",), words=_ACCESSES),
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

_ENUMERATIONS = ("ENUM_", "UnwindMethodType")
_STARTS, _ENDS = ("start", "timestamp", "startedAt"), ("end", "endedAt")


def describe_unknown(name: str, columns: Sequence[str]) -> Table | None:
    """Describe a table that has no entry by its columns; None if it has no times.

    Nearly all tables of events have the same names for times, threads, processes and names. A row without an end is an
    instant; one without a thread is of its process, and without a process of the system.
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
    return name.startswith(_ENUMERATIONS)

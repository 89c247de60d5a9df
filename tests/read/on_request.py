"""A report with a few rows in every table that a trace has on request; columns as in exports of nsys 2023.4."""

from __future__ import annotations

from pathlib import Path

from tests.read.tables import PROCESS, THREAD, Row, call, memory, op, os_call, strings, switch, write_export

OTHER_THREAD = THREAD + 1
NAMES = (
    *("read", "pthread_cond_wait", "main", "libapp.so", "MPI_Send", "MPI_Allreduce", "MPI_Wait"),
    *("MPI_Barrier", "ucp_put_nb", "cublasSgemm", "cudnnConvolutionForward", "acc_enqueue", "task"),
    *("flush", "cudaStreamSynchronize_v3020", "cudaLaunchKernel_v7000", "kernel", "compute"),
    *("cudaEventRecord_v3020", "cudaStreamWaitEvent_v3020", "cudaEventSynchronize_v3020"),
)
EVENT_CALLS = (
    *("cudaEventRecord_v3020", "cudaStreamWaitEvent_v3020", "cudaEventSynchronize_v3020"),
    *("cudaEventRecord_v3020", "cudaStreamWaitEvent_v3020", "cudaEventSynchronize_v3020"),
)
IDS = {name: at for at, name in enumerate(NAMES)}
GPU_TYPE = 281474976710656 + 0x0100  # its low 8 bits are the GPU


def named(start: int, end: int | None, name: str, **more: object) -> Row:
    return {"start": start, "end": end, "globalTid": THREAD, "nameId": IDS[name], **more}


def texted(start: int, end: int | None, name: str, **more: object) -> Row:
    return {"start": start, "end": end, "globalTid": THREAD, "textId": IDS[name], **more}


def metric(time: int, gpu: int, number: int, value: float) -> Row:
    return {"timestamp": time, "typeId": GPU_TYPE + gpu, "metricId": number, "value": value}


def gpu(number: int, bus: str) -> Row:
    facts = {"vmId": 1, "id": number, "name": "GPU", "busLocation": bus, "uuid": f"uuid-{number}"}
    return {**facts, "cuDevice": number}


def write_everything(path: Path) -> Path:
    """Write the report: one kernel, and rows of all tables."""
    metrics = ("SMs Active [Throughput %]", "GPC Clock Frequency [MHz]")
    network = {"globalId": 77, "metricsListId": 5, "metricsIdx": 0}
    return write_export(
        path,
        {
            "StringIds": strings(*NAMES),
            "PROCESSES": [{"globalPid": PROCESS, "pid": 4242, "name": "app"}],
            "TARGET_INFO_GPU": [gpu(0, "0000:01:00.0"), gpu(1, "0000:02:00.0")],
            "CUPTI_ACTIVITY_KIND_RUNTIME": [
                call(90, 99, 1, nameId=IDS["cudaLaunchKernel_v7000"]),
                call(300, 420, 2, nameId=IDS["cudaStreamSynchronize_v3020"]),
                *(
                    call(430 + 10 * at, 435 + 10 * at, 3 + at, nameId=IDS[name])
                    for at, name in enumerate(EVENT_CALLS)
                ),
            ],
            "CUPTI_ACTIVITY_KIND_KERNEL": [
                op(100, 400, 1, shortName=IDS["kernel"], demangledName=IDS["kernel"])
            ],
            "NVTX_EVENTS": [
                {"start": 80, "end": 430, "eventType": 59, "globalTid": THREAD, "textId": IDS["compute"]}
            ],
            "OSRT_API": [
                os_call(10, 50, nameId=IDS["read"]),
                os_call(20, 30, nameId=IDS["pthread_cond_wait"]),  # inside the first
                os_call(60, 160, nameId=IDS["pthread_cond_wait"]),
                os_call(170, 170, nameId=IDS["read"], eventClass=31),  # the end of tracing
                os_call(150, 500, nameId=IDS["read"], globalTid=OTHER_THREAD),
            ],
            "SCHED_EVENTS": [
                switch(5, 1, threadState=0),
                switch(55, 0, threadState=3),
                switch(158, 1, threadState=0),
                switch(600, 0, threadState=5),
                switch(700, 1, threadState=0, globalTid=OTHER_THREAD),
                switch(800, 0, threadState=0, globalTid=OTHER_THREAD),
                switch(900, 1, threadState=0, globalTid=OTHER_THREAD),
            ],
            "COMPOSITE_EVENTS": [
                {"id": 1, "start": 12, "cpu": 3, "threadState": 1, "globalTid": THREAD, "cpuCycles": 9},
                {"id": 2, "start": 170, "cpu": 4, "threadState": 1, "globalTid": THREAD, "cpuCycles": 9},
            ],
            "SAMPLING_CALLCHAINS": [
                {"id": 1, "symbol": IDS["main"], "module": IDS["libapp.so"], "stackDepth": 1},
                {"id": 1, "symbol": IDS["read"], "module": IDS["libapp.so"], "stackDepth": 0},
            ],
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [
                {"start": 310, "end": 410, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 2}
                | {"globalPid": PROCESS, "syncType": 3, "eventId": 4294967295},
                *(
                    {
                        "start": 431 + 10 * at,
                        "end": 434 + 10 * at,
                        "deviceId": 0,
                        "contextId": 1,
                        "streamId": 7 + at,
                    }
                    | {
                        "correlationId": 3 + at,
                        "globalPid": PROCESS,
                        "syncType": 2,
                        "eventId": 5 if at < 4 else 6,
                    }
                    for at in (1, 2, 4, 5)
                ),
            ],
            "CUPTI_ACTIVITY_KIND_CUDA_EVENT": [
                {"deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 3 + at, "globalPid": PROCESS}
                | {"eventId": 5}
                for at in (0, 3)
            ],
            "MPI_P2P_EVENTS": [texted(200, 220, "MPI_Send", commHandle=1, tag=9, remoteRank=3, size=64)],
            "MPI_COLLECTIVES_EVENTS": [texted(230, 240, "MPI_Allreduce", commHandle=1, size=8, recvSize=8)],
            "MPI_START_WAIT_EVENTS": [texted(241, None, "MPI_Wait", requestHandle=4)],
            "MPI_OTHER_EVENTS": [texted(260, 270, "MPI_Barrier")],
            "UCP_SUBMIT_EVENTS": [texted(205, 210, "ucp_put_nb", packedSize=64, peerWorkerUid=11, tag=2)],
            "CUBLAS_EVENTS": [named(85, 120, "cublasSgemm", eventClass=1)],
            "CUDNN_EVENTS": [named(86, 110, "cudnnConvolutionForward", eventClass=1)],
            "CUPTI_ACTIVITY_KIND_OPENACC_DATA": [named(130, 140, "acc_enqueue", bytes=4096)],
            "OPENMP_EVENT_KIND_TASK": [named(141, 149, "task", eventClass=1)],
            "PROFILER_OVERHEAD": [named(1, 4, "flush", returnValue=0)],
            "CUPTI_ACTIVITY_KIND_OVERHEAD": [named(2, 3, "flush", overheadType=3)],
            "DIAGNOSTIC_EVENT": [
                {"timestamp": 7, "timestampType": 1, "source": 3, "severity": 2, "text": "buffer full"},
                {"timestamp": 8, "timestampType": 2, "source": 3, "severity": 2, "text": "other clock"},
            ],
            "CUDA_GPU_MEMORY_USAGE_EVENTS": [memory(95, 0, 4096, 1000), memory(350, 1, 4096, 1000)],
            "GPU_METRICS": [
                *(metric(100 + 10 * at, 0, 1, value) for at, value in enumerate((0, 61, 100, 3))),
                *(metric(100 + 10 * at, 0, 2, 1980) for at in range(4)),
                metric(100, 1, 1, 7),
            ],
            "TARGET_INFO_GPU_METRICS": [
                {"typeId": GPU_TYPE + at, "sourceId": 1, "typeName": "GPU", "metricId": number + 1}
                | {"metricName": name}
                for at in (0, 1)
                for number, name in enumerate(metrics)
            ],
            "NET_NIC_METRIC": [
                {"start": 100, "end": 200, **network, "value": 5000},
                {"start": 200, "end": 300, **network, "value": 70},
            ],
            "TARGET_INFO_NETWORK_METRICS": [
                {"metricsListId": 5, "metricsIdx": 0, "name": "IB: Bytes sent", "unit": "B/ms"}
                | {"description": ""}
            ],
            "NIC_ID_MAP": [{"nicId": 2, "globalId": 77}],
            "TARGET_INFO_NIC_INFO": [{"GUID": 1, "stateName": "up", "nicId": 2, "name": "mlx5_0"}],
            "CUDA_UM_CPU_PAGE_FAULT_EVENTS": [
                {"start": 180, "globalPid": PROCESS, "address": 4096, "CpuInstruction": 1, "module": 0}
            ],
            "CUDA_UM_GPU_PAGE_FAULT_EVENTS": [
                {"start": 181, "end": 189, "globalPid": PROCESS, "deviceId": 0, "address": 8192}
                | {"numberOfPageFaults": 12, "faultAccessType": 2}
            ],
            "CUDA_GPU_MEMORY_POOL_EVENTS": [
                {"start": 94, "globalPid": PROCESS, "deviceId": 0, "address": 77, "operationType": 1}
                | {"poolType": 1, "localMemoryPoolSize": 1 << 20}
            ],
            "GPU_CONTEXT_SWITCH_EVENTS": [
                {
                    "tag": tag,
                    "vmId": 1,
                    "seqNo": at,
                    "contextId": 4,
                    "timestamp": 100 + at,
                    "globalPid": PROCESS,
                }
                | {"gpuId": 1}
                for at, tag in enumerate((8, 9, 1, 2, 7, 8))
            ],
            "PMU_EVENTS": [{"start": 100, "end": 200, "globalVm": 1, "cpu": 2, "counter_id": 8}],
            "PMU_EVENT_COUNTERS": [{"id": 8, "idx": 0, "value": 512}, {"id": 8, "idx": 1, "value": 33}],
            "PMU_EVENT_REQUESTS": [
                {"id": 0, "eventid": 60, "source": 0, "unit_type": 0, "event_name": "cycles"}
            ],
            "SOMETHING_NEW": [
                {"start": 190, "end": 195, "globalTid": THREAD, "name": "new"},
                {"start": 196, "end": 198, "globalTid": OTHER_THREAD, "name": None},
            ],
            "SYSTEM_THING": [{"timestamp": 444, "text": "a thing of the system"}],
            "NOT_TIMED": [{"name": "nothing", "value": 3}],
        },
    )

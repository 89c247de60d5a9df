"""Names of nsys' tables of samples, and of generic events; continues `nsys_pp.read.tables_on_request`.

Facts: DDL of exports of schema 3.0.0 (nsys 2022.4), 3.7.2 (2023.4) and 3.11.1 (2024.2), NVIDIA's schema reference of 3.28.1 (2026.4).
"""

from __future__ import annotations

from nsys_pp.frames.raw import Group
from nsys_pp.read.table import Column, Table


def _c(*names: str) -> Column:
    return Column(names)


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


METRIC_TABLES = _list_metrics("gpu", "GPU_METRICS", "TARGET_INFO_GPU_METRICS", _GPU_METRICS)
"""Tables of GPU metrics since 2023, which traces and parts have without being asked."""

TABLES_OF_SAMPLES = (
    *METRIC_TABLES,
    *_list_metrics("soc", "SOC_METRICS", "TARGET_INFO_SOC_METRICS", ("show_metrics",)),
    # GPU metrics of versions before 2023.4, and other events of the system: values as JSON, since 2025 also in a table
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
    # counters of cores (2019 to 2026), of the memory system around them, and by `perf`: their tables were renamed in 2025
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

"""What threads, processors and GPUs do besides.

ACTIVITIES (tables shown on request), OS_CALLS, THREAD_RUNS.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import polars as pl

from nsys_pp.frames.conform import NAME, NO_NAME, conform, conform_part
from nsys_pp.frames.ids import pid, process_key
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import ACTIVITIES, OS_CALLS, THREAD_RUNS
from nsys_pp.model.gpu_ops import find_event_calls
from nsys_pp.model.names import resolve

SAMPLES, STATES, _OF_SYSTEM, CALL_STACKS = "CPU samples", "states", "OS calls", "CUDA call stacks"
RUNNING, NOT_RUNNING, ENDED = "running", "not running", "terminated"
SYNCHRONIZATION = "CUDA synchronization"


def build_activities(
    raw: RawReport, gpus: pl.DataFrame, api_calls: pl.DataFrame, stream_calls: pl.DataFrame
) -> pl.DataFrame:
    """Build the intervals and instants of all tables that were read on request.

    Args:
        raw: The report.
        gpus: From `nsys_pp.model.identity.number_gpus`.
        api_calls: `API_CALLS`: a synchronization has the thread and the name of the call that waits.
        stream_calls: `STREAM_CALLS`: a synchronization has the record of the event that it waits for.

    Returns:
        `ACTIVITIES`.
    """
    is_shown = "show_sync" in raw.groups
    event_calls = find_event_calls(stream_calls if is_shown else stream_calls.clear(), api_calls)
    records = event_calls.filter("is_record").select(  # they are among the synchronizations
        *("process_key", "thread_key", "start_ns", "end_ns", "name", "stream_id", "event_id"),
        row=pl.lit(SYNCHRONIZATION).cast(pl.Categorical()),
        link="record",
        is_origin=pl.lit(value=True),
    )
    builders: dict[str, Callable[[], pl.DataFrame]] = {
        "activities": lambda: _build_calls(raw, api_calls, event_calls),
        "cuda_events": lambda: records,
        "switches": lambda: _build_states(raw),
        "gpu_contexts": lambda: build_gpu_contexts(raw, gpus),
        "samples": lambda: _build_samples(raw),
        "call_stacks": lambda: _build_call_stacks(raw),
        "generic_events": lambda: build_generic_events(raw),
    }
    parts = [build() for table, build in builders.items() if not raw[table].is_empty()]
    # the empty frame adds the columns that no part has
    return (
        pl.concat([ACTIVITIES.to_frame(), *parts], how="diagonal")
        .pipe(conform, ACTIVITIES)
        .sort([pl.col("row").cast(pl.String), "thread_key", "start_ns"], maintain_order=True)
    )


def _build_calls(raw: RawReport, api_calls: pl.DataFrame, event_calls: pl.DataFrame) -> pl.DataFrame:
    rows = raw["activities"]
    rows = rows.with_columns(name=resolve(rows["name_id"], raw["strings"]))
    rows = _find_callers(rows, api_calls, event_calls)
    stacks = build_stacks(raw["os_stacks"], raw)
    return rows.join(stacks, on="stack_id", how="left", maintain_order="left").select(
        row=pl.col("source").cast(pl.Categorical()),
        process_key=pl.coalesce(process_key(pl.col("thread")), "process"),
        thread_key="thread",
        start_ns="start",
        end_ns="end",
        name=pl.coalesce("name", pl.col("text").cast(NAME), pl.lit(NO_NAME).cast(NAME)),
        size_bytes="bytes",
        peer=pl.when(pl.col("peer") >= 0).then("peer"),
        tag="tag",
        stream_id="stream",
        address="address",
        count="count",
        cpu="cpu",
        detail=pl.col("detail").cast(NAME),
        event_id="event_id",
        stack=pl.when(pl.col("source") == _OF_SYSTEM).then("stack").cast(NAME),
        link="record",
        is_origin=pl.when(pl.col("record").is_not_null()).then(pl.lit(value=False)),
    )


def _find_callers(rows: pl.DataFrame, api_calls: pl.DataFrame, event_calls: pl.DataFrame) -> pl.DataFrame:
    """Add the thread and the name of the CUDA call to synchronizations, which have neither.

    Also the record of their event.
    """
    is_sync = pl.col("source") == SYNCHRONIZATION
    none = pl.lit(None, pl.Int64)
    if not rows.select(is_sync.any()).item():
        return rows.with_columns(event_id=none, record=none)
    calls = api_calls.select(
        "correlation_id", of_thread="thread_key", of_name="name", process="process_key"
    ).unique(["process", "correlation_id"], keep="first", maintain_order=True)
    waits = event_calls.filter(~pl.col("is_record")).select(
        "correlation_id", "event_id", "record", process="process_key"
    )
    joined = rows
    for more in (calls, waits.unique(["process", "correlation_id"], keep="first", maintain_order=True)):
        joined = joined.join(
            more,
            left_on=["process", "correlation"],
            right_on=["process", "correlation_id"],
            how="left",
            maintain_order="left",
        )
    return joined.with_columns(
        thread=pl.when(is_sync).then("of_thread").otherwise("thread"),
        name=pl.when(is_sync).then("of_name").otherwise("name"),
        **{name: pl.when(is_sync).then(name) for name in ("event_id", "record")},
    ).drop("of_thread", "of_name")


def _build_states(raw: RawReport) -> pl.DataFrame:
    """Build the states of threads: each lasts from one switch to the next switch of the thread.

        switches   on      off         on    off
        states     [running)[not running)[running)

    The state before the first switch of a thread, and that after its last one, are unknown. Of two successive
    switches onto a processor the end of the first run is unknown: it is left out, and likewise for two
    switches off a processor.
    """
    state = pl.when("is_in").then(pl.lit(RUNNING)).otherwise(pl.coalesce("state", pl.lit(NOT_RUNNING)))
    return (
        _pair_switches(raw["switches"])
        .with_columns(name=state)
        .filter(pl.col("name") != ENDED)
        .select(
            row=pl.lit(STATES).cast(pl.Categorical()),
            process_key=process_key(pl.col("thread")),
            thread_key="thread",
            start_ns="time",
            end_ns="end_ns",
            name=pl.col("name").cast(NAME),
            cpu=pl.when("is_in").then("cpu"),
        )
    )


def _pair_switches(switches: pl.DataFrame) -> pl.DataFrame:
    """Keep the switches of a thread before one in the other direction, whose time is `end_ns`."""
    # off before on in the same nanosecond: one run ends and the next begins
    switches = switches.with_columns(pl.col("is_in") != 0).sort("thread", "time", "is_in")
    following = pl.col("thread", "is_in").shift(-1).name.suffix("_after")
    return switches.with_columns(following, end_ns=pl.col("time").shift(-1)).filter(
        pl.col("thread") == pl.col("thread_after"), pl.col("is_in") != pl.col("is_in_after")
    )


def _build_samples(raw: RawReport) -> pl.DataFrame:
    """Build the samples of processors.

    Instants with the innermost function as name, and the stack of functions.
    """
    samples = raw["samples"]
    stacks = build_stacks(raw["stacks"].rename({"sample": "stack_id"}), raw)
    return samples.join(stacks, left_on="id", right_on="stack_id", how="left", maintain_order="left").select(
        row=pl.lit(SAMPLES).cast(pl.Categorical()),
        process_key=process_key(pl.col("thread")),
        thread_key="thread",
        start_ns="time",
        name=pl.col("innermost").fill_null(NO_NAME).cast(NAME),
        cpu="cpu",
        stack=pl.col("stack").cast(NAME),
    )


def _build_call_stacks(raw: RawReport) -> pl.DataFrame:
    calls = raw["call_stacks"].filter(pl.col("stack_id") != 0)
    calls = calls.with_columns(name=resolve(calls["name_id"], raw["strings"], strip=r"_v\d+$"))
    stacks = build_stacks(raw["cuda_stacks"], raw)
    return calls.join(stacks, on="stack_id", how="inner", maintain_order="left").select(
        row=pl.lit(CALL_STACKS).cast(pl.Categorical()),
        process_key=process_key(pl.col("thread")),
        thread_key="thread",
        start_ns="start",
        end_ns="end",
        name="name",
        stack=pl.col("stack").cast(NAME),
    )


def build_stacks(frames: pl.DataFrame, raw: RawReport) -> pl.DataFrame:
    """Build the text of each stack: its functions from the innermost on, like `read < main`.

    A function without a name is its address and the file of its module: `0x7f12 [libc.so.6]`.

    Args:
        frames: stack_id, symbol, module and depth.
        raw: The report, for names.

    Returns:
        stack_id, innermost (name of the function), stack; one row per stack. Empty in, empty out.
    """
    symbol = resolve(frames["symbol"], raw["strings"], dtype=pl.String())
    module = resolve(frames["module"], raw["strings"], dtype=pl.String())
    file = module.str.extract(r"([^/\\\[\]]+)\]?$")  # of `[Unknown]`, too
    named = pl.DataFrame({"symbol": symbol.fill_null(NO_NAME), "file": file}).select(
        text=pl.when(pl.col("symbol").str.contains("^0x[0-9a-fA-F]+$") & pl.col("file").is_not_null())
        .then(pl.format("{} [{}]", "symbol", "file"))
        .otherwise("symbol"),
        symbol="symbol",
    )
    return (
        frames.select("stack_id", "depth")
        .hstack(named)
        .sort("stack_id", "depth", maintain_order=True)
        .group_by("stack_id", maintain_order=True)
        .agg(innermost=pl.col("symbol").first(), stack=pl.col("text").str.join(" < "))
    )


_CONTEXT = ("gpu", "context")


def build_gpu_contexts(raw: RawReport, gpus: pl.DataFrame) -> pl.DataFrame:
    """Build the intervals in which a context has a GPU, a row of the system per GPU.

        changes    restored   saved   restored  restored  saved
        contexts   [ has the GPU )              [ has ... )

    A restoration whose next change is another restoration has an unknown end, and is left out, as is one at
    the end of the capture.

    Args:
        raw: The report.
        gpus: From `nsys_pp.model.identity.number_gpus`.

    Returns:
        `ACTIVITIES`, named after the process and the context.
    """
    changes = (
        raw["gpu_contexts"]
        .filter(pl.col("change") != "other")
        .sort(*_CONTEXT, "time", "order", maintain_order=True)
    )
    is_same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(-1)) for name in _CONTEXT)
    is_interval = is_same & (pl.col("change") == "restored") & (pl.col("change").shift(-1) == "saved")
    found = changes.with_columns(end=pl.col("time").shift(-1)).filter(is_interval.fill_null(value=False))
    numbers = gpus.select(gpu="id", number="number").drop_nulls("gpu").unique("gpu", keep="first")
    names = raw["processes"].select("process", "name").drop_nulls().unique("process", keep="first")
    joined = found.join(numbers, on="gpu", how="left", maintain_order="left").join(
        names, on="process", how="left", maintain_order="left"
    )
    number = pl.coalesce("number", "gpu", pl.lit(0))
    owner = pl.format("{} {}", pl.col("name").fill_null("process"), pid(pl.col("process")))
    context = pl.format("context {}", pl.col("context").fill_null(0))
    name = pl.when(pl.col("process").is_null()).then(context).otherwise(pl.format("{}, {}", owner, context))
    return joined.select(
        row=pl.format("contexts of GPU {}", number).cast(pl.Categorical()),
        start_ns="time",
        end_ns="end",
        name=name.cast(NAME),
    ).pipe(conform_part, ACTIVITIES)


# beginnings of names of GPU metrics; other generic events have none of them
_OF_GPUS = ("GPC Clock", "SYS Clock", "GR Active", "SM Active", "SMs Active", "SM Issue", "DRAM ")


def list_metrics(raw: RawReport) -> dict[int, list[str]]:
    """List the names of metrics by type of event, of types whose events are samples of GPU metrics."""
    first = raw["generic_events"].drop_nulls("text").unique("type", keep="first", maintain_order=True)
    keys = {
        kind: [key for key in _parse(text) if '"' not in key]
        for kind, text in first.select("type", "text").iter_rows()
    }
    return {kind: names for kind, names in keys.items() if any(name.startswith(_OF_GPUS) for name in names)}


def build_generic_events(raw: RawReport) -> pl.DataFrame:
    """Build an instant of the system, or of the thread, for each event that is no sample of GPU metrics.

    Returns:
        `ACTIVITIES`: `detail` is the event's own text, or its values as JSON. Empty where they were not asked
            for.
    """
    if "show_other" not in raw.groups:
        return ACTIVITIES.to_frame()
    others = raw["generic_events"].filter(~pl.col("type").is_in([*list_metrics(raw)]))
    types = raw["generic_event_types"].unique("type", keep="last", maintain_order=True)
    own_name = resolve(types["name_id"], raw["strings"], dtype=pl.String())
    names = (_parse(text or "").get("Name") for text in types["text"])
    of_json = pl.Series([name if isinstance(name, str) and name else None for name in names], dtype=pl.String)
    named = types.select("type", name=pl.coalesce(own_name, of_json))
    joined = others.join(named, on="type", how="left", maintain_order="left")
    if joined["text"].null_count():
        joined = joined.join(
            _write_values(raw, joined.select("id", "type")), on="id", how="left", maintain_order="left"
        ).with_columns(text=pl.coalesce("text", "of_values"))
    return joined.select(
        row=pl.lit("generic events").cast(pl.Categorical()),
        process_key=process_key(pl.col("thread")),
        thread_key="thread",
        start_ns="time",
        name=pl.col("name").fill_null(pl.format("type {}", "type")).cast(NAME),
        detail=pl.col("text").cast(NAME),
    )


def _write_values(raw: RawReport, events: pl.DataFrame) -> pl.DataFrame:
    """Write the values of events as objects of JSON: `id` and `of_values`, one row per event with values."""
    fields = raw["generic_fields"].unique(["type", "field"], keep="last", maintain_order=True)
    names = resolve(fields["name_id"], raw["strings"], dtype=pl.String())
    found = (
        raw["generic_values"]
        .join(events.drop_nulls("id").unique("id"), on="id", how="inner", maintain_order="left")
        .join(
            fields.select("type", "field", name=names),
            on=["type", "field"],
            how="left",
            maintain_order="left",
        )
    )
    name = pl.coalesce("name", pl.format("field {}", pl.col("field").fill_null(0)))
    value = pl.coalesce(pl.col("integer", "unsigned", "float", "double").cast(pl.String), pl.lit("null"))
    return (
        found.sort("id", "field", maintain_order=True)
        .select("id", entry=pl.format('"{}": {}', name.str.replace_all('"', "'", literal=True), value))
        .group_by("id", maintain_order=True)
        .agg(pl.col("entry").str.join(", "))
        .select("id", of_values=pl.format("{{{}}}", "entry"))
    )


def _parse(text: str) -> dict[str, object]:
    """Parse an object of JSON; empty if it is none."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def build_os_calls(raw: RawReport) -> pl.DataFrame:
    """Build the calls, with their names and processes.

    Calls inside other calls (fopen calls open) have rows, too: `nsys stats` counts them.

    Returns:
        `OS_CALLS` in the order of the export.
    """
    calls = raw["os_calls"]
    return calls.select(
        process_key=process_key(pl.col("thread")),
        thread_key="thread",
        start_ns="start",
        end_ns="end",
        name=resolve(calls["name_id"], raw["strings"]),
    ).pipe(conform, OS_CALLS)


def build_thread_runs(raw: RawReport) -> pl.DataFrame:
    """Pair each switch of a thread onto a processor with its next switch, if that one is off the processor.

        switches   off     on     off off    on    on     off    on
        runs               [      )                [      )

    Incomplete runs are left out: the start of a run whose first switch is off the processor (or follows
    another one), the end of a run with two switches onto the processor, and the run at the end of the capture
    are unknown.

    Returns:
        `THREAD_RUNS`.
    """
    return (
        _pair_switches(raw["thread_switches"])
        .filter("is_in")
        .select("end_ns", process_key=process_key(pl.col("thread")), thread_key="thread", start_ns="time")
        .pipe(conform, THREAD_RUNS)
    )

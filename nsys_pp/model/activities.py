"""Rows of tables that are shown on request -> ACTIVITIES."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.activities import ACTIVITIES
from nsys_pp.frames.conform import conform
from nsys_pp.frames.ids import process_key
from nsys_pp.frames.names import NAME, NO_NAME
from nsys_pp.frames.raw import RawReport
from nsys_pp.model.event_records import find_event_calls
from nsys_pp.model.generic_events import build_generic_events
from nsys_pp.model.gpu_contexts import build_gpu_contexts
from nsys_pp.model.names import resolve
from nsys_pp.model.stacks import build_stacks

SAMPLES, STATES, OS_CALLS, CALL_STACKS = "CPU samples", "states", "OS calls", "CUDA call stacks"
RUNNING, NOT_RUNNING, ENDED = "running", "not running", "terminated"
SYNCHRONIZATION = "CUDA synchronization"


def build_activities(
    raw: RawReport, gpus: pl.DataFrame, api_calls: pl.DataFrame, stream_calls: pl.DataFrame
) -> pl.DataFrame:
    """Build the intervals and instants of all tables that were read on request.

    Args:
        raw: The report.
        gpus: From `nsys_pp.model.devices.number_gpus`.
        api_calls: `API_CALLS`: a synchronization has the thread and the name of the call that waits.
        stream_calls: `STREAM_CALLS`: a synchronization has the record of the event that it waits for.

    Returns:
        `ACTIVITIES`.
    """
    is_shown = "show_sync" in raw.groups
    event_calls = find_event_calls(stream_calls if is_shown else stream_calls.clear(), api_calls)
    built = [
        _build_calls(raw, api_calls, event_calls),
        _build_records(event_calls),
        _build_states(raw),
        build_gpu_contexts(raw, gpus),
        _build_samples(raw),
        _build_call_stacks(raw),
        build_generic_events(raw),
    ]
    parts = [part for part in built if not part.is_empty()]
    if not parts:
        return ACTIVITIES.to_frame()
    order = [pl.col("row").cast(pl.String), "thread_key", "start_ns"]
    # the empty frame adds the columns that no part has
    rows = pl.concat([ACTIVITIES.to_frame(), *parts], how="diagonal").pipe(conform, ACTIVITIES)
    return rows.sort(order, maintain_order=True)


def _build_calls(raw: RawReport, api_calls: pl.DataFrame, event_calls: pl.DataFrame) -> pl.DataFrame:
    """Build the rows of tables of one row per interval or instant."""
    if raw["activities"].is_empty():
        return ACTIVITIES.to_frame()
    rows = raw["activities"]
    rows = rows.with_columns(name=resolve(rows["name_id"], raw["strings"]))
    rows = _find_callers(rows, api_calls, event_calls)
    stacks = build_stacks(raw["os_stacks"], raw)
    rows = rows.join(stacks, on="stack_id", how="left", maintain_order="left")
    text = pl.col("text").cast(NAME)
    return rows.select(
        row=pl.col("source").cast(pl.Categorical()),
        process_key=pl.coalesce(process_key(pl.col("thread")), "process"),
        thread_key="thread",
        start_ns="start",
        end_ns="end",
        name=pl.coalesce("name", text, pl.lit(NO_NAME).cast(NAME)),
        size_bytes="bytes",
        peer=pl.when(pl.col("peer") >= 0).then("peer"),
        tag="tag",
        stream_id="stream",
        address="address",
        count="count",
        cpu="cpu",
        detail=pl.col("detail").cast(NAME),
        event_id="event_id",
        stack=pl.when(pl.col("source") == OS_CALLS).then("stack").cast(NAME),
        link="record",
        is_origin=pl.when(pl.col("record").is_not_null()).then(pl.lit(value=False)),
    )


def _build_records(event_calls: pl.DataFrame) -> pl.DataFrame:
    """Build the calls that record an event; they are among the synchronizations."""
    if event_calls.is_empty():
        return ACTIVITIES.to_frame()
    return event_calls.filter("is_record").select(
        "process_key",
        "thread_key",
        "start_ns",
        "end_ns",
        "name",
        "stream_id",
        "event_id",
        row=pl.lit(SYNCHRONIZATION).cast(pl.Categorical()),
        link="record",
        is_origin=pl.lit(value=True),
    )


def _find_callers(rows: pl.DataFrame, api_calls: pl.DataFrame, event_calls: pl.DataFrame) -> pl.DataFrame:
    """Add the thread and the name of the CUDA call to synchronizations, which have neither, and the record of their event."""
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

    The state before the first switch of a thread, and that after its last one, are unknown. Of two successive switches onto
    a processor the end of the first run is unknown: it is left out, and likewise for two switches off a processor.
    """
    if raw["switches"].is_empty():
        return ACTIVITIES.to_frame()
    switches = raw["switches"]
    # off before on in the same nanosecond: one run ends and the next begins
    switches = switches.with_columns(pl.col("is_in") != 0).sort("thread", "time", "is_in")
    is_interval = (pl.col("thread").shift(-1) == pl.col("thread")) & (
        pl.col("is_in") != pl.col("is_in").shift(-1)
    )
    state = pl.when("is_in").then(pl.lit(RUNNING)).otherwise(pl.coalesce("state", pl.lit(NOT_RUNNING)))
    states = switches.with_columns(end_ns=pl.col("time").shift(-1), name=state)
    return states.filter(is_interval.fill_null(value=False), pl.col("name") != ENDED).select(
        row=pl.lit(STATES).cast(pl.Categorical()),
        process_key=process_key(pl.col("thread")),
        thread_key="thread",
        start_ns="time",
        end_ns="end_ns",
        name=pl.col("name").cast(NAME),
        cpu=pl.when("is_in").then("cpu"),
    )


def _build_samples(raw: RawReport) -> pl.DataFrame:
    """Build the samples of processors: instants with the innermost function as name, and the stack of functions."""
    if raw["samples"].is_empty():
        return ACTIVITIES.to_frame()
    samples = raw["samples"]
    stacks = build_stacks(raw["stacks"].rename({"sample": "stack_id"}), raw)
    joined = samples.join(stacks, left_on="id", right_on="stack_id", how="left", maintain_order="left")
    return joined.select(
        row=pl.lit(SAMPLES).cast(pl.Categorical()),
        process_key=process_key(pl.col("thread")),
        thread_key="thread",
        start_ns="time",
        name=pl.col("innermost").fill_null(NO_NAME).cast(NAME),
        cpu="cpu",
        stack=pl.col("stack").cast(NAME),
    )


def _build_call_stacks(raw: RawReport) -> pl.DataFrame:
    """Build the CUDA calls with a recorded stack."""
    calls = raw["call_stacks"]
    if not calls.is_empty():
        calls = calls.filter(pl.col("stack_id") != 0)
    if calls.is_empty():
        return ACTIVITIES.to_frame()
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

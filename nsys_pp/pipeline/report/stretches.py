"""When a GPU computes without a break, and what it waited for before it went on.

A trace does not say what a kernel depends on. It can be told from what ended in the gap before it:

    kernels   ... [ gemm )        gap          [ gemm )
    others           [ receive         )
                                        ^ the device waited: the kernel starts at once, launched before
                                        ^ the host waited: a synchronising call returns, the launch follows
                                        ^ the launch comes later, after a call that lets its stream wait

Where none of these holds, only the host was late.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys_pp.pipeline.report.launched import find_first_calls
from nsys_pp.pipeline.report.nearest import find_first, find_last
from nsys_pp.schema import conform
from nsys_pp.segments import running_maximum
from nsys_pp.training import PAUSE_NS, STRETCHES

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_MESSAGE = r"(?i)send_?recv"
_SYNCHRONISES = r"Synchronize|^cu(?:da)?Memcpy(?:[A-Z]\w*toD\w*|DtoH\w*)?(?:_v\d+)*$"
_LETS_WAIT = "StreamWaitEvent"
_AT_ONCE_NS = 10_000  # a kernel that waits on its device starts this soon after what it waited for
_RETURN_NS = 100_000  # a call that waits for an operation returns this soon after its end
_DEVICE = ["process_key", "device_id"]
_NEVER = np.int64(-(1 << 62))
_NEED = ["need", "need_op_id", "need_start_ns", "need_end_ns"]


def build_stretches(
    *,
    gpu_ops: pl.DataFrame,
    steps: pl.DataFrame,
    api_calls: pl.DataFrame,
    launches: pl.DataFrame,
    messages: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Join kernels that follow each other, and tell what each stretch of them waited for.

    Args:
        gpu_ops: `GPU_OPS`.
        steps: `STEPS`.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES` of both.
        messages: `MESSAGES`; None or empty: sends are not told from receives.

    Returns:
        `STRETCHES`: kernels and graphs that are not communication, joined where at most `PAUSE_NS` lies
        between, cut where a step begins or ends; by process_key, device_id, start_ns.
    """
    groups, keyed = _group(gpu_ops)
    order = steps.join(groups, on=_DEVICE).select("group", "step", "start_ns", "end_ns")
    computing = keyed.filter("computes").select("op_id", "group", "start_ns", "end_ns")
    joined = _join(_cut(computing.sort("group", "start_ns"), order.sort("group", "start_ns")))
    others = keyed.filter(~pl.col("computes")).with_columns(
        is_send=pl.col("op_id").is_in(_sends(messages).implode())
    )
    needs = _find_needs(joined.select("group", "start_ns", "gap_ns", "op_id"), others, api_calls, launches)
    return (
        pl.concat([joined, needs], how="horizontal")
        .join(groups, on="group", maintain_order="left")
        .pipe(conform, STRETCHES)
    )


def _group(gpu_ops: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Number the devices (process_key, device_id, group), and give the operations their `group`."""
    computes = ~pl.col("is_communication") & pl.col("kind").is_in(["kernel", "graph"])
    keyed = gpu_ops.select(*_DEVICE, "op_id", "start_ns", "end_ns", "kind", "name", computes=computes)
    groups = keyed.select(_DEVICE).unique().sort(_DEVICE).with_row_index("group")
    if len(groups) == 1:
        return groups, keyed.with_columns(group=pl.lit(0, pl.UInt32))
    return groups, keyed.join(groups, on=_DEVICE, maintain_order="left")


def _sends(messages: pl.DataFrame | None) -> pl.Series:
    """List the kernels that only send (op_id): computation that is not launched yet seldom waits for one."""
    if messages is None:
        return pl.Series(dtype=pl.UInt32)
    return messages.group_by("op_id").agg((pl.col("verb") == "send").all()).filter("verb")["op_id"]


def _cut(ops: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Cut operations where a step begins or ends, and give them the `step` in which they are.

    Both are by group and start, and so is the result.
    """
    eras = _list_eras(steps)
    parts, rest = [], ops
    while len(rest):
        placed = rest.join_asof(
            eras, left_on="start_ns", right_on="at_ns", by="group", check_sortedness=False
        )
        parts.append(placed.select(*ops.columns[:3], pl.min_horizontal("end_ns", "until_ns"), "step"))
        rest = placed.filter(pl.col("until_ns") < pl.col("end_ns")).select(
            *ops.columns[:2], start_ns="until_ns", end_ns="end_ns"
        )
    cut = pl.concat(parts) if parts else ops.with_columns(step=pl.lit(None, pl.Int64))
    return cut.sort("group", "start_ns") if len(parts) > 1 else cut


def _list_eras(steps: pl.DataFrame) -> pl.DataFrame:
    """List the times between edges of steps: group, at_ns, until_ns, and the `step` that it is, if any."""
    edges = pl.concat([steps.select("group", at_ns=name) for name in ("start_ns", "end_ns")])
    begins = edges.select("group", at_ns=pl.lit(_NEVER)).unique()
    eras = pl.concat([begins, edges.unique()]).sort("group", "at_ns")
    within = eras.join_asof(
        steps.select("group", "step", at_ns="start_ns", over_ns="end_ns"), on="at_ns", by="group",
        check_sortedness=False,
    )  # fmt: skip
    return within.select(
        *("group", "at_ns"),
        until_ns=pl.col("at_ns").shift(-1).over("group"),
        step=pl.when(pl.col("at_ns") < pl.col("over_ns")).then("step"),
    )


def _join(ops: pl.DataFrame) -> pl.DataFrame:
    """Join operations (group, start_ns, end_ns, step, op_id; by the first two) to stretches.

    Returns:
        One row per stretch: group, step, start_ns, end_ns, compute_ns, op_count, op_id of the first one,
        gap_ns: the end of what came before, null where nothing did.
    """
    group, start, end = (ops[name].cast(pl.Int64).to_numpy() for name in ("group", "start_ns", "end_ns"))
    until = running_maximum(group, end)
    before = np.full(len(ops), _NEVER)
    before[1:] = np.where(group[1:] == group[:-1], until[:-1], _NEVER)
    step = ops["step"].fill_null(_NEVER).to_numpy()
    is_first = start - PAUSE_NS > before
    is_first[1:] |= (step[1:] != step[:-1]) | (group[1:] != group[:-1])
    covered = np.maximum(end - np.maximum(start, before), 0)
    at = np.flatnonzero(is_first)
    sums = {"compute_ns": covered, "op_count": np.ones_like(covered)}
    gap = pl.Series("gap_ns", before[at])
    return ops.select("group", "step", "start_ns", "op_id")[at].with_columns(
        gap.set(gap == _NEVER, None),
        end_ns=np.maximum.reduceat(end, at) if len(at) else end,
        **{name: np.add.reduceat(values, at) if len(at) else values for name, values in sums.items()},
    )


def _find_needs(
    first: pl.DataFrame, others: pl.DataFrame, api_calls: pl.DataFrame, launches: pl.DataFrame
) -> pl.DataFrame:
    """Say what the first kernels of stretches waited for.

    Args:
        first: op_id, group, start_ns of the kernels, gap_ns: when the gap before them began.
        others: Operations that are no computation.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES`.

    Returns:
        launch_ns, need, need_op_id, need_start_ns, need_end_ns of each kernel, in order.
    """
    waits = api_calls.filter(_is_named(api_calls, f"{_SYNCHRONISES}|{_LETS_WAIT}"))
    candidates = _list_candidates(others, api_calls, launches)
    own = find_first_calls(first["op_id"], api_calls=api_calls, launches=launches)
    group, start, gap = (_numbers(first[name]) for name in ("group", "start_ns", "gap_ns"))
    launch = _numbers(own["launch_ns"])
    # -1 is nobody's place: there nothing ends
    of_group, end, need_launch = (
        np.append(_numbers(candidates[name]), _NEVER) for name in ("group", "need_end_ns", "need_launch_ns")
    )

    def in_gap(place: Int64s) -> Int64s:
        return np.where((end[place] > gap) & (end[place] <= start), place, -1)

    def last_of(some: Int64s, until: Int64s, time: Int64s) -> Int64s:
        return np.append(some, -1)[find_last(group, until, of_group[some], time)]

    everything = np.arange(len(candidates))
    last = in_gap(last_of(everything, start, end[:-1]))
    taken = np.flatnonzero(~candidates["is_send"].to_numpy())
    let = in_gap(last_of(taken, start, end[taken]))
    let[~_lets_wait(own, waits, api_calls, launches)] = -1
    released, released_ns = _find_released(candidates, waits)
    awaited = in_gap(last_of(released, launch, released_ns))
    return_ns = np.full(len(end), _NEVER)
    return_ns[released] = released_ns

    is_early = (launch == _NEVER) | ((launch <= end[last]) & (start - launch > _AT_ONCE_NS))
    at_once = (last >= 0) & (start - end[last] <= _AT_ONCE_NS) & is_early
    after = (let >= 0) & (awaited >= 0) & (need_launch[let] >= return_ns[awaited])
    needed = pl.Series(np.where(at_once, last, np.where(after | (awaited < 0), let, awaited)))
    needed = needed.set(needed < 0, None)
    return pl.concat(
        [own.select("launch_ns"), candidates.select(pl.col(_NEED).gather(needed))], how="horizontal"
    )


def _list_candidates(others: pl.DataFrame, api_calls: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """List what can be waited for, by end."""
    kind = (
        pl.when(pl.col("kind").is_in(["memcpy", "memset"]))
        .then(pl.lit("copy"))
        .when(_is_named(others, _MESSAGE))
        .then(pl.lit("message"))
        .otherwise(pl.lit("collective"))
    )
    candidates = others.select(
        *("group", "process_key", "is_send"),
        need=kind,
        need_op_id="op_id",
        need_start_ns="start_ns",
        need_end_ns="end_ns",
    ).sort("need_end_ns", "need_start_ns")
    called = find_first_calls(candidates["need_op_id"], api_calls=api_calls, launches=launches)
    return candidates.with_columns(called["launch_ns"].alias("need_launch_ns"))


def _lets_wait(
    own: pl.DataFrame, waits: pl.DataFrame, api_calls: pl.DataFrame, launches: pl.DataFrame
) -> Bools:
    """Say of each call in `own` whether its thread, since its last launch, made one that lets a stream wait."""
    is_launch = np.zeros(len(api_calls), dtype=np.bool_)
    is_launch[launches["call_row"].to_numpy()] = True
    columns = ("thread_key", "start_ns")
    lets = waits.select(*columns, "name").filter(_is_named(waits, _LETS_WAIT))
    calls = pl.concat([lets.select(columns), api_calls.select(columns).filter(pl.Series(is_launch))])
    thread, time = (calls[name].to_numpy() for name in columns)
    order = np.argsort(time, kind="stable")
    before = find_last(
        _numbers(own["thread_key"]), _numbers(own["launch_ns"]), thread[order], time[order], is_before=True
    )
    lets_wait: Bools = np.append(order < len(lets), False)[before]
    return lets_wait


def _find_released(candidates: pl.DataFrame, waits: pl.DataFrame) -> tuple[Int64s, Int64s]:
    """Find the candidates that a host waited for, by when the call returned that waited; returns both."""
    returns = waits.filter(_is_named(waits, _SYNCHRONISES)).sort("end_ns")
    end = _numbers(candidates["need_end_ns"])
    process, begin, until = (_numbers(returns[name]) for name in ("process_key", "start_ns", "end_ns"))
    at = find_first(_numbers(candidates["process_key"]), end, process, until)
    begin, until = np.append(begin, -_NEVER), np.append(until, -_NEVER)
    rows = np.flatnonzero((begin[at] <= end) & (until[at] - _RETURN_NS <= end))
    released_ns = until[at[rows]]
    # a send that ends while the call returns is not what it waited for
    is_send = candidates["is_send"].to_numpy()[rows]
    order = np.lexsort((end[rows], ~is_send, released_ns))
    return rows[order], released_ns[order]


def _numbers(series: pl.Series) -> Int64s:
    """Return the values, `_NEVER` for null."""
    return series.cast(pl.Int64).fill_null(_NEVER).to_numpy()


def _is_named(frame: pl.DataFrame, pattern: str) -> pl.Expr:
    """Does the name of a row contain `pattern`? Every name is looked at once."""
    names = frame["name"].unique().drop_nulls()
    return pl.col("name").is_in(names.filter(names.cast(pl.String).str.contains(pattern)).implode())

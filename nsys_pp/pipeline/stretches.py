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
_NEVER = np.int64(-(1 << 62))


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
    is_compute = ~pl.col("is_communication") & pl.col("kind").is_in(["kernel", "graph"])
    groups = gpu_ops.select("process_key", "device_id").unique().sort("process_key", "device_id")
    groups = groups.with_row_index("group")
    keyed = gpu_ops.select(
        *(
            "op_id",
            "process_key",
            "device_id",
            "start_ns",
            "end_ns",
            "kind",
            "name",
            is_compute.alias("computes"),
        )
    ).join(groups, on=["process_key", "device_id"], maintain_order="left")
    order = steps.join(groups, on=["process_key", "device_id"]).sort("group", "start_ns")
    ops = _cut(keyed.filter("computes").select("op_id", "group", "start_ns", "end_ns"), order)
    joined = _join(ops.sort("group", "start_ns"))
    first = joined.select("group", "start_ns", "gap_ns", "op_id")
    others = keyed.filter(~pl.col("computes")).with_columns(
        is_send=pl.col("op_id").is_in(_sends(messages).implode())
    )
    needs = _find_needs(first, others, api_calls, launches)
    return (
        pl.concat([joined, needs], how="horizontal")
        .join(groups, on="group", maintain_order="left")
        .pipe(conform, STRETCHES)
    )


def _sends(messages: pl.DataFrame | None) -> pl.Series:
    """List the kernels that only send (op_id): computation that is not launched yet seldom waits for one."""
    if messages is None:
        return pl.Series(dtype=pl.UInt32)
    return messages.group_by("op_id").agg((pl.col("verb") == "send").all()).filter("verb")["op_id"]


def _cut(ops: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Cut operations where a step begins or ends, and give them the `step` in which they are."""
    edges = pl.concat([steps.select("group", edge_ns=name) for name in ("start_ns", "end_ns")]).unique()
    edges = edges.sort("edge_ns").with_columns(at_ns="edge_ns")
    whole, rest = [], ops
    while len(rest):
        rest = rest.sort("start_ns").join_asof(
            edges,
            left_on="start_ns",
            right_on="at_ns",
            by="group",
            strategy="forward",
            allow_exact_matches=False,
            check_sortedness=False,
        )
        is_over = (pl.col("edge_ns") < pl.col("end_ns")).fill_null(value=False)
        whole.append(rest.select(*ops.columns[:3], end_ns=pl.min_horizontal("end_ns", "edge_ns")))
        rest = rest.filter(is_over).select(*ops.columns[:2], start_ns="edge_ns", end_ns="end_ns")
    cut = pl.concat(whole) if whole else ops
    within = cut.sort("start_ns").join_asof(
        steps.select("group", "step", at_ns="start_ns", until_ns="end_ns").sort("at_ns"),
        left_on="start_ns",
        right_on="at_ns",
        by="group",
        check_sortedness=False,
    )
    is_inside = pl.col("start_ns") < pl.col("until_ns")
    return within.select(*ops.columns, step=pl.when(is_inside).then("step"))


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
    candidates = _list_candidates(others, api_calls, launches)
    own = _launches_of(first["op_id"], api_calls, launches).pipe(_with_waits, api_calls, launches)
    kernels = first.join(own, on="op_id", how="left", maintain_order="left").with_row_index("row")
    kernels = kernels.with_columns(pl.col("gap_ns").fill_null(_NEVER))
    start, end, launch = pl.col("start_ns"), pl.col("need_end_ns"), pl.col("launch_ns")
    is_in_gap = (end > pl.col("gap_ns")) & (end <= start)
    last, last_taken = (
        kernels.sort("start_ns").join_asof(
            some.drop("process_key"), left_on="start_ns", right_on="need_end_ns", by="group",
            check_sortedness=False, coalesce=False,
        ).filter(is_in_gap)
        for some in (candidates, candidates.filter(~pl.col("is_send")))
    )  # fmt: skip
    awaited = kernels.filter(launch.is_not_null()).sort("launch_ns").join_asof(
        _released(candidates, api_calls), left_on="launch_ns", right_on="released_ns", by="group",
        check_sortedness=False,
    ).filter(is_in_gap)  # fmt: skip
    is_early = (launch <= end) & (start - launch > _AT_ONCE_NS)
    at_once = last.filter((start - end <= _AT_ONCE_NS) & is_early.fill_null(value=True))
    let = last_taken.filter("lets_wait")
    after = let.join(awaited.select("row", "released_ns"), on="row").filter(
        pl.col("need_launch_ns") >= pl.col("released_ns")
    )
    columns = ["row", "need", "need_op_id", "need_start_ns", "need_end_ns"]
    told = pl.concat(frame.select(columns) for frame in (at_once, after, awaited, let))
    needs = told.unique("row", keep="first", maintain_order=True)
    return (
        kernels.select("row", "launch_ns")
        .join(needs, on="row", how="left", maintain_order="left")
        .drop("row")
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
    called = _launches_of(candidates["need_op_id"], api_calls, launches)
    return candidates.join(
        called.select(need_op_id="op_id", need_launch_ns="launch_ns"),
        on="need_op_id",
        how="left",
        maintain_order="left",
    )


def _launches_of(ops: pl.Series, api_calls: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Give the first call that launched each operation (op_id, thread_key, launch_ns)."""
    own = launches.filter(pl.col("op_id").is_in(ops.implode())).unique(
        "op_id", keep="first", maintain_order=True
    )
    calls = api_calls.select("thread_key", launch_ns="start_ns")[own["call_row"]]
    return pl.concat([own.select("op_id"), calls], how="horizontal")


def _with_waits(found: pl.DataFrame, api_calls: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Say `lets_wait`: since its last launch, the thread made a call that lets a stream wait."""
    calls = api_calls.select("thread_key", launch_ns="start_ns")
    made = calls[launches["call_row"].unique()]
    waits = calls.filter(api_calls.select(_is_named(api_calls, _LETS_WAIT)).to_series())
    found = found.sort("launch_ns")
    for name, others in (("launched_ns", made), ("wait_ns", waits)):
        found = found.join_asof(
            others.sort("launch_ns").with_columns(pl.col("launch_ns").alias(name)),
            on="launch_ns", by="thread_key", allow_exact_matches=False, check_sortedness=False,
        )  # fmt: skip
    lets_wait = pl.col("wait_ns") > pl.col("launched_ns").fill_null(_NEVER)
    return found.select("op_id", "launch_ns", lets_wait=lets_wait.fill_null(value=False))


def _released(candidates: pl.DataFrame, api_calls: pl.DataFrame) -> pl.DataFrame:
    """Pick operations that a host waited for; `released_ns` is when the call returned that waited."""
    waits = api_calls.filter(_is_named(api_calls, _SYNCHRONISES)).select(
        "process_key", wait_ns="start_ns", released_ns="end_ns"
    )
    return (
        candidates.join_asof(
            waits.sort("released_ns"),
            left_on="need_end_ns",
            right_on="released_ns",
            by="process_key",
            strategy="forward",
            check_sortedness=False,
            coalesce=False,
        )
        .filter(
            pl.col("wait_ns") <= pl.col("need_end_ns"),
            pl.col("released_ns") - pl.col("need_end_ns") <= _RETURN_NS,
        )
        .drop("process_key")
        # a send that ends while the call returns is not what it waited for
        .sort("released_ns", ~pl.col("is_send"), "need_end_ns")
    )


def _is_named(frame: pl.DataFrame, pattern: str) -> pl.Expr:
    """Does the name of a row contain `pattern`? Every name is looked at once."""
    names = frame["name"].unique().drop_nulls()
    return pl.col("name").is_in(names.filter(names.cast(pl.String).str.contains(pattern)).implode())

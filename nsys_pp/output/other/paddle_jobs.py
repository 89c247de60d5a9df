"""Names and colors of jobs in Paddle's timeline tool."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import polars as pl

from nsys_pp.frames.training import MESSAGE_KINDS, MICRO_BATCH_KINDS, Training, mark_split_backwards
from nsys_pp.output.trace.colors import COLORS

STEP_COLOR = "thread_state_unknown"

_COLORS = {  # kind -> colors of even and odd chunks: the colors of the tool, and similar ones for other kinds
    "forward": ("thread_state_running", "good"),
    "backward": ("rail_idle", "rail_animation"),
    "weight_gradient": ("bad", "bad"),
    "forward_backward": ("thread_state_uninterruptible", "thread_state_uninterruptible"),
    "optimizer": ("rail_response", "rail_response"),
    "recompute": (COLORS["recompute"].cname, COLORS["recompute"].cname),
    "data": (COLORS["data"].cname, COLORS["data"].cname),
}
_OTHERS = ("grey", "yellow", "thread_state_runnable", "thread_state_sleeping", "generic_work", "startup")


def describe_jobs(training: Training, lanes: Sequence[int]) -> tuple[pl.DataFrame, list[str]]:
    """Describe the jobs of lanes with Paddle's names.

    Args:
        training: The run.
        lanes: Lanes to include.

    Returns:
        One row per job with compute kernels, in order of `RUN_JOBS`: lane, step, start_ns, end_ns, parent (row
        of the job around it, or -1), type, name, cname. And sentences about inferred facts.
    """
    jobs = training.jobs.filter(
        pl.col("lane").is_in(lanes),
        pl.col("compute_start_ns").is_not_null(),
        ~pl.col("kind").is_in(MESSAGE_KINDS),
    ).with_row_index("row")
    around = jobs.select(parent=pl.col("row").cast(pl.Int64), outer="job")
    described = (
        _name_types(jobs)
        .join(around, on="outer", how="left", maintain_order="left")
        .with_columns(
            start_ns="compute_start_ns",
            end_ns="compute_end_ns",
            parent=pl.col("parent").fill_null(-1),
            number=_number(),
        )
        .with_columns(name=pl.format("{}_{}", "type", "number"), cname=_color())
        .select("lane", "step", "start_ns", "end_ns", "parent", "type", "name", "cname")
    )
    unknown = jobs.filter(pl.col("kind").is_in(MICRO_BATCH_KINDS), pl.col("micro_batch").is_null()).height
    notes = [f"no micro-batch is known of {unknown:,} jobs: they are counted in each step"] if unknown else []
    return described, notes


def _name_types(jobs: pl.DataFrame) -> pl.DataFrame:
    """Add `type`, Paddle's name of a kind and chunk; a backward is split if weight gradients of its micro-batch follow."""
    jobs = jobs.with_columns(is_split=mark_split_backwards(jobs))
    has_chunks = pl.lit(jobs["chunk"].drop_nulls().n_unique() > 1)
    chunk, backward_chunk = (
        pl.when(has_chunks).then(pl.col(column).cast(pl.String)).otherwise(None).fill_null("")
        for column in ("chunk", "backward_chunk")
    )
    kind = pl.col("kind").cast(pl.String)
    of_backward = pl.when("is_split").then(pl.lit("backward_b")).otherwise(pl.lit("backward"))
    named = pl.col("name").cast(pl.String).str.replace(r"[\s_.:#/-]*\d*$", "")
    return jobs.with_columns(
        type=pl.when(kind == "backward")
        .then(of_backward + chunk)
        .when(kind == "weight_gradient")
        .then(pl.lit("backward_w") + chunk)
        .when(kind == "forward_backward")
        .then(pl.lit("forward") + chunk + pl.lit("_backward") + backward_chunk)
        .when(kind.is_in(["forward", "recompute"]))
        .then(kind + chunk)
        .when(kind == "other")
        .then(pl.when(named != "").then(named).otherwise(kind))
        .otherwise(kind)
    )


def _number() -> pl.Expr:
    """Return the number of a job: its micro-batch, or its index among jobs of its type in the step."""
    counted = pl.int_range(pl.len()).over("lane", "step", "type")
    number = pl.coalesce("micro_batch", counted).cast(pl.String)
    both = pl.format("{}+{}", "micro_batch", "backward_micro_batch")
    return pl.when(pl.col("kind") == "forward_backward").then(pl.coalesce(both, number)).otherwise(number)


def _color() -> pl.Expr:
    """Return the color of a job by kind and chunk; for a kind without a color, a color derived from the type."""
    kind = pl.col("kind").cast(pl.String)
    first, second = (
        kind.replace_strict(
            {key: names[shade] for key, names in _COLORS.items()}, default=None, return_dtype=pl.String
        )
        for shade in (0, 1)
    )
    is_second = (pl.col("chunk") % 2 == 1).fill_null(False)
    return pl.coalesce(
        pl.when(is_second).then(second).otherwise(first),
        pl.col("type").map_batches(_color_names, return_dtype=pl.String),
    )


def _color_names(types: pl.Series) -> pl.Series:
    """Return colors derived from the names of types, the same in each run.

    >>> _color_names(pl.Series(["default", "lr", "default"])).to_list()
    ['thread_state_unknown', 'thread_state_runnable', 'thread_state_unknown']
    """
    colors = {name: _OTHERS[crc32(name.encode()) % len(_OTHERS)] for name in types.unique()}
    return types.replace_strict({**colors, "default": STEP_COLOR}, return_dtype=pl.String)

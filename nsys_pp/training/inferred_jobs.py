"""Jobs of a run without job ranges, reconstructed from the times of its messages.

A message is sent at the end of its job, so the compute of a stage between two sends is a job:

    compute    [ F0 )[ F1 )      [ B0 )[ F2 )      [ B1 )
    sends           ^     ^            ^     ^           ^

The first stage sends nothing after a backward, and the last stage nothing after a forward. A forward and a
backward without a message between them are reconstructed as one combined job.
"""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform_part
from nsys_pp.frames.training import RUN_JOBS
from nsys_pp.training.lanes import count_located

_STEP = ["lane", "step"]
_MAX_EARLY_NS = 100_000  # compute of a job before its message that counts as noise
_MAX_EARLY_SHARE = 0.2  # of the jobs, with more compute before their message
_SURE, _BOTH, _REST = 0.9, 0.5, 0.3  # confidence in a job, in a combined job, in the rest of a step


def reconstruct_jobs(
    *, lanes: pl.DataFrame, steps: pl.DataFrame, compute_segments: pl.DataFrame, transfers: pl.DataFrame
) -> tuple[pl.DataFrame, str]:
    """Reconstruct jobs from the compute between the messages of each stage.

    Valid for 1F1B with one chunk per stage and whole backwards; other schedules are refused. Micro-batches
    are counted in the order of the messages. Compute after the last message of a step is a job of kind
    "other". On the first stage, which sends no gradients, it is the last backward; earlier backwards after
    its last send end where the next gradients are received, even if these arrive early.

    Args:
        lanes: `LANES`.
        steps: `RUN_STEPS`.
        compute_segments: `LANE_COMPUTE_SEGMENTS`.
        transfers: `TRANSFERS`.

    Returns:
        `RUN_JOBS`, all inferred, with a `confidence`; and the reason where they cannot be reconstructed, else
        "".
    """
    messages = _list_messages(lanes, steps, transfers)
    reason = _explain_refusal(lanes, steps, transfers, messages)
    if reason:
        return RUN_JOBS.to_frame(), reason
    spans = _cut_steps(steps, messages, count_located(lanes))
    if _computes_too_early(spans, messages, compute_segments):
        return RUN_JOBS.to_frame(), "stages compute between a job and the message that the next one waits for"
    return _build_jobs(spans, compute_segments), ""


def _list_messages(lanes: pl.DataFrame, steps: pl.DataFrame, transfers: pl.DataFrame) -> pl.DataFrame:
    """List the messages inside steps: lane, stage, step, at_ns, direction, micro_batch, is_sent.

    `at_ns` is the start of a send or the end of a receive: the times at which jobs end.
    """
    stages = lanes.select("lane", "stage")
    sent = transfers.select("direction", lane="sender", at_ns="send_start_ns", is_sent=pl.lit(True))
    received_ends = transfers.select(
        "direction", lane="receiver", at_ns="receive_end_ns", is_sent=pl.lit(False)
    )
    marks = pl.concat([sent, received_ends]).join(stages, on="lane").sort("at_ns")
    inside = marks.join_asof(
        steps.select(*_STEP, start_ns="start_ns", until_ns="end_ns").sort("start_ns"),
        left_on="at_ns",
        right_on="start_ns",
        by="lane",
        check_sortedness=False,
    ).filter(pl.col("at_ns") <= pl.col("until_ns"))
    number = pl.int_range(pl.len()).over(*_STEP, "direction", "is_sent")
    return inside.sort("lane", "at_ns").with_columns(micro_batch=number)


def _explain_refusal(
    lanes: pl.DataFrame, steps: pl.DataFrame, transfers: pl.DataFrame, messages: pl.DataFrame
) -> str:
    """Return the reason that prevents the reconstruction of jobs; "" without one."""
    count = count_located(lanes)
    if count < 2:
        return "the stages of the ranks are not known"
    if steps.is_empty():
        return "no steps are known"
    if transfers.is_empty() or transfers["direction"].has_nulls():
        return "the direction of some messages is unknown"
    sides = messages.group_by("stage", *_STEP, "direction", "is_sent").len("messages")
    if sides["messages"].n_unique() > 1:
        return "stages do not exchange equally many messages in every step"
    sending = pl.col("is_sent")
    stage = pl.col("stage")
    for direction, is_due in (("forward", stage < count - 1), ("backward", stage > 0)):
        own = sides.filter(sending, pl.col("direction") == direction)
        due = lanes.filter(is_due).height * steps["step"].n_unique()
        if len(own) != due or not own.select(is_due.all()).item():
            return "messages are not those of one part of the model per stage"
    if not _follows_1f1b(messages, count):
        return "the first stage does not follow 1F1B"
    return ""


def _join_first_stage(messages: pl.DataFrame) -> pl.DataFrame:
    """Join forward sends and backward receives of the first stage by micro-batch."""
    first = messages.filter(pl.col("stage") == 0)
    key = [*_STEP, "micro_batch"]
    sent = first.filter("is_sent").select(*key, sent_ns="at_ns")
    received_ends = first.filter(~pl.col("is_sent")).select(*key, received_ns="at_ns")
    return sent.join(received_ends, on=key).sort(key)


def _follows_1f1b(messages: pl.DataFrame, count: int) -> bool:
    """Return whether the first stage receives gradients before each send of a forward after its warm-up."""
    later = pl.col("sent_ns").shift(-count).over(_STEP)
    fits = _join_first_stage(messages).select(fits=pl.col("received_ns") <= later)["fits"].drop_nulls()
    return len(fits) > 0 and bool(fits.all())


def _cut_steps(steps: pl.DataFrame, messages: pl.DataFrame, count: int) -> pl.DataFrame:
    """Cut every step at the ends of jobs: lane, step, start_ns, end_ns, and kind and ids of the job."""
    last_sent = pl.col("at_ns").filter(pl.col("is_sent")).max().over(_STEP)
    is_tail = (pl.col("stage") == 0) & ~pl.col("is_sent") & (pl.col("at_ns") > last_sent)
    # after the last send of the first stage, a backward ends at the next receive, or with the step
    cuts = messages.filter(pl.col("is_sent") | is_tail).sort("lane", "at_ns")
    edges = pl.concat(
        [
            cuts.select(*_STEP, "stage", "at_ns", "direction", "micro_batch", "is_sent"),
            steps.join(messages.select("lane", "stage").unique(), on="lane").select(
                *_STEP, "stage", at_ns="end_ns", direction=pl.lit(None, messages.schema["direction"]),
                micro_batch=pl.lit(None, pl.Int64), is_sent=pl.lit(True),
            ),
        ]
    ).sort("lane", "at_ns")  # fmt: skip
    before = {name: pl.col(name).shift(1).over(_STEP) for name in ("at_ns", "is_sent", "micro_batch")}
    edges = edges.join(steps.select(*_STEP, begin_ns="start_ns"), on=_STEP).sort("lane", "at_ns")
    spans = edges.with_columns(
        start_ns=before["at_ns"].fill_null(pl.col("begin_ns")), end_ns="at_ns",
        after_receive=~before["is_sent"].fill_null(value=True), received=before["micro_batch"],
    )  # fmt: skip
    is_last, is_first = pl.col("stage") == count - 1, pl.col("stage") == 0
    number, lag = pl.col("micro_batch"), pl.col("micro_batch") - count
    is_combined = is_first & pl.col("is_sent") & (pl.col("direction") == "forward") & (lag >= 0)
    both = pl.lit("forward_backward")
    return spans.select(
        *_STEP,
        "start_ns",
        "end_ns",
        is_tail="after_receive",
        kind=pl.when("after_receive")
        .then(pl.lit("backward"))
        .when(pl.col("direction").is_null() | (is_first & ~pl.col("is_sent")))
        .then(pl.lit("other"))
        .when(is_combined | (is_last & (pl.col("direction") == "backward")))
        .then(both)
        .otherwise(pl.col("direction").cast(pl.String)),
        micro_batch=pl.when("after_receive").then("received").otherwise(number),
        backward_micro_batch=pl.when(is_combined).then(lag).when(is_last).then(number),
    )


def _computes_too_early(spans: pl.DataFrame, messages: pl.DataFrame, compute_segments: pl.DataFrame) -> bool:
    """Return whether stages often compute before the message of a job.

    A sign of split backwards or of chunks.
    """
    received_ends = messages.filter(~pl.col("is_sent")).select(
        *_STEP, "micro_batch", kind=pl.col("direction").cast(pl.String), received_ns="at_ns"
    )
    waits = spans.join(received_ends, on=[*_STEP, "kind", "micro_batch"]).filter(
        pl.col("received_ns") > pl.col("start_ns")
    )
    waits = waits.filter(pl.col("received_ns") <= pl.col("end_ns"))
    begin, end = (
        _sum_compute(waits, compute_segments, column)["covered"] for column in ("start_ns", "received_ns")
    )
    return ((end - begin) > _MAX_EARLY_NS).sum() > _MAX_EARLY_SHARE * len(waits)


def _sum_compute(spans: pl.DataFrame, compute_segments: pl.DataFrame, column: str) -> pl.DataFrame:
    """Sum the compute of each span's lane until a time of the span, in order of the spans.

    Returns:
        covered: the sum; last_ns: end of the last segment started by that time; order: its index in the lane,
            or -1.
    """
    length = pl.col("end_ns") - pl.col("start_ns")
    parts = compute_segments.sort("lane", "start_ns").select(
        "lane",
        before_ns=(length.cum_sum() - length).over("lane"),
        order=pl.int_range(pl.len()).over("lane"),
        first_ns="start_ns",
        last_ns="end_ns",
    )
    edges = spans.select("lane", edge_ns=column).with_row_index("row").sort("edge_ns")
    latest = edges.join_asof(
        parts.sort("first_ns"), left_on="edge_ns", right_on="first_ns", by="lane", check_sortedness=False,
        coalesce=False,
    ).sort("row")  # fmt: skip
    covered = pl.col("before_ns") + pl.min_horizontal("edge_ns", "last_ns") - pl.col("first_ns")
    return latest.select(covered.fill_null(0).alias("covered"), "last_ns", pl.col("order").fill_null(-1))


def _build_jobs(spans: pl.DataFrame, compute_segments: pl.DataFrame) -> pl.DataFrame:
    """Build jobs from the spans with compute: its first start, last end and sum."""
    sides = []
    for column in ("start_ns", "end_ns"):
        covered = _sum_compute(spans, compute_segments, column)
        sides.append(covered.select(pl.all().name.prefix(f"{column}_")))
    following = compute_segments.sort("lane", "start_ns").select(
        "lane", start_ns_order=pl.int_range(pl.len()).over("lane") - 1, next_ns="start_ns"
    )
    placed = pl.concat([spans, *sides], how="horizontal")
    hull = placed.join(following, on=["lane", "start_ns_order"], how="left").with_columns(
        compute_ns=pl.col("end_ns_covered") - pl.col("start_ns_covered"),
        compute_start_ns=pl.when(pl.col("start_ns_last_ns") > pl.col("start_ns"))
        .then("start_ns")
        .otherwise("next_ns"),
        compute_end_ns=pl.min_horizontal("end_ns_last_ns", "end_ns"),
    )
    sure = pl.when("is_tail").then(_BOTH).otherwise(_SURE)
    confidence = pl.col("kind").replace_strict({"forward_backward": _BOTH, "other": _REST}, default=sure)
    jobs = hull.filter(pl.col("compute_ns") > 0).sort("lane", "compute_start_ns").with_columns(
        confidence=confidence, is_inferred=pl.lit(True), job=pl.int_range(pl.len()), busy_ns="compute_ns",
        start_ns="compute_start_ns", end_ns="compute_end_ns",
        micro_batch=pl.when(pl.col("kind") != "other").then("micro_batch"),
        backward_micro_batch=pl.when(pl.col("kind") == "forward_backward").then("backward_micro_batch"),
    )  # fmt: skip
    return conform_part(jobs, RUN_JOBS)

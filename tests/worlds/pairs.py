"""Pairs of sends and receives, and slow links and stragglers, against the truth."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tests.worlds.findings import Findings
from tests.worlds.truth import Truth

_ROUNDING_NS = 2
_BUCKET_NS = 1_000
_TIMES = [f"{role}_{edge}_ns" for role in ("send", "receive") for edge in ("start", "end")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairScore:
    """Messages with both sides recorded, and the pairs of the library."""

    messages: int
    right: int
    exchanged: int  # pairs of kernels of one exchange between replicas: in a ring, or of experts
    wrong: int  # other pairs: kernels of different messages, or of none with both sides
    unpaired: int  # messages whose receive is in no pair


def score_pairs(findings: Findings, truth: Truth) -> PairScore:
    """Compare pairs of kernels with the messages and exchanges: by process and times of both kernels."""
    transfers = findings.training.transfers
    pairs = transfers.select("sender", "receiver", *_TIMES)
    pairs = findings.on_reports(pairs, "sender", *_TIMES[:2], prefix="send_")
    pairs = findings.on_reports(pairs, "receiver", *_TIMES[2:], prefix="receive_")
    messages = _match(pairs, truth, truth.messages)
    is_right = (messages["send_message"] == messages["receive_message"]).fill_null(False)
    is_exchanged = _list_exchanged(pairs, truth) & ~is_right
    paired = messages["receive_message"].drop_nulls().unique()
    return PairScore(
        messages=len(truth.messages),
        right=int(is_right.sum()),
        exchanged=int(is_exchanged.sum()),
        wrong=int((~is_right & ~is_exchanged).sum()),
        unpaired=len(truth.messages) - len(paired),
    )


def _list_exchanged(pairs: pl.DataFrame, truth: Truth) -> pl.Series:
    """Return the mask of pairs that are one send and receive of an exchange between replicas."""
    exchanges = truth.exchanges
    if exchanges.is_empty():
        return pl.repeat(False, len(pairs), dtype=pl.Boolean, eager=True)
    keys = ["send_report", "send_pid", "receive_report", "receive_pid"]
    for role in ("send", "receive"):
        exchanges = truth.on_reports(exchanges, f"{role}_report", f"{role}_start_ns")
    # a kernel takes part in several exchanges, so both of its times are compared for each pair of processes
    joined = pairs.with_row_index("pair").join(exchanges, on=keys, suffix="_true")
    near = [
        (pl.col(f"{role}_start_ns") - pl.col(f"{role}_start_ns_true")).abs() <= _ROUNDING_NS
        for role in ("send", "receive")
    ]
    matched = joined.filter(*near)["pair"].unique()
    return pl.Series(range(len(pairs)), dtype=pl.UInt32).is_in(matched.implode())


def _match(pairs: pl.DataFrame, truth: Truth, messages: pl.DataFrame) -> pl.DataFrame:
    """Add the message of each kernel: `send_message` and `receive_message`; null where no message has it.

    Kernels are compared by start and end: those of two streams may start at the same time.
    """
    matched = pairs.with_row_index("pair")
    for role in ("send", "receive"):
        key, times = [f"{role}_report", f"{role}_pid"], [f"{role}_start_ns", f"{role}_end_ns"]
        kernels = truth.on_reports(messages, f"{role}_report", *times)
        near = [(pl.col(time) - pl.col(f"{time}_true")).abs() <= _ROUNDING_NS for time in times]
        bucket = pl.col(times[0]) // _BUCKET_NS
        around = pl.concat_list(bucket - 1, bucket, bucket + 1)
        found = (
            matched.select("pair", *key, *times, bucket=around)
            .explode("bucket")
            .join(kernels.select("message", *key, *times, bucket=bucket), on=[*key, "bucket"], suffix="_true")
            .filter(*near)
            .select("pair", pl.col("message").alias(f"{role}_message"))
            .unique("pair", keep="first", maintain_order=True)
        )
        matched = matched.join(found, on="pair", how="left", maintain_order="left")
    return matched

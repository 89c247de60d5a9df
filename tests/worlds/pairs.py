"""Pairs of sends and receives, and slow links and stragglers, against the truth."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tests.worlds.findings import Findings
from tests.worlds.truth import Truth

_ROUNDING_NS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PairScore:
    """Messages with both sides recorded, and the pairs of the library."""

    messages: int
    right: int
    exchanged: int  # pairs of kernels of one exchange between replicas: in a ring, or of experts
    wrong: int  # other pairs: kernels of different messages, or of none with both sides
    unpaired: int  # messages whose receive is in no pair


def score_pairs(findings: Findings, truth: Truth) -> PairScore:
    """Compare pairs of kernels with the messages and exchanges: by process and start of both kernels."""
    transfers = findings.training.transfers
    pairs = transfers.select("sender", "receiver", "send_start_ns", "receive_start_ns")
    pairs = findings.on_reports(pairs, "sender", "send_start_ns", prefix="send_")
    pairs = findings.on_reports(pairs, "receiver", "receive_start_ns", prefix="receive_")
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
    """Add the message of each kernel: `send_message` and `receive_message`; null where no message has it."""
    matched = pairs.with_row_index("pair")
    for role in ("send", "receive"):
        key, time = [f"{role}_report", f"{role}_pid"], f"{role}_start_ns"
        kernels = truth.on_reports(messages, f"{role}_report", time)
        kernels = kernels.select(*key, time, pl.col("message").alias(f"{role}_message")).sort(time)
        matched = matched.sort(time).join_asof(
            kernels, on=time, by=key, strategy="nearest", tolerance=_ROUNDING_NS, check_sortedness=False
        )
    return matched.sort("pair")

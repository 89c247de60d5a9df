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
    wrong: int  # pairs of kernels that are of different messages, or of none with both sides
    unpaired: int  # messages whose receive is in no pair


def score_pairs(findings: Findings, truth: Truth) -> PairScore:
    """Compare pairs of kernels with the messages: by process and start of both kernels."""
    transfers = findings.training.transfers
    pairs = transfers.select("sender", "receiver", "send_start_ns", "receive_start_ns")
    pairs = findings.on_reports(pairs, "sender", "send_start_ns", prefix="send_")
    pairs = findings.on_reports(pairs, "receiver", "receive_start_ns", prefix="receive_")
    messages = truth.messages
    for role in ("send", "receive"):
        messages = truth.on_reports(messages, f"{role}_report", f"{role}_start_ns")
        pairs = _match(pairs, messages, role)
    is_right = (pairs["send_message"] == pairs["receive_message"]).fill_null(False)
    paired = pairs["receive_message"].drop_nulls().unique()
    return PairScore(
        messages=len(messages),
        right=int(is_right.sum()),
        wrong=int((~is_right).sum()),
        unpaired=len(messages) - len(paired),
    )


def _match(pairs: pl.DataFrame, messages: pl.DataFrame, role: str) -> pl.DataFrame:
    """Add the message of each kernel: `send_message` or `receive_message`; null where no message has it."""
    key, time = [f"{role}_report", f"{role}_pid"], f"{role}_start_ns"
    kernels = messages.select(*key, time, pl.col("message").alias(f"{role}_message")).sort(time)
    return pairs.sort(time).join_asof(
        kernels, on=time, by=key, strategy="nearest", tolerance=_ROUNDING_NS, check_sortedness=False
    )

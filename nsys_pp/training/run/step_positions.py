"""Positions of messages in their steps: the n-th send of a step belongs to the n-th receive of the step.

A capture that begins inside a step lacks its first messages, so positions are counted from the last message there.
"""

from __future__ import annotations

import polars as pl

POSITION_COLUMNS = ("step", "from_first", "from_last", "has_first", "has_last")


def mark_step_edges(messages: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Mark the messages of steps that begin, or end, inside the capture of their lane.

    Args:
        messages: With lane and step.
        steps: `RUN_STEPS`.

    Returns:
        The messages, in order, with has_first and has_last; both are false for messages outside all steps.
    """
    # by time, as numbers repeat after a restart
    is_first = pl.col("start_ns") == pl.col("start_ns").min().over("lane")
    is_last = pl.col("start_ns") == pl.col("start_ns").max().over("lane")
    edges = steps.select(
        "lane",
        "step",
        has_first=~(pl.col("is_partial") & (is_first | ~is_last)),
        has_last=~(pl.col("is_partial") & (is_last | ~is_first)),
    )
    return messages.join(edges, on=["lane", "step"], how="left", maintain_order="left").with_columns(
        pl.col("has_first", "has_last").fill_null(False)
    )


def number_in_steps(messages: pl.DataFrame) -> pl.DataFrame:
    """Number the messages of each route in each step.

    Args:
        messages: With step, route and issue_ns.

    Returns:
        The messages, in order, with from_first (0 for the first message of the route in the step) and from_last (0
        for the last one).
    """
    order = pl.col("issue_ns").rank("ordinal").over("route", "step").cast(pl.Int64)
    return messages.with_columns(
        from_first=order - 1, from_last=pl.len().over("route", "step").cast(pl.Int64) - order
    )


def pair_positions(sends: pl.DataFrame, receives: pl.DataFrame, candidates: pl.DataFrame) -> pl.DataFrame:
    """Pair sends with receives at the same position of the same step, for each candidate pair of routes.

    Positions are counted from the first message where both captures contain the begin of the step, else from the last
    one. A step that both captures contain, with different numbers of messages, has no pairs.

    Args:
        sends: row, route and `POSITION_COLUMNS`.
        receives: The same.
        candidates: candidate, send_route, receive_route.

    Returns:
        candidate, send (row), receive (row).
    """
    columns = ["row", "route", *POSITION_COLUMNS]
    wanted = candidates.join(
        sends.select(columns).drop_nulls("step").rename({"row": "send", "route": "send_route"}),
        on="send_route",
    )
    others = receives.select(columns).rename({"row": "receive", "route": "receive_route"})
    parts = []
    for edge, other in (("first", "last"), ("last", "first")):
        key = f"from_{edge}"
        pairs = wanted.filter(f"has_{edge}").join(
            others.filter(f"has_{edge}"), on=["receive_route", "step", key], suffix="_of_receive"
        )
        both = pl.col(f"has_{other}") & pl.col(f"has_{other}_of_receive")
        is_alike = pl.col(f"from_{other}") == pl.col(f"from_{other}_of_receive")
        parts.append(pairs.filter(~both | (is_alike if edge == "first" else False)))
    return pl.concat(part.select("candidate", "send", "receive") for part in parts)

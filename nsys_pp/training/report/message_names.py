"""Names of ranges that both send and receive: direction and ids of each half.

Frameworks join the names of a send and of a receive (`send_forward_3_recv_backward_1`), so the rules of sends and
receives, one after the other, match the whole name.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import product

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import numbers
from nsys_pp.arrays.names import list_names
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.report import NAME
from nsys_pp.frames.training import DIRECTION, JOB_KINDS
from nsys_pp.training.report.presets import Rule, anchor_pattern, cast_numbers
from nsys_pp.training.report.vocabulary import Rules

HALVES = build_schema(
    {  # one row per name of a range that both sends and receives, with an unambiguous direction of both; by name
        "name": NAME,
        "send_direction": DIRECTION,
        "send_micro_batch": pl.Int64,
        "send_chunk": pl.Int64,
        "send_virtual_stage": pl.Int64,
        "receive_direction": DIRECTION,
        "receive_micro_batch": pl.Int64,
        "receive_chunk": pl.Int64,
        "receive_virtual_stage": pl.Int64,
    },
    name="HALVES",
)
_SEND_RECEIVE = JOB_KINDS.index("send_receive")
_BETWEEN = r"[_;,+& ]*"  # characters between the joined names
_GROUP = re.compile(r"\(\?P?<(\w+)>")
_CACHE_SIZE = 64  # reports of a run mostly have the same names


def split_names(named_jobs: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Find the directions and ids of the send and of the receive in names of jobs of kind "send_receive".

    Args:
        named_jobs: `NAMED_JOBS`.
        rules: From `choose_rules`.

    Returns:
        `HALVES`; without the names that no pair of rules matches, or pairs of different directions.
    """
    rows = np.flatnonzero(numbers(named_jobs["kind"]) == _SEND_RECEIVE)
    if not len(rows):
        return HALVES.to_frame()
    distinct = frozenset(text for text in list_names(named_jobs["name"][rows]).texts if text is not None)
    return _split(distinct, rules.jobs) if distinct else HALVES.to_frame()


@lru_cache(_CACHE_SIZE)
def _split(names: frozenset[str], rules: tuple[Rule, ...]) -> pl.DataFrame:
    frame = pl.DataFrame({"name": sorted(names)}, schema={"name": pl.String})
    sends, receives = (
        [rule for rule in rules if rule.kind == kind and rule.direction is not None]
        for kind in ("send", "receive")
    )
    matches = [HALVES.to_frame().with_columns(pl.col("name").cast(pl.String))]
    for send, receive in product(sends, receives):
        halves = [_rename_groups(send, "send"), _rename_groups(receive, "receive")]
        for first, second in (halves, halves[::-1]):
            pattern = anchor_pattern(f"(?:{first}){_BETWEEN}(?:{second})")
            matched = frame.filter(pl.col("name").str.contains(pattern))
            groups = [name for name in _GROUP.findall(pattern) if name in HALVES]
            values = pl.col("name").str.extract_groups(pattern)
            matches.append(
                matched.with_columns(
                    *(cast_numbers(values.struct.field(name)) for name in groups),
                    send_direction=pl.lit(send.direction, DIRECTION),
                    receive_direction=pl.lit(receive.direction, DIRECTION),
                )
            )
    is_clear = pl.all_horizontal(pl.col("send_direction", "receive_direction").n_unique().over("name") == 1)
    split = (
        pl.concat(matches, how="diagonal").filter(is_clear).unique("name", keep="first", maintain_order=True)
    )
    return conform(split.sort("name").with_columns(pl.col("name").cast(NAME)), HALVES)


def _rename_groups(rule: Rule, half: str) -> str:
    """Return the expression of a rule, with groups named after a half."""
    return _GROUP.sub(lambda match: f"(?P<{half}_{match[1]}>", rule.pattern)

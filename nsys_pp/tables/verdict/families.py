"""Families of kernels in which slow ranks and stages take longer, as a part of their findings.

Kernels of forwards and backwards in the slow steps are compared by family with the median of the peers. The excess is in
all families alike, or mostly in one or two of them; where neither is clear, nothing is named. Times of different work do not
compare: of lanes with more kernels than their peers, only this is described.

A CUDA graph that was traced as a whole may hold collectives, and then the rank that waits in it, not the slow one, is the longer one.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.frames.training import MICRO_BATCH_KINDS
from nsys_pp.tables.verdict.evidence import Evidence, to_float
from nsys_pp.tables.verdict.wording import format_share

_MOST_MORE = 0.02  # difference of the numbers of kernels, relative
_LEAST_SHARE = 0.05  # of the time of the peers, in a family that is compared
_ALIKE = 0.35  # difference of an excess from that of all families, relative
_MOST_UNKNOWN = 0.3  # share of the time of kernels without a family
_LEAST_OF_ONE, _LEAST_OF_TWO = 0.6, 0.75  # of the excess
_LEAST_OF_GRAPHS = 0.5  # of the excess, that may be waits for other ranks
_LARGER = 1.25  # relative excess of a named family, in those of all families


def describe_families(
    evidence: Evidence, members: Sequence[int], peers: Sequence[int], steps: Sequence[int]
) -> str:
    """Describe the families of kernels in which lanes take longer than their peers; "" where it is not known or not clear."""
    families = _compare_families(evidence, members, peers, steps)
    if _is_mostly_of_graphs(families):
        return ", in CUDA graphs traced as a whole, which may hold waits for other ranks"
    usual, excess = to_float(families["usual_ns"].sum()), to_float(families["excess_ns"].sum())
    counts, usual_counts = to_float(families["count"].sum()), to_float(families["usual_count"].sum())
    if not usual or excess <= 0:
        return ""
    more = counts / usual_counts - 1
    if abs(more) > _MOST_MORE:
        return f", with {format_share(more)} more kernels" if more > 0 else ""
    if to_float(families.filter(family="unknown")["usual_ns"].sum()) > _MOST_UNKNOWN * usual:
        return ""
    large = families.filter(pl.col("usual_ns") >= _LEAST_SHARE * usual).with_columns(
        relative=pl.col("excess_ns") / pl.col("usual_ns") / (excess / usual)
    )
    if large.height >= 2 and ((large["relative"] - 1).abs() <= _ALIKE).all():
        return ", in all kernel families alike"
    named = large.filter(pl.col("relative") >= _LARGER).sort(-pl.col("excess_ns"), "family")
    for count, least in ((1, _LEAST_OF_ONE), (2, _LEAST_OF_TWO)):
        top = named.head(count)
        if top.height == count and to_float(top["excess_ns"].sum()) >= least * excess:
            return f", mostly in {' and '.join(_format(row) for row in top.iter_rows(named=True))}"
    return ""


def may_be_waiting(
    evidence: Evidence, members: Sequence[int], peers: Sequence[int], steps: Sequence[int]
) -> bool:
    """Return whether half of the excess or more is in CUDA graphs that were traced as a whole."""
    if not (evidence.training.kernels["kind"] == "graph").any():
        return False
    return _is_mostly_of_graphs(_compare_families(evidence, members, peers, steps))


def _is_mostly_of_graphs(families: pl.DataFrame) -> bool:
    of_graphs = to_float(families.filter(family="graph")["excess_ns"].sum())
    return of_graphs > 0 and of_graphs >= _LEAST_OF_GRAPHS * to_float(families["excess_ns"].sum())


def _format(row: dict[str, object]) -> str:
    return f"{row['family']} (+{format_share(to_float(row['excess_ns']) / to_float(row['usual_ns']))})"


def _compare_families(
    evidence: Evidence, members: Sequence[int], peers: Sequence[int], steps: Sequence[int]
) -> pl.DataFrame:
    """Compare kernels of lanes and their peers: family, total_ns, count, usual_ns, usual_count, excess_ns."""
    kernels = evidence.families.filter(pl.col("step").is_in(list(steps)))
    if evidence.has_passes:
        kernels = kernels.filter(pl.col("job_kind").is_in(MICRO_BATCH_KINDS))
    sums = kernels.group_by("lane", "family").agg(pl.col("total_ns", "count").sum())
    present = pl.DataFrame({"lane": [*members, *peers]}, schema={"lane": pl.UInt32})
    every = (
        present.join(sums.select("family").unique(), how="cross")
        .join(sums, on=["lane", "family"], how="left")
        .with_columns(pl.col("total_ns", "count").fill_null(0))
    )
    mine = (
        every.filter(pl.col("lane").is_in(list(members)))
        .group_by("family")
        .agg(pl.col("total_ns", "count").median())
    )
    others = (
        every.filter(pl.col("lane").is_in(list(peers)))
        .group_by("family")
        .agg(usual_ns=pl.col("total_ns").median(), usual_count=pl.col("count").median())
    )
    joined = mine.join(others, on="family")
    return joined.with_columns(excess_ns=pl.col("total_ns") - pl.col("usual_ns"))

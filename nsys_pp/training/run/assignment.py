"""Assignment of lanes to lanes that exchange messages, by the evidence of all their messages.

Tensor slices and replicas of neighbouring stages are mapped one to one, the same in both directions. Evidence of all
messages between two lanes is therefore summed, and a lane is chosen only if no other fits nearly as well, nor
another lane to that one.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.training.run.end_evidence import CLEAR

_RANK_PRIOR = 15.0  # evidence of a regular distance of ranks: e^15 to 1
_CONFIRMED = 3  # certain pairs that double it, if all have this distance
# Least share of lanes with the most frequent distance of ranks, if it is regular: by evidence, and without.
_REGULAR, _STRUCTURAL = 0.6, 0.75
_WHOLE = 0.7  # least share of messages that end together, where routes may have several partners
_LIKE = 0.6  # least evidence of a message, as a share of the usual one
_TOP = 8  # likeliest pairs of a side that are compared
_SIDES = ("near", "far")
_EVIDENCE = ("score", "contrast", "count", "together", "wild_score", "wild_count")


def choose_pairs(candidates: pl.DataFrame, lanes: pl.DataFrame, *, has_others: bool = False) -> pl.DataFrame:
    """Choose the pairs of lanes, or of routes, that exchange messages.

    Pairs are chosen in order: those whose evidence clearly exceeds that of all other pairs of either side; then, without
    these, those that have become clear. Ranks of lanes that exchange messages mostly have the same distance, so pairs
    at this distance are more likely; a pair that is clear only by this is doubtful.

    Args:
        candidates: From `list_candidates`, with score and contrast.
        lanes: `LANES`.
        has_others: Sides have messages of other pairs, too, so that the evidence of a message differs between pairs.

    Returns:
        near, far, is_doubtful.
    """
    drop_unlike = _keep_all if has_others else _drop_unlike
    summed = candidates.group_by(_SIDES, maintain_order=True).agg(pl.col(_EVIDENCE).sum())
    scored = summed.join(_measure_distances(candidates, lanes), on=_SIDES).with_row_index("pair")
    is_whole = pl.col("stages").is_not_null() | (pl.col("together") >= _WHOLE * pl.col("count"))
    scored = scored.with_columns(pl.when(is_whole).then("contrast").otherwise(-np.inf).alias("contrast"))
    certain = drop_unlike(_choose_clear(scored))
    rest = _drop_chosen(scored, certain)
    if rest.is_empty():  # as usual: distances decide between no pairs
        return certain.select(*_SIDES, is_doubtful=pl.lit(value=False))
    likeliest = scored.filter(pl.col("score") == pl.col("score").max().over("near"), pl.col("score") >= CLEAR)
    # without evidence, only the order of stages implies a distance
    samples = ((certain, _REGULAR), (likeliest, _REGULAR), (scored.drop_nulls("stages"), _STRUCTURAL))
    regular = [_find_regular_distances(*sample) for sample in samples]
    first = pl.concat(regular).unique("kind", keep="first", maintain_order=True)
    rest = rest.join(first.rename({"distance": "regular"}), on="kind", how="left", maintain_order="left")
    is_confirmed = len(certain) >= _CONFIRMED and len(regular[0]) == certain["distance"].n_unique() == 1
    is_regular = (pl.col("distance") == pl.col("regular")).fill_null(False)
    # without stages, the distance decides only between pairs with evidence
    has_evidence = pl.col("stages").is_not_null() | (pl.col("score") >= CLEAR)
    prior = _RANK_PRIOR * (2 if is_confirmed else 1) * (is_regular & has_evidence)
    likely = _choose_clear(drop_unlike(rest, certain).with_columns(pl.col("score", "contrast") + prior))
    return pl.concat(
        part.select(*_SIDES, is_doubtful=pl.lit(doubtful))
        for part, doubtful in ((certain, False), (likely, True))
    )


def _measure_distances(candidates: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """Measure the distance of ranks of each pair: near, far, kind, distance, and stages, the number of stages.

    With stages, it is the distance of one stage to the next one; without, that of both lanes. Where no rank is known,
    lanes are numbered by stage, machine and GPU.
    """
    rank = pl.col("rank")
    if lanes["rank"].null_count() == len(lanes):
        sizes = lanes.group_by("stage").len()["len"]
        rank = pl.col("lane").cast(pl.Int64) if sizes.n_unique() == 1 else pl.lit(None, pl.Int64)
    ranks = lanes.select(pl.col("lane").cast(pl.Int64), "stage", rank=rank)
    pairs = candidates.unique(_SIDES, keep="first", maintain_order=True)
    for side in _SIDES:
        of_side = ranks.rename({name: f"{side}_{name}" for name in ranks.columns})
        pairs = pairs.join(of_side, on=f"{side}_lane", how="left", maintain_order="left")
    stages, apart = (pl.col(f"far_{name}") - pl.col(f"near_{name}") for name in ("stage", "rank"))
    distance = pl.when(stages.is_null()).then(apart).when(apart % stages == 0).then(apart // stages)
    return pairs.select(*_SIDES, "kind", distance=distance, stages=stages)


def _find_regular_distances(pairs: pl.DataFrame, least: float) -> pl.DataFrame:
    """Find the distance of ranks that a least share of the lanes of each kind has to another lane (kind, distance).

    Kinds with less than two lanes, or with two distances that are as frequent, have none.
    """
    sizes = pairs.group_by("kind").agg(
        near_count=pl.col("near").n_unique(), far_count=pl.col("far").n_unique()
    )
    counts = pairs.drop_nulls("distance").group_by("kind", "distance").len("lanes").join(sizes, on="kind")
    size = pl.min_horizontal("near_count", "far_count")
    most = counts.filter(pl.col("lanes") == pl.col("lanes").max().over("kind"))
    clear = most.filter(pl.len().over("kind") == 1, size >= 2, pl.col("lanes") >= least * size)
    return clear.select("kind", "distance").sort("kind")


def _choose_clear(scored: pl.DataFrame) -> pl.DataFrame:
    """Choose the clear pairs, in rounds: without their sides, other pairs may become clear.

    The evidence of two pairs is compared for as many messages as both have.
    """
    # most pairs of many lanes are clear against no rival
    is_likely = pl.min_horizontal("score", "contrast") >= CLEAR
    rivals = _list_rivals(scored, scored.filter(is_likely))
    chosen, rest = [scored.clear()], scored
    while len(rest):
        least = rivals.group_by("pair").agg(pl.col("margin").min())
        margin = pl.min_horizontal("score", "contrast", pl.col("margin").fill_null(CLEAR))
        clear = rest.join(least, on="pair", how="left", maintain_order="left").filter(margin >= CLEAR)
        if clear.is_empty():
            break
        chosen.append(clear.select(scored.columns))
        rest = _drop_chosen(rest, clear)
        if rest.is_empty():
            break
        rivals = rivals.join(rest.select("pair"), on="pair", how="semi")
        rivals = rivals.join(rest.select("pair"), left_on="rival", right_on="pair", how="semi")
    return pl.concat(chosen)


def _list_rivals(scored: pl.DataFrame, likely: pl.DataFrame) -> pl.DataFrame:
    """List the rivals of likely pairs, of the same near or far: pair, rival, margin (evidence for the pair).

    A rival that fits clearly better if the clocks are wrong has a negative margin: then nothing is clear.
    """
    columns = ["pair", *_EVIDENCE]
    parts = []
    for side in _SIDES:
        is_top = [
            pl.col(name).rank("ordinal", descending=True).over(side) <= _TOP
            for name in ("score", "wild_score")
        ]
        top = scored.filter(pl.any_horizontal(is_top)).select(side, *columns)
        both = likely.select(side, *columns).join(top, on=side, suffix="_of_rival")
        parts.append(both.filter(pl.col("pair") != pl.col("pair_of_rival")))
    rival = pl.col("score_of_rival")
    common = pl.min_horizontal("count", "count_of_rival")
    alike = common * (pl.col("score") / pl.col("count") - rival / pl.col("count_of_rival"))
    # a rival that chance explains as well is none, however few messages it has
    margin = pl.when(rival >= CLEAR).then(alike).otherwise(pl.col("score") - rival.clip(lower_bound=0.0))
    common = pl.min_horizontal("count", "wild_count_of_rival")
    wild = common * (
        pl.col("wild_score_of_rival") / pl.col("wild_count_of_rival") - pl.col("score") / pl.col("count")
    )
    is_wild = (pl.col("count") > 0) & (wild >= CLEAR)
    margin = pl.when(is_wild).then(-wild).otherwise(margin)
    return pl.concat(part.select("pair", rival="pair_of_rival", margin=margin) for part in parts)


def _drop_unlike(scored: pl.DataFrame, certain: pl.DataFrame | None = None) -> pl.DataFrame:
    """Drop the pairs whose ends are scattered more widely than usual, as in most chosen pairs.

    Args:
        scored: Pairs.
        certain: Chosen pairs; None: `scored`.
    """
    evidence = pl.col("score") / pl.col("count")
    usual = (scored if certain is None else certain).select(evidence.median()).item()
    if usual is None:
        return scored
    return scored.filter((pl.col("count") == 0) | (evidence >= _LIKE * usual))


def _keep_all(scored: pl.DataFrame, certain: pl.DataFrame | None = None) -> pl.DataFrame:
    del certain
    return scored


def _drop_chosen(scored: pl.DataFrame, chosen: pl.DataFrame) -> pl.DataFrame:
    for side in _SIDES if len(chosen) and len(scored) else ():
        scored = scored.join(chosen.select(side).unique(), on=side, how="anti", maintain_order="left")
    return scored

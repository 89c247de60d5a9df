"""Names of ranks, stages and machines in findings, with their places."""

from __future__ import annotations

import polars as pl

from nsys_pp.tables.verdict.evidence import Evidence
from nsys_pp.tables.verdict.wording import cut_name, join_ranks
from nsys_pp.units import format_count


def name_lane(evidence: Evidence, lane: int) -> str:
    """Name a lane with its stage, machine and GPU, as far as they are known: "rank 9 (stage 2, node2 GPU 1)"."""
    row = evidence.training.lanes.filter(lane=lane).row(0, named=True)
    label, stage = str(row["label"]), row["stage"]
    names = (row["machine"], row["gpu"])
    place = " ".join(cut_name(name) for name in names if name is not None and name not in label)
    parts = [f"stage {stage}"] if stage is not None else []
    parts += [place] if place else []
    return f"{label} ({', '.join(parts)})" if parts else label


def name_host(evidence: Evidence, lane: int) -> str:
    """Name the machine of a lane in parentheses: " (node1)"; "" where it is the only one, unknown, or in the label."""
    lanes = evidence.training.lanes
    machine = lanes.filter(lane=lane)["machine"].item()
    if machine is None or machine in evidence.labels[lane] or lanes["machine"].n_unique() < 2:
        return ""
    return f" ({cut_name(machine)})"


def name_stage(evidence: Evidence, stage: int) -> str:
    """Name a stage with its ranks: "stage 3 (ranks 6 and 7)"; a stage of one lane by the lane."""
    lanes = evidence.training.lanes.filter(stage=stage)["lane"].to_list()
    if len(lanes) == 1:
        return name_lane(evidence, lanes[0])
    return f"stage {stage} ({_name_ranks(evidence, lanes)})"


def name_machine(evidence: Evidence, machine: str, lanes: list[int]) -> str:
    """Name all lanes of a machine with their ranks: "all 4 ranks of node1 (ranks 4 to 7)"."""
    name = f"all {len(lanes):,} ranks of {cut_name(machine)}"
    ranks = _name_ranks(evidence, lanes)
    return f"{name} ({ranks})" if ranks.startswith("rank") else name


def _name_ranks(evidence: Evidence, lanes: list[int]) -> str:
    """Name the ranks of lanes; their number where one is unknown."""
    ranks = evidence.training.lanes.filter(pl.col("lane").is_in(lanes))["rank"]
    if ranks.null_count():
        return format_count(len(lanes), "GPU")
    return join_ranks(ranks.unique().sort().to_list())

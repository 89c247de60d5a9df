"""Sums of a run: its facts, and one value per metric and complete step, as comparisons and baselines use them."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from msgspec import Struct

from nsys_pp.frames.conform import build_schema

UNIT = pl.Enum(["ns", "fraction"])
KEYS = ("stage", "subject", "metric", "unit")
SAMPLE = build_schema(
    {  # one row per metric and step; metrics in the order of the tables
        "stage": pl.Int64,
        "subject": pl.String,
        "metric": pl.String,
        "unit": UNIT,
        "step": pl.Int64,
        "value": pl.Float64,
        "least": pl.Float64,  # the smallest difference that matters, in the same unit
    },
    name="SAMPLE",
)
SAMPLED = ("steps", "bubbles", "stages", "ranks", "links", "kinds", "families", "kernels")
"""Names of the frames of a run (`SAMPLE`), which are the tables of a comparison."""


class RunFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts of a run on which its times depend.

    Attributes:
        made_by: Version of nsys-pp.
        recordings: Marks of the reports, by which a run is recognised as itself.
        window: Steps that were asked for, as in "10:14"; "": all.
        steps: Complete steps.
        step_source: Source of the steps: "range", "jobs", "repetition" or "capture".
        batches: The steps are batches of inference: "decodes" (others are left out), or "of unknown kinds"; "": they are not.
        decode_requests: Mean number of requests in a decode; None: unknown.
        gpus: Number of lanes by name of the GPU.
        drivers: Versions of the GPU driver.
        cuda: Newest versions of CUDA that the drivers support.
        nsys: Versions of nsys.
        lane_count: GPU processes in the reports.
        run_size: Ranks of the run, also those without a report; 0: unknown.
        machine_count: Machines in the reports.
        stage_count: Stages of the run; 0: unknown.
        replica_count: Data-parallel replicas in the reports; 0: unknown.
        tensor_count: Tensor-parallel ranks in the reports; 0: unknown.
        schedule: Name of the pipeline schedule.
        micro_batch_count: Micro-batches of a step on a lane; 0: unknown.
        chunk_count: Parts of the model on each stage; 0: unknown.
        has_passes: Forwards or backwards are known.
        preset: Naming rules of jobs.
        recorded: Kinds of data with rows in any report, in words.
        graph_modes: Tracing of CUDA graphs: "Graph", "Node".
        options: Operations that count, and scope of launches, as options of `nsys-pp extract`.
        bound_ns: Largest error bound of the clocks; None: unknown.
        is_on_one_clock: The times of all lanes can be compared.
        step_ns: Median length of a step; None: unknown.
        bubble_fraction: Median share of a step without compute.
        compute_fraction: Median share of a step with kernels other than communication.
        mfu_fraction: Median model FLOPs utilisation; None: the work of a step is unknown.
    """

    made_by: str = ""
    recordings: tuple[str, ...] = ()
    window: str = ""
    steps: tuple[int, ...] = ()
    step_source: str = ""
    batches: str = ""
    decode_requests: float | None = None
    gpus: dict[str, int] = {}
    drivers: tuple[str, ...] = ()
    cuda: tuple[str, ...] = ()
    nsys: tuple[str, ...] = ()
    lane_count: int = 0
    run_size: int = 0
    machine_count: int = 0
    stage_count: int = 0
    replica_count: int = 0
    tensor_count: int = 0
    schedule: str = ""
    micro_batch_count: float = 0.0
    chunk_count: int = 0
    has_passes: bool = False
    preset: str = ""
    recorded: tuple[str, ...] = ()
    graph_modes: tuple[str, ...] = ()
    options: str = ""
    bound_ns: int | None = None
    is_on_one_clock: bool = True
    step_ns: float | None = None
    bubble_fraction: float | None = None
    compute_fraction: float | None = None
    mfu_fraction: float | None = None


class RunSums(Struct, frozen=True, kw_only=True):
    """Facts and samples of a run.

    Attributes:
        facts: Facts of the run.
        samples: `SAMPLE` of complete steps by name (`SAMPLED`).
    """

    facts: RunFacts
    samples: Mapping[str, pl.DataFrame]

    def __repr__(self) -> str:
        """Return the size; frames are many."""
        return f"RunSums({self.facts.lane_count} ranks, {len(self.facts.steps)} steps)"

"""Sums of a run, from its reports: the samples of its training, with the facts of its recordings."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import version

import polars as pl
from msgspec.structs import replace

from nsys_pp.commands.pipeline import PipelineResult
from nsys_pp.frames.aggregates import RunSums
from nsys_pp.model.contents import name_titles
from nsys_pp.run.options import StepWindow
from nsys_pp.tables.compare import describe_training, sample_training


def sum_run(result: PipelineResult, *, window: StepWindow | None) -> RunSums:
    """Sum an analysis for comparisons.

    Args:
        result: The analysis.
        window: Steps that it is of; None: all.
    """
    samples = sample_training(result.training)
    facts = describe_training(result.training)
    inputs = result.run.inputs
    sessions = [recorded.identity.session for recorded in inputs]
    recorded_kinds = {kind for recorded in inputs for kind in recorded.part.facts.recorded or ()}
    options = [recorded.part.options for recorded in inputs]
    facts = replace(
        facts,
        made_by=version("nsys-pp"),
        recordings=tuple(sorted(_mark(recorded.identity.fingerprint) for recorded in inputs)),
        window=format_window(window),
        gpus=_count_gpus(result),
        drivers=_distinct(session.driver_version for session in sessions),
        cuda=_distinct(session.cuda_version for session in sessions),
        nsys=_distinct(session.nsys_version for session in sessions),
        run_size=_most(result.run.roster["run_size"]),
        recorded=tuple(name_titles(recorded_kinds)),
        graph_modes=_distinct(session.graph_mode for session in sessions),
        options="; ".join(
            sorted({f"--ops {','.join(sorted(made.ops))} --scope {made.scope}" for made in options})
        ),
    )
    return RunSums(facts=facts, samples=samples)


def format_window(window: StepWindow | None) -> str:
    """Format steps as in `10:14`; "" for all.

    >>> format_window((10, None)), format_window(None)
    ('10:', '')
    """
    if window is None:
        return ""
    first, last = ("" if limit is None else str(limit) for limit in window)
    return f"{first}:{last}"


def _count_gpus(result: PipelineResult) -> dict[str, int]:
    """Count lanes by the name of their GPU."""
    keys = ["report", "process_key", "device_id"]
    names = result.training.lanes.select(keys).join(
        result.run.roster.select(*keys, "gpu_name"), on=keys, how="left"
    )["gpu_name"]
    return dict(Counter(names.fill_null("unknown GPU").to_list()))


def _mark(fingerprint: int) -> str:
    """Return a mark of a recording, from which nothing else can be computed."""
    return hashlib.sha256(fingerprint.to_bytes(8, "big")).hexdigest()[:16]


def _distinct(values: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(sorted({value for value in values if value}))


def _most(values: pl.Series) -> int:
    most = values.max()
    return most if isinstance(most, int) else 0

"""`nsys-pp baseline`: sums of good runs, kept for comparisons."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from nsys_pp.commands.pipeline import pipeline
from nsys_pp.commands.run_sums import select_steps, sum_run
from nsys_pp.errors import BaselineError, MissingDataError, OptionError
from nsys_pp.frames.aggregates import RunSums
from nsys_pp.frames.conform import ShortRepr
from nsys_pp.frames.table import FilledTable
from nsys_pp.read.baselines import list_baselines as read_history
from nsys_pp.read.baselines import list_numbers, parse_reference, read_baseline
from nsys_pp.run.batch import Skipped
from nsys_pp.run.options import Inputs, RunOptions, StepWindow, check_keywords, check_least, parse_steps
from nsys_pp.tables.compare.history import HISTORY_TABLE, build_history
from nsys_pp.write.baselines import add_baseline, encode_baseline, remove_baselines

if TYPE_CHECKING:
    from typing_extensions import Unpack

DEFAULT_STORE = "nsys-pp-baselines"
STORE_VARIABLE = "NSYS_PP_BASELINES"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TagResult(ShortRepr):
    """A baseline that was added."""

    store: Path
    name: str
    number: int
    size_bytes: int
    removed: list[int]  # numbers of older baselines of this name
    sums: RunSums
    notes: list[str]  # doubtful facts of the run, in sentences
    skipped: Skipped
    row_counts: pl.DataFrame  # `RUN_ROW_COUNTS`


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BaselineList(ShortRepr):
    """Baselines of a folder or a file."""

    store: Path
    table: pl.DataFrame  # `nsys_pp.tables.compare.history.HISTORY_TABLE`, by time

    def fill_table(self) -> FilledTable:
        """Pair the table with its definition."""
        return FilledTable(table=HISTORY_TABLE, frame=self.table)

    def _repr_html_(self) -> str:
        """Return the table, for notebooks."""
        from nsys_pp.write.tables.html import format_html

        return format_html([self.fill_table()])


def tag_baseline(
    name: str,
    inputs: Inputs,
    *,
    baselines: str | Path | None = None,
    keep_last: int | None = None,
    flops_per_step: float | None = None,
    model: str | None = None,
    data_type: str = "bf16",
    **options: Unpack[RunOptions],
) -> TagResult:
    """Keep the sums of a run as a baseline, under the next number of its name.

    Args:
        name: Letters, digits, `.`, `_`, `+` and `-`.
        inputs: Reports, parts, folders of them, or glob patterns.
        baselines: Folder, or .sqlite file; it is made if missing. Default: `$NSYS_PP_BASELINES`, else `nsys-pp-baselines`.
        keep_last: Number of baselines of this name to keep, the newest ones. Default: all.
        flops_per_step: FLOPs of the model in one step, for the utilisation in the history.
        model: Shape of a transformer instead, as for `nsys_pp.pipeline`.
        data_type: Data type of the peak of GPUs, as for `nsys_pp.pipeline`.
        options: See `nsys_pp.RunOptions`.

    Raises:
        BaselineError: The name is invalid, or the file has no baselines.
        MissingDataError: No report has GPU operations, or the run has no complete step.
        OutputError: The folder or file cannot be written.
        NsysPPError: As for `nsys_pp.pipeline`.
    """
    check_keywords(options, RunOptions)
    check_least("keep_last", keep_last, 1)
    if parse_reference(name)[1] is not None:
        raise BaselineError(
            f"invalid name of a baseline `{name}`; its number is added by itself",
            "tag the name alone: `NAME`",
        )
    result = pipeline(inputs, flops_per_step=flops_per_step, model=model, data_type=data_type, **options)
    sums = sum_run(result, window=parse_steps(options.get("steps")))
    if not sums.facts.steps:
        raise MissingDataError("the run has no complete step to keep", "record at least one whole step")
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    content = encode_baseline(sums, tagged_at=now)
    store = find_store(baselines)
    number, removed = add_baseline(store, name, content, keep=keep_last)
    return TagResult(
        store=store,
        name=name,
        number=number,
        size_bytes=len(content),
        removed=removed,
        sums=sums,
        notes=result.training.notes,
        skipped=result.skipped,
        row_counts=result.row_counts,
    )


def list_baselines(baselines: str | Path | None = None, *, name: str | None = None) -> BaselineList:
    """List baselines with the history of step time, bubble and utilisation.

    Args:
        baselines: Folder, or .sqlite file. Default: as for `tag_baseline`.
        name: Name of the baselines; None: all.

    Raises:
        BaselineError: The folder or file does not exist, or a baseline cannot be read.
    """
    store = find_store(baselines)
    found = read_history(store, version=version("nsys-pp"))
    wanted = [baseline for baseline in found if name is None or baseline.name == name]
    if name is not None and not wanted:
        raise BaselineError(f"`{store}` has no baseline `{name}`", "`nsys-pp baseline list` shows all")
    return BaselineList(store=store, table=build_history(wanted))


def remove_baseline(reference: str, *, baselines: str | Path | None = None) -> list[str]:
    """Remove baselines.

    Args:
        reference: `NAME` for all of that name, or `NAME@NUMBER` for one.
        baselines: Folder, or .sqlite file. Default: as for `tag_baseline`.

    Returns:
        The removed baselines, as `NAME@NUMBER`.

    Raises:
        BaselineError: There is none, or the reference is invalid.
        OutputError: The folder or file cannot be written.
    """
    store = find_store(baselines)
    name, number = parse_reference(reference)
    keys = sorted(key for key in list_numbers(store) if key[0] == name and number in (None, key[1]))
    if not keys:
        raise BaselineError(f"`{store}` has no baseline `{reference}`", "`nsys-pp baseline list` shows all")
    remove_baselines(store, keys)
    return [f"{found}@{at}" for found, at in keys]


def load_baseline(
    reference: str, *, baselines: str | Path | None, window: StepWindow | None
) -> tuple[str, RunSums]:
    """Load the sums of a baseline, with its full reference.

    Raises:
        BaselineError: It does not exist, or cannot be read.
        OptionError: It has none of the steps.
    """
    loaded = read_baseline(find_store(baselines), reference, version=version("nsys-pp"))
    full = f"baseline:{loaded.name}@{loaded.number}"
    named = f"{full}, tagged {loaded.tagged_at}"
    if window is None:
        return named, loaded.sums
    sums = select_steps(loaded.sums, window)
    if not sums.facts.steps:
        raise OptionError(
            "steps", f"`{full}` has none of the steps; it has {_format_steps(loaded.sums.facts.steps)}"
        )
    return f"{named}, steps {sums.facts.window}", sums


def find_store(baselines: str | Path | None) -> Path:
    """Return the folder or file of baselines."""
    return Path(baselines or os.environ.get(STORE_VARIABLE) or DEFAULT_STORE)


def _format_steps(steps: Sequence[int]) -> str:
    return f"{steps[0]} to {steps[-1]}" if steps else "none"

"""`nsys-pp compare`: differences between two runs of a training."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from importlib.metadata import version
from itertools import combinations, product
from pathlib import Path
from typing import Unpack

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.search import group_pairs
from nsys_pp.commands.pipeline import PipelineResult, build_pipeline
from nsys_pp.errors import OptionError, describe_path
from nsys_pp.frames.aggregates import RunSums
from nsys_pp.frames.raw import RUN_ROW_COUNTS
from nsys_pp.frames.roster import share_session
from nsys_pp.frames.table import AnyTable, FilledTable, fill_tables
from nsys_pp.frames.verdict import Verdict
from nsys_pp.model.contents import name_titles
from nsys_pp.options import ASPECTS
from nsys_pp.output.files import check_output, open_output, replace_file
from nsys_pp.output.pages.comparison import ComparisonSource, write_comparison
from nsys_pp.progress import split_progress
from nsys_pp.run.inputs import Batch, Result, list_existing_inputs, read_inputs
from nsys_pp.run.options import (
    Inputs,
    RunOptions,
    StepWindow,
    check_choice,
    check_keywords,
    format_window,
    parse_inputs,
    parse_job_options,
    parse_steps,
)
from nsys_pp.run.report import Input
from nsys_pp.tables.compare import TABLES, check_gates, describe_training, parse_gate, sample_training
from nsys_pp.tables.compare_verdict import (
    CARE,
    COMPARABILITY_TABLE,
    Comparison,
    ComparisonError,
    build_comparison_verdict,
    compare_facts,
    describe_comparability,
    find_other_work,
)
from nsys_pp.tables.verdict import VERDICT_TABLE, build_verdict_table
from nsys_pp.training.whatif import WhatIf

# Tables of `CompareResult.tables`, by name.
COMPARE_TABLES: Mapping[str, AnyTable] = {
    VERDICT_TABLE.name: VERDICT_TABLE,
    COMPARABILITY_TABLE.name: COMPARABILITY_TABLE,
    **TABLES,
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompareResult(Result):
    """Differences from run A to run B."""

    names: tuple[str, str]  # of A and B, with their steps
    verdict: Verdict  # at most five findings
    comparability: str  # how comparable the runs are, in a sentence
    tables: dict[str, pl.DataFrame]  # by name, of `COMPARE_TABLES`
    failures: list[str]  # gates that B fails, in sentences
    notes: list[str]  # doubtful facts of either run, in sentences
    sums: tuple[RunSums, RunSums]
    output: Path | None  # the page; None: none was asked for

    def fill_tables(self) -> list[FilledTable]:
        """Pair the tables with their definitions, in order."""
        return fill_tables(COMPARE_TABLES, self.tables)

    def _repr_html_(self) -> str:
        """Return the verdict and the tables, for notebooks."""
        from nsys_pp.output.tables.formats import format_html

        return format_html(self.fill_tables())


def compare(
    a: Inputs,
    b: Inputs,
    *,
    steps_a: StepWindow | str | None = None,
    steps_b: StepWindow | str | None = None,
    gates: str | Sequence[str] = (),
    allow_different: str | Collection[str] = (),
    output: str | Path | None = None,
    title: str | None = None,
    force: bool = False,
    **options: Unpack[RunOptions],
) -> CompareResult:
    """Compare two runs: steps, bubbles, stages, ranks, links, kinds of job, kernels.

    Args:
        a: Run to compare with: reports, parts, folders of them, or glob patterns, with its steps at the end
            of a text, as in `runs/7:10:14`; or a folder of folders, each with a good run of the same ranks.
        b: Run to judge, likewise. It can be the same run with other steps.
        steps_a: Steps of A, apart from its name; `steps` applies to both runs.
        steps_b: Steps of B.
        gates: Limits for B, as in `bubble>5%` (`nsys_pp.tables.compare`).
        allow_different: Aspects in which the runs may differ although times depend on them: "steps",
            "stages", "jobs", "operations".
        output: Page to write.
        title: Heading of the page. Default: the name of the output.
        force: Replace an existing page.
        options: See `nsys_pp.RunOptions`; they apply to each of the runs.

    Raises:
        ReportError: A report cannot be read, or is named twice in one run.
        MissingDataError: A run has no GPU operations.
        ComparisonError: The runs cannot be compared.
        GateError: A gate is invalid, or the runs lack its quantity.
        OutputError: The page exists, or cannot be written.
    """
    check_keywords(options, RunOptions)
    parsed = [parse_gate(gate) for gate in ([gates] if isinstance(gates, str) else gates)]
    allowed = [allow_different] if isinstance(allow_different, str) else list(allow_different)
    for aspect in allowed:
        check_choice("allow_different", aspect, ASPECTS)
    target = None if output is None else Path(output)
    runs = (
        parse_run_name(a, steps=steps_a, option="steps_a"),
        parse_run_name(b, steps=steps_b, option="steps_b"),
    )
    if target is not None:
        paths = [path for run in runs for path in list_existing_inputs(run.inputs)]
        check_output(target, force=force, inputs=paths)
    names, sums, results = _read(runs, options)
    facts = (sums[0].facts, sums[1].facts)
    comparability = compare_facts(*facts, allowed=allowed)
    if parsed and "work" not in allowed and (work := find_other_work(comparability)):
        fact, own, other = work
        raise ComparisonError(
            f"no gate can be judged: A and B are of different work: {fact} {own} in A, {other} in B",
            f"`--allow-different work` judges them all the same; {ASPECTS['work']}",
        )
    if "run" in sums[0].samples["steps"].columns and {*facts[0].recordings} & {*facts[1].recordings}:
        raise ComparisonError(
            "B is one of the good runs in A, so it cannot differ from them",
            "compare with a folder of others",
        )
    samples = (_select(sums[0], comparability), _select(sums[1], comparability))
    trainings = [[result.training for letter, result in results if letter == own] for own in "AB"]
    first, second = (WhatIf(own[0]) if len(own) == 1 else None for own in trainings)
    comparison = Comparison(facts, samples, (first, second))
    compared, verdict = comparison.build_tables(), build_comparison_verdict(comparison)
    sentence = describe_comparability(comparability)
    tables = {
        VERDICT_TABLE.name: build_verdict_table(verdict),
        COMPARABILITY_TABLE.name: comparability,
        **compared,
    }
    failures, unjudged = check_gates(compared, parsed)
    notes = [*([sentence] if sentence.endswith(CARE) else []), *unjudged]
    notes += [f"{name}: {note}" for name, result in results for note in result.training.notes]
    if target is not None:
        source = ComparisonSource(
            title=describe_path(target.stem) if title is None else title,
            names=names,
            facts=facts,
            samples=samples,
            verdict=verdict,
            comparability=sentence,
            tables={filled.table.name: filled for filled in fill_tables(COMPARE_TABLES, tables)},
            failures=failures,
            gates=[gate.text for gate in parsed],
            notes=notes,
            made_by=version("nsys-pp"),
        )
        with replace_file(target, force=force) as path, open_output(path) as stream:
            write_comparison(source, stream)
    # two windows of one run have its rows and skipped inputs once
    read = {tuple(recorded.path for recorded in result.run.inputs): result for _, result in results}
    skipped = [entry for _, result in results for entry in result.skipped]
    return CompareResult(
        names=names,
        verdict=verdict,
        comparability=sentence,
        tables=tables,
        failures=failures,
        notes=notes,
        sums=sums,
        output=target,
        skipped=list({str(path): (path, error) for path, error in skipped}.values()),
        row_counts=pl.concat([RUN_ROW_COUNTS.to_frame(), *(result.row_counts for result in read.values())]),
    )


def _read(
    runs: tuple[RunName, RunName], options: RunOptions
) -> tuple[tuple[str, str], tuple[RunSums, RunSums], list[tuple[str, PipelineResult]]]:
    """Read both runs: their names, their sums, and the analyses of runs that were read, each with its letter.

    The reports of two windows of one run are read once. A can be a folder of several runs.
    """
    names: list[str] = []
    sums: list[RunSums] = []
    results: list[tuple[str, PipelineResult]] = []
    for number, (letter, run) in enumerate(zip("AB", runs, strict=True)):
        own: RunOptions = {**options, "progress": split_progress(options.get("progress"), number, 2)}
        if run.window is not None:
            own["steps"] = run.window
        batch = Batch(run.inputs, own)
        if results and runs[0].inputs == run.inputs and len(results) == 1:
            groups: list[Sequence[Input] | None] = [results[0][1].run.inputs]
        else:
            groups = _list_runs(run, batch, own) if letter == "A" else [None]
        read = [build_pipeline(batch, own, inputs=group) for group in groups]
        results += [(letter, result) for result in read]
        run_sums = join_runs([sum_run(result, window=result.run.steps) for result in read])
        sums.append(run_sums)
        more = f" and {len(run.inputs) - 1} more" if len(run.inputs) > 1 else ""
        steps = f", steps {run_sums.facts.window}" if run_sums.facts.window else ""
        names.append(f"{run.inputs[0]}{more}{steps}")
    return (names[0], names[1]), (sums[0], sums[1]), results


def _list_runs(run: RunName, batch: Batch, options: RunOptions) -> list[Sequence[Input] | None]:
    """List the runs of a folder, each by its inputs; None: all inputs, which are not read yet, are one run.

    Folders directly in it are runs if they have the same recorded ranks, from different sessions of nsys.
    """
    folder = Path(run.inputs[0])
    if len(run.inputs) > 1 or not folder.is_dir():
        return [None]
    places = [path.relative_to(folder).parts for path in batch.paths]
    if any(len(place) < 2 for place in places) or len({place[0] for place in places}) < 2:
        return [None]
    inputs = read_inputs(batch, parse_job_options(options), doing="analysing")
    groups = group_pairs((recorded.path.relative_to(folder).parts[0], recorded) for recorded in inputs)
    ranks = [
        frozenset(rank for recorded in group for rank in recorded.identity.ranks["rank"].drop_nulls())
        for group in groups.values()
    ]
    are_sessions = [[recorded.identity.session for recorded in group] for group in groups.values()]
    is_captured_again = any(
        one.hostname == other.hostname and share_session(one, other)
        for first, second in combinations(are_sessions, 2)
        for one, other in product(first, second)
    )
    if not ranks[0] or set(ranks) != {ranks[0]} or is_captured_again:
        return [inputs]
    marks = {name: {recorded.identity.fingerprint for recorded in group} for name, group in groups.items()}
    for (name, own), (other, others) in combinations(marks.items(), 2):
        if own & others:
            raise ComparisonError(
                f"`{folder / name}` and `{folder / other}` have the same recording, so they are not two runs",
                "keep one of them",
            )
    return list(groups.values())


def join_runs(runs: Sequence[RunSums]) -> RunSums:
    """Join runs of one program to one, whose samples show how much such runs differ.

    Returns:
        Steps of later runs are numbered behind those of earlier ones, and samples have the column `run`; of
        a single run, itself.

    Raises:
        ComparisonError: The runs cannot be compared with each other, or do other work.
    """
    first = runs[0]
    if len(runs) == 1:
        return first
    for number, run in enumerate(runs[1:], 2):
        names = ("run 1 of A", f"run {number} of A")
        if work := find_other_work(compare_facts(first.facts, run.facts, names=names)):
            fact, own, other = work
            raise ComparisonError(
                f"the runs in A are of different work: run 1 and run {number} differ in {fact}, {own} and "
                f"{other}",
                "keep runs of one program and layout in the folder",
            )
    offsets = [0]
    for run in runs[:-1]:
        offsets.append(offsets[-1] + max(run.facts.steps, default=0) + 1)
    samples = {
        name: pl.concat(
            run.samples[name].with_columns(pl.col("step") + offset, run=pl.lit(number))
            for number, (run, offset) in enumerate(zip(runs, offsets, strict=True))
        )
        for name in first.samples
    }
    every = [run.facts for run in runs]
    united = {
        name: tuple(dict.fromkeys(value for facts in every for value in getattr(facts, name)))
        for name in ("recordings", "drivers", "cuda", "nsys", "recorded", "graph_modes")
    }
    bounds = [facts.bound_ns for facts in every if facts.bound_ns is not None]
    facts = replace(
        first.facts,
        steps=tuple(step + offset for run, offset in zip(every, offsets, strict=True) for step in run.steps),
        bound_ns=max(bounds) if len(bounds) == len(every) else None,
        is_on_one_clock=all(run.is_on_one_clock for run in every),
        **united,
    )
    return RunSums(facts=facts, samples=samples)


def _select(run: RunSums, comparability: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the samples that can be compared.

    None of stages and ranks if these mean something else in the other run.
    """
    samples = dict(run.samples)
    excluded = comparability.filter(pl.col("effect") == "excluded")["fact"].to_list()
    if "stages" in excluded:
        for name in ("stages", "ranks", "links"):
            samples[name] = samples[name].clear()
        samples["kinds"] = samples["kinds"].filter(pl.col("stage").is_null())
    if "forwards and backwards" in excluded:
        samples["ranks"] = samples["ranks"].clear()
    if "source of steps" in excluded:
        for name in ("steps", "bubbles", "stages", "ranks", "families"):
            samples[name] = samples[name].clear()
        samples["kernels"] = samples["kernels"].filter(pl.col("metric") == "mean of one")
    return samples


def sum_run(result: PipelineResult, *, window: StepWindow | None) -> RunSums:
    """Sum an analysis for comparisons.

    Args:
        result: The analysis.
        window: Steps that it is of; None: all.
    """
    facts = describe_training(result.training)
    inputs = result.run.inputs
    sessions = [recorded.identity.session for recorded in inputs]
    recorded_kinds = {kind for recorded in inputs for kind in recorded.part.facts.recorded}
    options = [recorded.part.options for recorded in inputs]
    keys = ["report", "process_key", "device_id"]
    gpus = result.run.roster.select(*keys, "gpu_name")
    gpu_names = result.training.lanes.select(keys).join(gpus, on=keys, how="left")["gpu_name"]
    facts = replace(
        facts,
        made_by=version("nsys-pp"),
        recordings=tuple(
            sorted(  # marks, from which nothing else can be computed
                hashlib.sha256(recorded.identity.fingerprint.to_bytes(8, "big")).hexdigest()[:16]
                for recorded in inputs
            )
        ),
        window=format_window(window),
        gpus=dict(Counter(gpu_names.fill_null("unknown GPU").to_list())),
        drivers=_distinct(session.driver_version for session in sessions),
        cuda=_distinct(session.cuda_version for session in sessions),
        nsys=_distinct(session.nsys_version for session in sessions),
        run_size=max(result.run.roster["run_size"].drop_nulls().to_list(), default=0),
        recorded=tuple(name_titles(recorded_kinds)),
        graph_modes=_distinct(session.graph_mode for session in sessions),
        options="; ".join(
            sorted({f"--ops {','.join(sorted(made.ops))} --scope {made.scope}" for made in options})
        ),
    )
    return RunSums(facts=facts, samples=sample_training(result.training))


def _distinct(values: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(sorted({value for value in values if value}))


_WITH_STEPS = re.compile(r"(?P<path>.+):(?P<steps>\d{1,30}:\d{0,30}|:\d{1,30})", re.DOTALL)
_WITH_STEP = re.compile(r"(?P<path>.+):(?P<step>\d{1,30})", re.DOTALL)


class RunName(Struct, frozen=True, kw_only=True):
    """A run to compare.

    Attributes:
        inputs: Its reports.
        window: Its steps; None: those of all runs.
    """

    inputs: tuple[str | Path, ...]
    window: StepWindow | None = None


def parse_run_name(run: Inputs, *, steps: StepWindow | str | None, option: str) -> RunName:
    """Parse the name of a run.

    A text that is a file, a folder or a pattern with matches is that path, with all its colons; otherwise a
    `:FIRST:LAST` at its end is its steps.

    Args:
        run: Reports, with steps at the end of a text.
        steps: Steps of the run, apart from its name; None: those at the end of the name.
        option: Keyword of `steps`, for errors.

    Raises:
        OptionError: The steps are invalid, or given twice.
    """
    window = parse_steps_of(steps, option)
    if not isinstance(run, str):
        return RunName(inputs=tuple(parse_inputs(run)), window=window)
    path, own = split_steps(run)
    if own is not None and window is not None:
        raise OptionError(option, f"steps of `{path}` are given twice: in `{run}` and by `{option}`")
    window = window if own is None else parse_steps_of(own, option)
    return RunName(inputs=(path,), window=window)


def split_steps(text: str) -> tuple[str, str | None]:
    """Split the name of a run into path and steps; None: without steps.

    Raises:
        OptionError: The name ends in a single step.

    >>> split_steps("runs/7:10:14"), split_steps("a:b"), split_steps("a::14")
    (('runs/7', '10:14'), ('a:b', None), ('a', ':14'))
    """
    if _is_path(text):
        return text, None
    match = _WITH_STEPS.fullmatch(text)
    if match is not None:
        return match["path"], match["steps"]
    single = _WITH_STEP.fullmatch(text)
    if single is not None and _is_path(single["path"]):
        step = int(single["step"])
        raise OptionError(
            "steps",
            f"`{text}` does not exist; for step {step} of `{single['path']}`, use "
            f"`{single['path']}:{step}:{step + 1}`",
        )
    return text, None


def parse_steps_of(steps: StepWindow | str | None, option: str) -> StepWindow | None:
    """Parse steps; errors are about the keyword `option`."""
    try:
        return parse_steps(steps)
    except OptionError as error:
        raise OptionError(option, error.message, error.hint) from None


def _is_path(text: str) -> bool:
    try:
        return Path(text).exists() or bool(glob(text, recursive=True))
    except (OSError, ValueError):
        return False

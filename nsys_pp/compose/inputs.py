"""What a merge was given: reports and parts, and the options that hold for both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from functools import partial
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

from nsys_pp.commands.extract import IDENTITY_FRAMES, identity_of, survey_report
from nsys_pp.compose.batch import Batch
from nsys_pp.compose.progress import Progress
from nsys_pp.compose.work import WorkOptions, choose_executor
from nsys_pp.errors import ReportError
from nsys_pp.frames.aggregates import AGGREGATE_FRAMES
from nsys_pp.frames.part import Part, PartOptions
from nsys_pp.frames.roster import Identity
from nsys_pp.frames.training import REPORT_FRAMES
from nsys_pp.read import find_reports, is_part, open_part_blocks, read_part
from nsys_pp.read.parts import damaged_error
from nsys_pp.roster.identity import find_repeated
from nsys_pp.roster.roster import repeated_error
from nsys_pp.write.perfetto.clocks import sequence_id
from nsys_pp.write.perfetto.trace import Source

OPTION_NAMES = tuple(one.name for one in fields(PartOptions))
# What of a part's making tables depend on; not what its trace shows.
_MATTER_TO_TABLES = ("ops", "scope", "preset", "job_patterns", "step_patterns")
OpenBlocks = Callable[[], AbstractContextManager[Source]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One input of a merge: a part, read or just made."""

    path: Path  # as it was named
    part: Part
    identity: Identity
    open_blocks: OpenBlocks


def read_part_input(path: Path, *, with_aggregates: bool = False) -> Input:
    """Read what of a part a merge needs besides its blocks, and maybe what a summary needs.

    Raises:
        ReportError: It cannot be read, or was made by another version.
    """
    frames = (*IDENTITY_FRAMES, "anchors", *REPORT_FRAMES, *(AGGREGATE_FRAMES if with_aggregates else ()))
    part = read_part(path, frames, version=version("nsys-pp"))
    try:
        identity = identity_of(part)
    except (KeyError, TypeError):
        raise damaged_error(path) from None
    return Input(path=path, part=part, identity=identity, open_blocks=partial(open_part_blocks, path))


def survey_input(
    path: Path,
    options: PartOptions,
    *,
    nsys: str | None,
    with_training: bool = False,
    with_aggregates: bool = False,
) -> Input:
    """Read what of a report tells who recorded it and when, maybe its jobs and sums, and nothing to show.

    Raises:
        ReportError: It cannot be read.
    """
    part = survey_report(
        path, options, nsys=nsys, with_training=with_training, with_aggregates=with_aggregates
    )
    return Input(path=path, part=part, identity=identity_of(part), open_blocks=BytesIO)


def settle_part_options(
    parts: list[Input], asked: Mapping[str, Any], *, matter: Collection[str] = OPTION_NAMES
) -> PartOptions:
    """Settle what the trace shows: what was asked for, else what the parts were made with.

    Args:
        parts: Parts among the inputs.
        asked: Fields of `PartOptions`; None where nothing was asked for.
        matter: Fields in which parts may not differ.

    Raises:
        ReportError: A part shows something else than was asked for, or than another part.
    """
    settled: dict[str, Any] = {key: value for key, value in asked.items() if value is not None}
    for name in OPTION_NAMES:
        if parts:
            settled.setdefault(name, getattr(parts[0].part.options, name))
    options = PartOptions(**settled)
    for given in parts:
        made = given.part.options
        if all(getattr(made, name) == getattr(options, name) for name in matter):
            continue
        if made == parts[0].part.options:
            wanted = f"`{options.words()}` is asked for"
        else:
            wanted = f"`{parts[0].path}` with `{parts[0].part.options.words()}`"
        raise ReportError(
            f"`{given.path}` was made with `{made.words()}`, and {wanted}",
            "extract it again with the same options, or merge its report",
        )
    return options


def read_all(
    inputs: Sequence[str | Path],
    asked: Mapping[str, Any],
    *,
    doing: str,
    with_aggregates: bool = False,
    keep_going: bool,
    nsys: str | None,
    work: WorkOptions | None,
    progress: Progress | None,
) -> tuple[list[Input], Batch]:
    """Read parts, and survey reports with their jobs, for tables that need none of their events.

    Args:
        inputs: Reports, parts, directories of them, or glob patterns.
        asked: As for `settle_options`.
        doing: What is done to reports, for who is told.
        with_aggregates: Also what a summary needs.
        keep_going: Leave out what cannot be read.
        nsys: The nsys that exports `.nsys-rep` files.
        work: Where reports are worked on; one by one in this process if None.
        progress: Told what is going on.

    Returns:
        All that could be read, in order, and the attempt, which knows what was left out.

    Raises:
        ReportError: One cannot be read; or a part was made with other options.
    """
    paths = find_reports(inputs, with_parts=True)
    batch = Batch(paths, keep_going=keep_going, progress=progress, workers=choose_executor(work, paths))
    read_one = partial(read_part_input, with_aggregates=with_aggregates)
    parts = batch.each("reading", [path for path in paths if is_part(path)], read_one)
    options = settle_part_options(list(parts.values()), asked, matter=_MATTER_TO_TABLES)
    survey = partial(
        survey_input, options=options, nsys=nsys, with_training=True, with_aggregates=with_aggregates
    )
    read = batch.spread(doing, [path for path in paths if not is_part(path)], survey)
    return [one for path in paths if (one := parts.get(path) or read.get(path))], batch


def drop_repeated(given: list[Input], batch: Batch) -> list[Input]:
    """Keep the first of each recording.

    Args:
        given: All inputs.
        batch: Leaves out what is there again, where that is wanted.

    Raises:
        ReportError: Two inputs are one recording, whatever they are called; or, once in some
            thousand millions, two cannot stand in one trace.
    """
    repeated = dict(find_repeated([one.identity for one in given]))
    for again, first in repeated.items():
        batch.skip(given[again].path, repeated_error(given[first].path, given[again].path))
    given = [one for place, one in enumerate(given) if place not in repeated]
    by_sequence: dict[int, Input] = {}
    for one in given:
        other = by_sequence.setdefault(sequence_id(one.identity.fingerprint), one)
        if other is not one:
            raise ReportError(
                f"`{other.path}` and `{one.path}` cannot stand in one trace: by chance,"
                " the numbers that tell reports apart are the same for both",
                "merge them into two traces",
            )
    return given


def refuse_parts(parts: Iterable[Path], needs: Sequence[str]) -> None:
    """Refuse parts where events are needed.

    Args:
        parts: The parts among the inputs.
        needs: What is wanted that needs events, in words.

    Raises:
        ReportError: There are parts, and something that needs events is wanted.
    """
    for path in parts if needs else ():
        raise ReportError(
            f"`{path}` is a part: its trace is made already, and {needs[0]} cannot be had from it",
            "name the report that it was extracted from",
        )

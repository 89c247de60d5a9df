"""Inputs of a run.

Reports and parts, their labels and identities, and the options that hold for all of them.
"""

from __future__ import annotations

import pickle
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.errors import ReportError
from nsys_pp.frames.aggregates import AGGREGATE_FRAMES
from nsys_pp.frames.ids import describe_path
from nsys_pp.frames.part import Part, PartOptions
from nsys_pp.frames.raw import RUN_ROW_COUNTS
from nsys_pp.frames.report import Report
from nsys_pp.frames.roster import Identity
from nsys_pp.frames.training import REPORT_FRAMES
from nsys_pp.output.blocks import OpenBlocks
from nsys_pp.output.perfetto.trace import check_blocks
from nsys_pp.output.trace.drawing import sequence_id
from nsys_pp.projection.ranges import count_projected
from nsys_pp.read import is_part, open_part_blocks, read_part
from nsys_pp.read.parts import PackedFrames, concat_frames, damaged_error
from nsys_pp.registry import import_on_call
from nsys_pp.roster.identity import find_repeated
from nsys_pp.roster.roster import repeated_error
from nsys_pp.run.batch import Batch
from nsys_pp.run.view import FRAME


class SentFrames(Mapping[str, pl.DataFrame]):
    """Compressed frames, each unpacked when it is used and not kept: a run of many reports needs them once.

    The frames of a part file (`nsys_pp.read.parts.PackedFrames`) are smaller still, and take twenty times as
    long to make.

    Args:
        frames: The frames by name.
    """

    def __init__(self, frames: Mapping[str, pl.DataFrame]) -> None:
        self._packed = {name: zlib.compress(pickle.dumps(frames[name]), 1) for name in frames}

    def __getitem__(self, name: str) -> pl.DataFrame:
        """Unpack a frame.

        Raises:
            KeyError: There is no such frame.
        """
        frame: pl.DataFrame = pickle.loads(zlib.decompress(self._packed[name]))
        return frame

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._packed)

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self._packed)


IDENTITY_FRAMES = tuple(name for name, kind in Identity.__annotations__.items() if "DataFrame" in str(kind))
"""Frames of a part that its identity has."""


def build_identity(part: Part) -> Identity:
    """Build the identity of a part's report; the inverse of its storage.

    Raises:
        KeyError: A frame is missing.
    """
    frames = {name: part.frames[name] for name in IDENTITY_FRAMES}
    facts = part.facts
    return Identity(path=part.source, session=facts.session, fingerprint=facts.fingerprint, **frames)


def label_reports(paths: Sequence[Path]) -> list[str]:
    """Label reports as in `label_files`; bytes of names that are no UTF-8 are escaped."""
    return [describe_path(label) for label in label_files(paths)]


def label_files(paths: Sequence[Path]) -> list[str]:
    """Label reports by file name without suffix, and by as many folders as distinguish them.

    >>> label_files([Path("a/rank0.sqlite"), Path("b/rank0.sqlite"), Path("b/rank1.sqlite")])
    ['a/rank0', 'b/rank0', 'rank1']
    """
    parts = [(*path.parent.parts, path.stem) for path in paths]
    labels = [part[-1] for part in parts]
    for length in range(2, max(map(len, parts), default=0) + 1):
        shared = {label for label, count in Counter(labels).items() if count > 1}
        labels = [
            "/".join(part[-length:]) if label in shared else label
            for label, part in zip(labels, parts, strict=True)
        ]
    return labels


def skip_repeated(identities: Sequence[Identity], paths: Sequence[Path], batch: Batch) -> list[int]:
    """Return the index of the first input of each recording; others are skipped where `keep_going` allows it.

    Args:
        identities: Identity of each input.
        paths: Path of each input, as named by the user.
        batch: The batch of these inputs.

    Raises:
        ReportError: Two inputs are the same recording.
    """
    repeated = dict(find_repeated(identities))
    for again, first in repeated.items():
        batch.skip(paths[again], repeated_error(paths[first], paths[again]))
    return [index for index in range(len(paths)) if index not in repeated]


OPTION_NAMES = PartOptions.__struct_fields__
# Options of a part that tables depend on; the others change its trace alone.
TABLE_OPTION_NAMES = ("ops", "scope", "preset", "job_patterns", "step_patterns")

_survey_report = import_on_call("nsys_pp.run.report:survey_report")  # all stages, which parts need not
_own_version = cache(partial(version, "nsys-pp"))


class Input(Struct, frozen=True, kw_only=True):
    """One input of a run: a part, read from a file or made of a report.

    Its frames are compressed where it is sent to another process, which keeps them so and builds the identity
    again.
    """

    path: Path  # as named by the user
    part: Part
    identity: Identity
    open_blocks: OpenBlocks

    def __repr__(self) -> str:
        """Return the path; frames are many."""
        return f"Input({str(self.path)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a call that builds the input again, for `pickle`."""
        part = self.part
        if not isinstance(part.frames, PackedFrames | SentFrames):
            part = replace(part, frames=SentFrames(part.frames))
        return _build_received, (self.path, part, self.open_blocks)


def _build_received(path: Path, part: Part, open_blocks: OpenBlocks) -> Input:
    return Input(path=path, part=part, identity=build_identity(part), open_blocks=open_blocks)


def read_part_input(
    path: Path, *, with_aggregates: bool = False, checks_frames: bool = False, checks_blocks: bool = False
) -> Input:
    """Read a part without its trace; `open_blocks` opens the trace.

    Args:
        path: The part.
        with_aggregates: Also read the frames of a summary.
        checks_frames: Also unpack each of its frames.
        checks_blocks: Also read all of its trace, and check that it can be written.

    Raises:
        ReportError: It cannot be read, or another version made it.
    """
    names = [*IDENTITY_FRAMES, "anchors", "row_counts", *REPORT_FRAMES]
    names += AGGREGATE_FRAMES if with_aggregates else ()
    part = read_part(path, names, version=_own_version(), optional=[FRAME])
    if checks_frames:
        for name in part.frames:
            part.frames[name]  # raises an error where it is damaged
    if checks_blocks:
        with open_part_blocks(path) as blocks:
            check_blocks(part.encoded, blocks)
            blocks.read(1)  # the end of the stream, where its checksum is compared
    try:
        identity = build_identity(part)
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
    with_density: bool = False,
) -> Input:
    """Read a report's identity and anchors, optionally its jobs and aggregates; its trace is empty.

    Raises:
        ReportError: It cannot be read.
    """
    part = _survey_report(
        path,
        options,
        nsys=nsys,
        with_training=with_training,
        with_aggregates=with_aggregates,
        with_density=with_density,
    )
    return Input(path=path, part=part, identity=build_identity(part), open_blocks=BytesIO)


def survey_any_input(path: Path, *, nsys: str | None, checks_frames: bool = False) -> Input:
    """Read the identity and anchors of a part or a report; `checks_frames` as in `read_part_input`.

    Raises:
        ReportError: It cannot be read.
    """
    if is_part(path):
        return read_part_input(path, checks_frames=checks_frames)
    return survey_input(path, PartOptions(), nsys=nsys)


def read_inputs(
    batch: Batch, asked: Mapping[str, Any], *, doing: str, with_aggregates: bool = False
) -> list[Input]:
    """Read parts and survey reports with their jobs, for tables: without a trace.

    Args:
        batch: The inputs.
        asked: Options as in `settle_part_options`.
        doing: Phase of the work for the progress.
        with_aggregates: Also read or build the frames of a summary.

    Returns:
        Inputs in order, without skipped ones.

    Raises:
        ReportError: An input cannot be read, or a part was made with other options.
    """
    parts = read_parts(batch, with_aggregates=with_aggregates)
    options, parts = settle_part_options(batch, parts, asked, relevant=TABLE_OPTION_NAMES)
    survey = partial(
        survey_input, options=options, nsys=batch.nsys, with_training=True, with_aggregates=with_aggregates
    )
    reports = batch.map(doing, [path for path in batch.paths if not is_part(path)], survey)
    return order_inputs(batch, parts, reports)


def read_parts(
    batch: Batch, *, with_aggregates: bool = False, writes_blocks: bool = False
) -> dict[Path, Input]:
    """Read the parts among the inputs.

    Where damaged ones are skipped, all contents are checked now, since none can be skipped in the middle of
    an output.

    Args:
        batch: The inputs.
        with_aggregates: Also read the frames of a summary.
        writes_blocks: Their traces will be written.

    Raises:
        ReportError: One cannot be read.
    """
    checks = batch.keeps_going
    read = partial(
        read_part_input,
        with_aggregates=with_aggregates,
        checks_frames=checks,
        checks_blocks=writes_blocks and checks,
    )
    return batch.map("reading", [path for path in batch.paths if is_part(path)], read, locally=True)


def order_inputs(batch: Batch, parts: Mapping[Path, Input], reports: Mapping[Path, Input]) -> list[Input]:
    """Return parts and reports in the order of the batch, without skipped ones."""
    read = {**parts, **reports}
    return [read[path] for path in batch.paths if path in read]


def settle_part_options(
    batch: Batch,
    parts: Mapping[Path, Input],
    asked: Mapping[str, Any],
    *,
    relevant: Collection[str] = OPTION_NAMES,
) -> tuple[PartOptions, dict[Path, Input]]:
    """Settle the options of a run: the requested ones, else the options of its parts.

    Args:
        batch: The inputs; where it keeps going, the most common options count, and other parts are skipped.
        parts: Parts among the inputs, by path.
        asked: Fields of `PartOptions`; None where the user leaves the field open.
        relevant: Fields in which parts may not differ.

    Returns:
        The options, and the parts that have them.

    Raises:
        ReportError: A part was made with other options than asked for, or than another part.
    """
    own = [part.part.options for part in parts.values()]
    usual = next(iter(parts.values()), None)
    if batch.keeps_going and usual is not None:  # the first part with the most common options
        usual = max(parts.values(), key=lambda part: own.count(part.part.options))
    settled: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    if usual is not None:
        for name in OPTION_NAMES:
            settled.setdefault(name, getattr(usual.part.options, name))
    options = PartOptions(**settled)
    kept = {}
    for path, part in parts.items():
        actual = part.part.options
        if all(getattr(actual, name) == getattr(options, name) for name in relevant):
            kept[path] = part
            continue
        if usual is None or actual == usual.part.options:
            expected = f"`{options.words()}` is asked for"
        else:
            expected = f"`{usual.path}` with `{usual.part.options.words()}`"
        error = ReportError(
            f"`{part.path}` was made with `{actual.words()}`, and {expected}",
            "extract it again with the same options, or merge its report",
        )
        batch.skip(path, error)
    if parts and not kept and len(parts) == len(batch.paths):
        raise error
    return options, kept


def drop_repeated(inputs: Sequence[Input], batch: Batch) -> list[Input]:
    """Return the first input of each recording; others are skipped where `keep_going` allows it.

    Raises:
        ReportError: Two inputs are the same recording; or, by chance and once in some
            thousand millions, two cannot be in one trace.
    """
    identities = [recorded.identity for recorded in inputs]
    kept = [
        inputs[index] for index in skip_repeated(identities, [recorded.path for recorded in inputs], batch)
    ]
    by_sequence: dict[int, Input] = {}
    for recorded in kept:
        other = by_sequence.setdefault(sequence_id(recorded.identity.fingerprint), recorded)
        if other is not recorded:
            raise ReportError(
                f"`{other.path}` and `{recorded.path}` cannot stand in one trace: by chance,"
                " the numbers that tell reports apart are the same for both",
                "merge them into two traces",
            )
    return kept


def refuse_parts(parts: Iterable[Path], needs: Sequence[str]) -> None:
    """Refuse parts where events are needed.

    Args:
        parts: The parts among the inputs.
        needs: Features that need events, in words; any part is accepted without them.

    Raises:
        ReportError: There are a part and a feature.
    """
    for path in parts if needs else ():
        raise ReportError(
            f"`{path}` is a part: its trace is made already, and {needs[0]} cannot be had from it",
            "name the report that it was extracted from",
        )


ATTRIBUTE = "rows."
"""Prefix of the metadata of a trace about the rows of a report."""
_DRAWN = ("nvtx", "calls", "kernels", "copies", "sets", "graphs", "decompressions", "ranges", "gpu_ops")


def count_report_rows(
    report: Report, launches: pl.DataFrame, projections: pl.DataFrame | None, scope: str
) -> pl.DataFrame:
    """Count the rows of a report up to its projections (`ROW_COUNTS`).

    Args:
        report: Read with ranges and operations.
        launches: `LAUNCHES` of all its operations.
        projections: Its `PROJECTIONS`; None: not computed.
        scope: Launches that counted.
    """
    counted = report.ranges, report.gpu_ops, launches, projections, scope
    projected = count_projected(*counted)  # type: ignore[arg-type]
    return report.row_counts.vstack(projected)


def collect_row_counts(counts: Mapping[Path, pl.DataFrame]) -> pl.DataFrame:
    """Concatenate the `ROW_COUNTS` of reports to `RUN_ROW_COUNTS`."""
    frames = [frame.with_columns(report=pl.lit(describe_path(path))) for path, frame in counts.items()]
    return pl.concat(frames) if frames else RUN_ROW_COUNTS.to_frame()


def collect_parts(parts: Sequence[Part], paths: Sequence[Path]) -> pl.DataFrame:
    """Concatenate the counts of parts to `RUN_ROW_COUNTS`.

    Args:
        parts: Read with the frame "row_counts".
        paths: Path of each, as named or found.
    """
    if not parts:
        return RUN_ROW_COUNTS.to_frame()
    frame, lengths = concat_frames([part.frames for part in parts], "row_counts")
    names = pl.Series("report", [describe_path(path) for path in paths], dtype=pl.String)
    numbers = pl.Series([n for n, length in enumerate(lengths) for _ in range(length)], dtype=pl.UInt32)
    return frame.with_columns(names.gather(numbers))


def describe_rows(counts: pl.DataFrame) -> dict[str, str]:
    """Describe the drawn rows of each report in a line, by its path.

    "nvtx 166 = 100 used + 66 without a start; kernels ...".

    A part is made of more tables than a trace, and has the same line.

    Args:
        counts: `RUN_ROW_COUNTS`.
    """
    tables: dict[str, dict[str, list[tuple[str, int]]]] = {}
    for stage, table, _, reason, count, report in counts.filter(pl.col("table").is_in(_DRAWN)).rows():
        name = table if stage == "report" else f"{table} ({stage})"
        tables.setdefault(report, {}).setdefault(name, []).append((reason or "used", count))
    return {
        report: "; ".join(
            f"{name} {sum(count for _, count in rows)} = "
            f"{' + '.join(f'{count} {word}' for word, count in rows)}"
            for name, rows in of_report.items()
        )
        for report, of_report in tables.items()
    }

"""Inputs of a run: reports and parts as they are read, their labels, and the options that hold for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from nsys_pp.errors import ReportError
from nsys_pp.frames.aggregates import AGGREGATE_FRAMES
from nsys_pp.frames.ids import describe_path
from nsys_pp.frames.part import PartOptions
from nsys_pp.frames.raw import RUN_ROW_COUNTS
from nsys_pp.frames.roster import Identity
from nsys_pp.frames.training import REPORT_FRAMES
from nsys_pp.output.perfetto.trace import check_blocks
from nsys_pp.output.trace.drawing import sequence_id
from nsys_pp.read import is_part, open_part_blocks, read_part
from nsys_pp.read.parts import damaged_error
from nsys_pp.roster.identity import find_repeated
from nsys_pp.roster.roster import repeated_error
from nsys_pp.run.batch import Batch
from nsys_pp.run.report import FRAME, IDENTITY_FRAMES, Input, build_input, survey_report


def label_reports(paths: Sequence[Path]) -> list[str]:
    """Label reports by file name without suffix, and by as many folders as distinguish them.

    Bytes of names that are no UTF-8 are escaped.

    >>> label_reports([Path("a/rank0.sqlite"), Path("b/rank0.sqlite"), Path("b/rank1.sqlite")])
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
    return [describe_path(label) for label in labels]


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
    part = read_part(path, names, version=version("nsys-pp"), optional=[FRAME])
    if checks_frames:
        for name in part.frames:
            part.frames[name]  # raises an error where it is damaged
    if checks_blocks:
        with open_part_blocks(path) as blocks:
            check_blocks(part.encoded, blocks)
            blocks.read(1)  # the end of the stream, where its checksum is compared
    try:
        return build_input(path, part, partial(open_part_blocks, path))
    except (KeyError, TypeError):
        raise damaged_error(path) from None


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
        survey_report, options=options, nsys=batch.nsys, with_training=True, with_aggregates=with_aggregates
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


ATTRIBUTE = "rows."
"""Prefix of the metadata of a trace about the rows of a report."""
_DRAWN = ("nvtx", "calls", "kernels", "copies", "sets", "graphs", "decompressions", "ranges", "gpu_ops")


def collect_row_counts(counts: Mapping[Path, pl.DataFrame]) -> pl.DataFrame:
    """Concatenate the `ROW_COUNTS` of reports to `RUN_ROW_COUNTS`."""
    frames = [frame.with_columns(report=pl.lit(describe_path(path))) for path, frame in counts.items()]
    return pl.concat(frames) if frames else RUN_ROW_COUNTS.to_frame()


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

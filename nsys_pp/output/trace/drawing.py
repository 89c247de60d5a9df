"""Drawing: the contents of a trace, independent of the file format.

A drawing has a tree of tracks. A track has subtracks of slices, marks or counter samples. Slices of the same
subtrack nest or do not overlap, so a track with overlapping slices has several subtracks.
`nsys_pp.output.trace.tracks` draws reports; `nsys_pp.output.perfetto.trace` and `nsys_pp.output.chrome`
encode drawings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from nsys_pp.arrays.columns import find_distinct, numbers
from nsys_pp.arrays.names import natural_key
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.clock import Clock
from nsys_pp.frames.part import Row as Row
from nsys_pp.frames.part import Track

HEADER_SEQUENCE = 1  # of packets about the whole trace; 0 is invalid


SLICES = pl.Schema(
    {  # one row per slice, each directly before the slices inside it; further columns are arguments
        "start_ns": pl.Int64(),  # report clock
        "end_ns": pl.Int64(),
        "depth": pl.Int32(),  # number of slices of this subtrack around it
        "name": pl.Categorical(),
        "color": pl.Categorical(),  # a key of `nsys_pp.output.colors`; null: the viewer chooses a color
        "flow_id": pl.UInt64(),  # slices with the same id are joined by an arrow; null: no arrow
    }
)


MORE_FLOWS = "flow_id_"


"""Prefix of further columns as `flow_id`, of slices where several arrows begin."""


MARK_POINTS = pl.Schema(
    {  # one row per instant, by time_ns
        "time_ns": pl.Int64(),
        "name": pl.Categorical(),
        "color": pl.Categorical(),
    }
)


SAMPLES = pl.Schema(
    {  # one row per change of a counter, by time_ns
        "time_ns": pl.Int64(),
        "value": pl.Float64(),
    }
)


class ArrangedSlices(Struct, frozen=True, kw_only=True):
    """Rows of a frame of slices, in order of drawing, gathered only where a frame is needed.

    Attributes:
        source: Columns of SLICES without `depth`, and arguments; of many subtracks.
        rows: Of the source.
        depth: Of each of these rows.
    """

    source: pl.DataFrame
    rows: Int64s
    depth: NDArray[np.int32]

    def gather(self) -> pl.DataFrame:
        """Return `SLICES`, with arguments."""
        return self.source[self.rows].with_columns(depth=pl.Series(self.depth, dtype=pl.Int32))


class SliceSubtrack(Struct, frozen=True, kw_only=True):
    """Slices on one track that nest or do not overlap.

    `slices` has the columns of SLICES in pre-order: each slice directly before the slices
    inside it, siblings by time. So the order of begin and end events in the file follows from `depth`.
    Columns whose names begin with `MORE_FLOWS` have further flow ids. Each other column is an argument of the
    slice, shown under the name of the column; its type is an integer, Float64, Boolean or Categorical. Null:
    the slice does not have the argument.
    """

    track: tuple[str, ...]
    number: int  # 0, 1, ... among the slice subtracks of the track; all of them are drawn as one row
    content: pl.DataFrame | ArrangedSlices

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """The types of the columns."""
        frame = self.content if isinstance(self.content, pl.DataFrame) else self.content.source
        types = dict(zip(frame.columns, frame.dtypes, strict=True))
        return types if frame is self.content else {**types, "depth": SLICES["depth"]}

    @property
    def slices(self) -> pl.DataFrame:
        """The slices; arranged ones are gathered each time."""
        return self.content if isinstance(self.content, pl.DataFrame) else self.content.gather()


class MarkSubtrack(Struct, frozen=True, kw_only=True):
    """Instants on one track; further columns are arguments, as in SliceSubtrack."""

    track: tuple[str, ...]
    marks: pl.DataFrame  # MARK_POINTS


class CounterSubtrack(Struct, frozen=True, kw_only=True):
    """Samples of one counter track; a value is valid until the next sample."""

    track: tuple[str, ...]
    samples: pl.DataFrame  # SAMPLES


Subtrack = SliceSubtrack | MarkSubtrack | CounterSubtrack


class Drawing(Struct, frozen=True, kw_only=True):
    """Drawing of one report, independent of other reports.

    `tracks` may omit the parents of tracks: the name of an omitted parent is the last item of its path.
    `subtracks` are in any order. Names and order of the outermost tracks in a trace are set by a
    `nsys_pp.output.trace.drawing.Placement`.
    """

    report_id: int  # 64 bits, unique per report
    tracks: list[Track]
    subtracks: list[Subtrack]


def is_flow(column: str) -> bool:
    """Return whether a column of slices has flow ids."""
    return column == "flow_id" or column.startswith(MORE_FLOWS)


def sequence_id(report_id: int) -> int:
    """Return the packet sequence of a report, also the high half of its flow ids: 31 bits of its id.

    With the 32nd bit set, Perfetto's importer v52 does not recognize the clocks of the sequence
    (`IsConvertedSequenceClock` shifts a signed number).
    """
    return max(report_id & 0x7FFFFFFF, HEADER_SEQUENCE + 1)


Path = tuple[str, ...]


class Node(Struct, frozen=True, kw_only=True):
    """A drawn track: the track itself or a track below it has a subtrack with rows."""

    track: Track
    order: int  # 0, 1, ... among its siblings


def subtrack_rows(subtrack: Subtrack) -> pl.DataFrame:
    """Return the rows of a subtrack."""
    if isinstance(subtrack, SliceSubtrack):
        return subtrack.slices
    return subtrack.marks if isinstance(subtrack, MarkSubtrack) else subtrack.samples


def count_rows(subtrack: Subtrack) -> int:
    """Count the rows of a subtrack."""
    if isinstance(subtrack, SliceSubtrack) and isinstance(subtrack.content, ArrangedSlices):
        return len(subtrack.content.rows)
    return subtrack_rows(subtrack).height


def drawn_subtracks(drawing: Drawing) -> list[Subtrack]:
    """Return the subtracks with rows."""
    return [subtrack for subtrack in drawing.subtracks if count_rows(subtrack)]


def start_ns(subtrack: Subtrack) -> int:
    """Return the time of the first event of a subtrack with rows."""
    if isinstance(subtrack, SliceSubtrack) and isinstance(subtrack.content, ArrangedSlices):
        return int(subtrack.content.source["start_ns"][int(subtrack.content.rows[0])])
    return int(subtrack_rows(subtrack)["start_ns" if isinstance(subtrack, SliceSubtrack) else "time_ns"][0])


def subtracks_by_track(drawing: Drawing) -> dict[Path, list[Subtrack]]:
    """Group the subtracks with rows by track: slices by number, then marks, then samples."""
    subtracks: dict[Path, list[Subtrack]] = {}
    for subtrack in sorted(drawn_subtracks(drawing), key=_subtrack_order):
        subtracks.setdefault(subtrack.track, []).append(subtrack)
    return subtracks


def index_tracks(drawing: Drawing) -> dict[Path, Track]:
    """Return the tracks of a drawing by path.

    Raises:
        ValueError: Two tracks have the same path, or the track of a subtrack is missing from the drawing.
    """
    by_path = {track.path: track for track in drawing.tracks}
    if len(by_path) < len(drawing.tracks):
        raise ValueError("two tracks of the drawing have the same path")
    if missing := {subtrack.track for subtrack in drawn_subtracks(drawing)} - by_path.keys():
        raise ValueError(f"the drawing has subtracks on missing tracks: {sorted(missing)}")
    return by_path


def arrange(tracks: Mapping[Path, Track], used: Collection[Path]) -> list[Node]:
    """Order the drawn tracks, and add their missing parents.

    Siblings are sorted by rank (added parents last), then by name in natural order (`node2` before `node10`),
    then by path.

    Args:
        tracks: All tracks, by path.
        used: Paths of tracks with a subtrack.

    Returns:
        Nodes in depth-first order: each parent before its children.
    """
    paths = {path[:end] for path in used for end in range(1, len(path) + 1)}
    children: dict[Path, list[Path]] = {}
    for path in sorted(paths, key=lambda path: _order(path, tracks)):
        children.setdefault(path[:-1], []).append(path)
    return _walk((), children, tracks)


def _walk(parent: Path, children: dict[Path, list[Path]], tracks: Mapping[Path, Track]) -> list[Node]:
    nodes = []
    for order, path in enumerate(children.get(parent, [])):
        track = tracks.get(path) or Track(path=path, name=path[-1], rank=0)
        nodes += [Node(track=track, order=order), *_walk(path, children, tracks)]
    return nodes


def _order(path: Path, tracks: Mapping[Path, Track]) -> tuple[bool, int, list[tuple[str, int]], Path]:
    track = tracks.get(path)
    name = path[-1] if track is None else track.name
    return (
        track is None,
        track.rank if track else 0,
        natural_key(name),
        path,
    )


def _subtrack_order(subtrack: Subtrack) -> tuple[int, int]:
    if isinstance(subtrack, SliceSubtrack):
        return 0, subtrack.number
    return (1, 0) if isinstance(subtrack, MarkSubtrack) else (2, 0)


class Placement(Struct, frozen=True, kw_only=True):
    """Placement of one report; all placements of a trace have the same `zero_ns`."""

    machine: str
    machine_order: int  # among the machines of the trace
    rows: Mapping[str, Row]  # by name of the row in the report; rows without an entry are not drawn
    clock: Clock  # maps the report's clock onto the run's
    zero_ns: int = 0  # time on the run's clock that is 0 in the trace, unless an event is earlier
    machine_description: str = ""
    is_utc: bool = True  # the run's clock is UTC
    attributes: Mapping[str, str] = field(default_factory=dict)  # facts for the trace's metadata


def place_path(path: Path, placement: Placement) -> Path:
    """Return the path of a report's track in the trace.

    Raises:
        KeyError: Its outermost row is not drawn.
    """
    return (placement.machine, placement.rows[path[0]].name, *path[1:])


def place_tracks(tracks: Iterable[Track], placement: Placement) -> dict[Path, Track]:
    """Return the track of the machine and the drawn tracks of a report, by their paths in the trace."""
    machine = Track(
        path=(placement.machine,),
        name=placement.machine,
        rank=placement.machine_order,
        description=placement.machine_description,
    )
    placed: dict[Path, Track] = {machine.path: machine}
    by_path = {track.path: track for track in tracks}
    for name, row in placement.rows.items():
        outermost = by_path.get((name,)) or Track(path=(name,), name=name, rank=0)
        path: Path = (placement.machine, row.name)
        placed[path] = replace(
            outermost, path=path, name=row.name, rank=row.order, description=row.description
        )
    for track in by_path.values():
        if len(track.path) > 1 and track.path[0] in placement.rows:
            path = place_path(track.path, placement)
            placed[path] = replace(track, path=path)
    return placed


def list_titles(placements: Sequence[Placement]) -> dict[Path, str]:
    """List the titles of the rows with a title by path in the trace, in order."""
    rows = {
        (placement.machine, row.name): row
        for placement in reversed(placements)
        for row in placement.rows.values()
        if row.title
    }
    return {path: rows[path].title for path in sorted(rows, key=lambda path: (rows[path].title_order, path))}


WORDS = (pl.Categorical, pl.Enum, pl.String)


Numbers = NDArray[np.uint32]


def intern(column: pl.Series) -> tuple[pl.Series, Numbers]:
    """Number the strings of a column 1, 2, ... in order of appearance.

    Returns:
        The distinct strings in order of their numbers, and the number of each row; 0 for null.
    """
    words = column.cast(pl.Categorical()) if column.dtype == pl.String else column
    first, number = _number((numbers(words, null=-1) + 1).astype(np.uint32))
    return column.gather(first).cast(pl.String), number


class FrameColumns:
    """Columns of a frame, each converted once for all subtracks that have rows of it.

    Args:
        frame: The frame.
    """

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame
        self.dtypes = {
            column.name: column.dtype for column in frame.iter_columns() if column.null_count() < len(column)
        }
        self._words: dict[str, tuple[Numbers, list[str]]] = {}
        self._values: dict[str, tuple[NDArray[Any], Bools | None]] = {}

    def find_values(self, column: str) -> tuple[NDArray[Any], Bools | None]:
        """Return the values of a column of numbers, any for null, and the mask of the others.

        None: no value is null.
        """
        if column not in self._values:
            values, mask = self.frame.get_column(column), None
            if values.null_count():
                mask = values.is_not_null().to_numpy()
                values = values.fill_null(False if values.dtype == pl.Boolean else 0)
            if values.dtype == pl.Float32:
                values = values.cast(pl.Float64)
            self._values[column] = values.to_numpy(), mask
        return self._values[column]

    def find_words(self, column: str) -> tuple[Numbers, list[str]]:
        """Return the number of the string of each row of a column, 0 for null, and the strings by number."""
        if column not in self._words:
            texts, number = intern(self.frame.get_column(column))
            self._words[column] = number, texts.to_list()
        return self._words[column]


class DrawnRows(Struct, frozen=True, kw_only=True):
    """Rows of subtracks with the same columns, one subtrack after the other.

    Attributes:
        columns: Columns of the frame that has the rows.
        rows: The rows, in order; None: all rows of the frame.
        depth: Depth of each row; empty without slices.
    """

    columns: FrameColumns
    rows: Int64s | None
    depth: NDArray[np.int32]

    def gather(self, column: str) -> NDArray[Any]:
        """Return the values of a column of numbers without nulls."""
        values, _ = self.columns.find_values(column)
        return values if self.rows is None else values.take(self.rows)

    def number(self, names: Sequence[str]) -> tuple[dict[str, Numbers], list[str]]:
        """Number the strings of some columns 1, 2, ... in order of appearance, one column after the other.

        Returns:
            The number of each row by column, 0 for null; and the strings in order of their numbers.
        """
        number_of: dict[str, Numbers] = {}
        texts: list[str] = []
        for name in names:
            codes, words = self.columns.find_words(name)
            codes = codes if self.rows is None else codes.take(self.rows)
            first, own = _number(codes)
            number_of[name] = np.where(own > 0, own + np.uint32(len(texts)), own) if texts else own
            texts += [words[code - 1] for code in codes[first].tolist()]
        return number_of, texts


def join_rows(subtracks: Sequence[Subtrack], frames: dict[int, FrameColumns]) -> DrawnRows:
    """Join the rows of subtracks with the same columns.

    Args:
        subtracks: The subtracks.
        frames: Columns of frames by their id; receives further ones.
    """
    parts = [one.content for one in subtracks if isinstance(one, SliceSubtrack)]
    arranged = [part for part in parts if isinstance(part, ArrangedSlices)]
    if len(arranged) == len(subtracks) and all(part.source is arranged[0].source for part in arranged):
        frame, rows = arranged[0].source, np.concatenate([part.rows for part in arranged])
        depth = np.concatenate([part.depth for part in arranged])
        if id(frame) not in frames:
            frames[id(frame)] = FrameColumns(frame)
        return DrawnRows(columns=frames[id(frame)], rows=rows, depth=depth)
    frame = pl.concat((subtrack_rows(one) for one in subtracks), rechunk=True)
    depth = frame["depth"].to_numpy() if parts else np.empty(0, dtype=np.int32)
    return DrawnRows(columns=FrameColumns(frame), rows=None, depth=depth)


def _number(codes: Numbers) -> tuple[Int64s, Numbers]:
    """Return the first row of each number from 1 on, and the number of each row.

    The code 0 has the number 0.
    """
    first, index = find_distinct(codes)
    nulls = int(len(first) > 0 and codes[first[0]] == 0)  # codes are in order
    order = np.argsort(first[nulls:]) + nulls
    number = np.zeros(len(first), dtype=np.uint32)
    number[order] = np.arange(1, len(order) + 1)
    return first[order], number[index]

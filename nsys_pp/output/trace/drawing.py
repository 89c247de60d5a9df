"""Drawing: the contents of a trace, independent of the file format.

A drawing has a tree of tracks. A track has subtracks of slices, marks or counter samples. Slices of the same
subtrack nest or do not overlap, so a track with overlapping slices has several subtracks.
`nsys_pp.output.trace.tracks` draws reports; `nsys_pp.output.perfetto.trace` and `nsys_pp.output.chrome`
encode drawings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

import numpy as np
import polars as pl
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from nsys_pp.arrays.columns import find_distinct, numbers
from nsys_pp.arrays.names import natural_key
from nsys_pp.arrays.search import group_pairs
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.clock import Clock
from nsys_pp.frames.part import Row, SubtrackKind, Track

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


MORE_FLOWS = "flow_id_"  # prefix of further columns as `flow_id`, of slices where several arrows begin


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


class Subtrack(Struct, frozen=True, kw_only=True):
    """Rows on one track: slices that nest or do not overlap, marks, or samples of a counter.

    Further columns are arguments of the row, shown under the name of the column, but those whose names begin
    with `MORE_FLOWS`, which have further flow ids. The type of an argument is an integer, Float64, Boolean or
    Categorical. Null: the row does not have the argument.

    Attributes:
        track: Path of the track in the report.
        kind: "slices", "marks" or "counter".
        source: Columns of SLICES without `depth`, of MARK_POINTS, or of SAMPLES, and arguments; it may have
            the rows of many subtracks.
        rows: Rows of the source, in order of drawing. Slices are in pre-order: each directly before the
            slices inside it, siblings by time. So the order of begin and end events in the file follows from
            `depth`.
        depth: Number of slices of this subtrack around each row.
        number: 0, 1, ... among the slice subtracks of the track; all of them are drawn as one row.
    """

    track: tuple[str, ...]
    kind: SubtrackKind
    source: pl.DataFrame
    rows: Int64s
    depth: NDArray[np.int32]
    number: int = 0

    @property
    def frame(self) -> pl.DataFrame:
        """The rows, in order: `SLICES`, `MARK_POINTS` or `SAMPLES`, with arguments."""
        rows = self.source[self.rows]
        return rows.with_columns(depth=pl.Series(self.depth)) if self.kind == "slices" else rows

    @property
    def start_ns(self) -> int:
        """The time of the first event."""
        return int(self.source["start_ns" if self.kind == "slices" else "time_ns"][int(self.rows[0])])


def draw_all(track: tuple[str, ...], kind: SubtrackKind, frame: pl.DataFrame) -> Subtrack:
    """Draw all rows of a frame in their order, none inside another."""
    depth = np.zeros(len(frame), dtype=np.int32)
    return Subtrack(track=track, kind=kind, source=frame, rows=np.arange(len(frame)), depth=depth)


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


def subtracks_by_track(drawing: Drawing) -> dict[Path, list[Subtrack]]:
    """Group the subtracks with rows by track: slices by number, then marks, then samples."""
    kinds = get_args(SubtrackKind)
    ordered = sorted(drawing.subtracks, key=lambda one: (kinds.index(one.kind), one.number))
    return group_pairs((subtrack.track, subtrack) for subtrack in ordered if len(subtrack.rows))


def index_tracks(drawing: Drawing) -> dict[Path, Track]:
    """Return the tracks of a drawing by path.

    Raises:
        ValueError: Two tracks have the same path, or the track of a subtrack is missing from the drawing.
    """
    by_path = {track.path: track for track in drawing.tracks}
    if len(by_path) < len(drawing.tracks):
        raise ValueError("two tracks of the drawing have the same path")
    if missing := {subtrack.track for subtrack in drawing.subtracks} - by_path.keys():
        raise ValueError(f"the drawing has subtracks on missing tracks: {sorted(missing)}")
    return by_path


def arrange(tracks: Mapping[Path, Track], used: Collection[Path]) -> list[Track]:
    """Order the drawn tracks (they or tracks below them have a subtrack), and add their missing parents.

    Siblings are sorted by rank (added parents last), then by name in natural order (`node2` before `node10`),
    then by path.

    Args:
        tracks: All tracks, by path.
        used: Paths of tracks with a subtrack.

    Returns:
        Tracks in depth-first order: each parent before its children. Their ranks are 0, 1, ... among
        siblings.
    """
    shown = {
        path: tracks.get(path) or Track(path=path, name=path[-1], rank=1 << 63)
        for used_path in used
        for path in (used_path[:end] for end in range(1, len(used_path) + 1))
    }
    ordered = sorted(shown.values(), key=lambda track: (track.rank, natural_key(track.name), track.path))
    children = group_pairs((track.path[:-1], track) for track in ordered)

    def walk(parent: Path) -> Iterator[Track]:
        for rank, track in enumerate(children.get(parent, [])):
            yield replace(track, rank=rank)
            yield from walk(track.path)

    return list(walk(()))


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

    def number(self, names: Sequence[str], rows: Int64s) -> tuple[dict[str, Numbers], list[str]]:
        """Number the strings of some columns 1, 2, ... in order of appearance, one column after the other.

        Args:
            names: The columns.
            rows: Rows of the frame, in order.

        Returns:
            The number of each of these rows by column, 0 for null; and the strings in order of their numbers.
        """
        number_of: dict[str, Numbers] = {}
        texts: list[str] = []
        for name in names:
            codes, words = self.find_words(name)
            codes = codes.take(rows)
            first, own = _number(codes)
            number_of[name] = np.where(own > 0, own + np.uint32(len(texts)), own) if texts else own
            texts += [words[code - 1] for code in codes[first].tolist()]
        return number_of, texts


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

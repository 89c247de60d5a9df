"""The tree of a trace's tracks, in drawing order."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import polars as pl
from msgspec import Struct

from nsys_pp.arrays.natural_sort import natural_key
from nsys_pp.frames.part import Track
from nsys_pp.output.trace.drawing import ArrangedSlices, Drawing, MarkSubtrack, SliceSubtrack, Subtrack

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

    Siblings are sorted by rank (added parents last), then by name in natural order (`node2` before `node10`), then by path.

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

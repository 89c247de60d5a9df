"""The tree of a trace's tracks, in the order in which they are drawn."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import polars as pl

from nsys_pp.arrays.natural_sort import natural_key
from nsys_pp.frames.part import Track
from nsys_pp.write.trace.drawing import Drawing, MarkSubtrack, SliceSubtrack, Subtrack

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A track that is drawn: it has a subtrack, or a track below it has."""

    track: Track
    place: int  # 0, 1, ... among its siblings


def subtrack_rows(subtrack: Subtrack) -> pl.DataFrame:
    """Return the rows of a subtrack of any kind."""
    if isinstance(subtrack, SliceSubtrack):
        return subtrack.slices
    return subtrack.marks if isinstance(subtrack, MarkSubtrack) else subtrack.samples


def drawn_subtracks(drawing: Drawing) -> list[Subtrack]:
    """Return the subtracks that have rows."""
    return [subtrack for subtrack in drawing.subtracks if subtrack_rows(subtrack).height]


def start_ns(subtrack: Subtrack) -> int:
    """Return the time of a subtrack's first event; the subtrack must have rows."""
    return int(subtrack_rows(subtrack)["start_ns" if isinstance(subtrack, SliceSubtrack) else "time_ns"][0])


def subtracks_by_track(drawing: Drawing) -> dict[Path, list[Subtrack]]:
    """Group the subtracks that have rows by track: slices by number of subtrack, then marks, then samples."""
    subtracks: dict[Path, list[Subtrack]] = {}
    for subtrack in sorted(drawn_subtracks(drawing), key=_subtrack_order):
        subtracks.setdefault(subtrack.track, []).append(subtrack)
    return subtracks


def index_tracks(drawing: Drawing) -> dict[Path, Track]:
    """Return the tracks of a drawing by path.

    Raises:
        ValueError: Two tracks have one path, or a subtrack's track is missing from the drawing.
    """
    given = {track.path: track for track in drawing.tracks}
    if len(given) < len(drawing.tracks):
        raise ValueError("two tracks of the drawing have the same path")
    if missing := {subtrack.track for subtrack in drawn_subtracks(drawing)} - given.keys():
        raise ValueError(f"the drawing has subtracks on tracks that it lacks: {sorted(missing)}")
    return given


def arrange(tracks: Mapping[Path, Track], used: Collection[Path]) -> list[Node]:
    """Order the tracks that are drawn, and add the parents that the drawing left out.

    Siblings are ordered by rank, those left out last, then by name with numbers by value
    (`node2` before `node10`), so that every sibling has a place of its own.

    Args:
        tracks: All that are known.
        used: Paths of those that hold a subtrack.

    Returns:
        Nodes in depth-first order; every parent stands before its children.
    """
    paths = {path[:end] for path in used for end in range(1, len(path) + 1)}
    children: dict[Path, list[Path]] = {}
    for path in sorted(paths, key=lambda path: _order(path, tracks)):
        children.setdefault(path[:-1], []).append(path)
    return _walk((), children, tracks)


def _walk(parent: Path, children: dict[Path, list[Path]], given: Mapping[Path, Track]) -> list[Node]:
    nodes = []
    for place, path in enumerate(children.get(parent, [])):
        track = given.get(path) or Track(path=path, name=path[-1], rank=0)
        nodes += [Node(track=track, place=place), *_walk(path, children, given)]
    return nodes


def _order(path: Path, given: Mapping[Path, Track]) -> tuple[bool, int, list[tuple[str, int]], Path]:
    track = given.get(path)
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

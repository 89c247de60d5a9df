"""The tree of a trace's tracks, in the order in which they are drawn."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import polars as pl

from nsys_pp.arrays.natural_sort import natural_key
from nsys_pp.frames.part import Track
from nsys_pp.write.trace.drawing import Drawing, Lane, MarkLane, SliceLane

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A track that is drawn: it has a lane, or a track below it has."""

    track: Track
    place: int  # 0, 1, ... among its siblings


def lane_rows(lane: Lane) -> pl.DataFrame:
    """Return the rows of a lane of any kind."""
    if isinstance(lane, SliceLane):
        return lane.slices
    return lane.marks if isinstance(lane, MarkLane) else lane.samples


def drawn_lanes(drawing: Drawing) -> list[Lane]:
    """Return the lanes that have rows."""
    return [lane for lane in drawing.lanes if lane_rows(lane).height]


def start_ns(lane: Lane) -> int:
    """Return the time of a lane's first event; the lane must have rows."""
    return int(lane_rows(lane)["start_ns" if isinstance(lane, SliceLane) else "time_ns"][0])


def lanes_by_track(drawing: Drawing) -> dict[Path, list[Lane]]:
    """Group the lanes that have rows by track: slices by number of lane, then marks, then samples."""
    lanes: dict[Path, list[Lane]] = {}
    for lane in sorted(drawn_lanes(drawing), key=_lane_order):
        lanes.setdefault(lane.track, []).append(lane)
    return lanes


def index_tracks(drawing: Drawing) -> dict[Path, Track]:
    """Return the tracks of a drawing by path.

    Raises:
        ValueError: Two tracks have one path, or a lane's track is missing from the drawing.
    """
    given = {track.path: track for track in drawing.tracks}
    if len(given) < len(drawing.tracks):
        raise ValueError("two tracks of the drawing have the same path")
    if missing := {lane.track for lane in drawn_lanes(drawing)} - given.keys():
        raise ValueError(f"the drawing has lanes on tracks that it lacks: {sorted(missing)}")
    return given


def arrange(tracks: Mapping[Path, Track], used: Collection[Path]) -> list[Node]:
    """Order the tracks that are drawn, and add the parents that the drawing left out.

    Siblings are ordered by rank, those left out last, then by name with numbers by value
    (`node2` before `node10`), so that every sibling has a place of its own.

    Args:
        tracks: All that are known.
        used: Paths of those that hold a lane.

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


def _lane_order(lane: Lane) -> tuple[int, int]:
    if isinstance(lane, SliceLane):
        return 0, lane.lane
    return (1, 0) if isinstance(lane, MarkLane) else (2, 0)

"""The tree of a drawing's tracks, in the order in which they are drawn."""

from __future__ import annotations

import re
from dataclasses import dataclass

import polars as pl

from nsys_pp.write.drawing import Drawing, Lane, MarkLane, SliceLane, Track

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
    """Return the time of a lane's first event on the trace's clock; the lane must have rows."""
    column = "start_ns" if isinstance(lane, SliceLane) else "time_ns"
    return int(lane_rows(lane)[column][0]) + lane.clock.offset_ns


def lanes_by_track(drawing: Drawing) -> dict[Path, list[Lane]]:
    """Group the lanes that have rows by track: slices by number of lane, then marks, then samples."""
    lanes: dict[Path, list[Lane]] = {}
    for lane in sorted(drawn_lanes(drawing), key=_lane_order):
        lanes.setdefault(lane.track, []).append(lane)
    return lanes


def arrange(drawing: Drawing) -> list[Node]:
    """Order the tracks that are drawn, and add the parents that the drawing left out.

    Siblings are ordered by rank, those left out last, then by name with numbers by value
    (`node2` before `node10`), so that every sibling has a place of its own.

    Args:
        drawing: Any drawing.

    Returns:
        Nodes in depth-first order; every parent stands before its children.

    Raises:
        ValueError: Two tracks have one path, or a lane's track is missing from the drawing.
    """
    given = {track.path: track for track in drawing.tracks}
    if len(given) < len(drawing.tracks):
        raise ValueError("two tracks of the drawing have the same path")
    used = {lane.track for lane in drawn_lanes(drawing)}
    if missing := used - given.keys():
        raise ValueError(f"the drawing has lanes on tracks that it lacks: {sorted(missing)}")
    paths = {path[:end] for path in used for end in range(1, len(path) + 1)}
    children: dict[Path, list[Path]] = {}
    for path in sorted(paths, key=lambda path: _order(path, given)):
        children.setdefault(path[:-1], []).append(path)
    return _walk((), children, given)


def _walk(parent: Path, children: dict[Path, list[Path]], given: dict[Path, Track]) -> list[Node]:
    nodes = []
    for place, path in enumerate(children.get(parent, [])):
        track = given.get(path) or Track(path=path, name=path[-1], rank=0)
        nodes += [Node(track=track, place=place), *_walk(path, children, given)]
    return nodes


def _order(path: Path, given: dict[Path, Track]) -> tuple[bool, int, list[tuple[str, int]], Path]:
    track = given.get(path)
    name = path[-1] if track is None else track.name
    parts = re.findall(r"(\D*)(\d*)", name)
    return (
        track is None,
        track.rank if track else 0,
        [(text, int(digits or -1)) for text, digits in parts],
        path,
    )


def _lane_order(lane: Lane) -> tuple[int, int]:
    if isinstance(lane, SliceLane):
        return 0, lane.lane
    return (1, 0) if isinstance(lane, MarkLane) else (2, 0)

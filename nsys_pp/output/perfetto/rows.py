"""Outermost rows of a trace in Perfetto's UI, which are in view as soon as the trace is opened.

Perfetto's UI opens a trace with all groups collapsed, unless there is only one group; and clock snapshots, which carry
the clock of each report, are a group of their own ("System"). So the rows that matter are outermost, and have events of their own:
the rows of the run, then a row for each GPU. Such a row shows the events of its first child that has slices (jobs,
or projected ranges, or communication), and the other rows of the GPU are below it. Rows of processes are in groups
by machine, the last ones.

The UI has two more rules for outermost rows, both from `viz/summary/track_event.sql` and the plugin `dev.perfetto.TrackEvent`
of https://github.com/google/perfetto, the same in v52 and v58:

* An outermost row without children is put in a group "Global Track Events", so it has a row below it with one mark.
* Outermost rows are sorted by name, as text; their order cannot be set. Spaces before a name do not show on the page, and sort
  first. So names begin with as many spaces as it takes (`order_by_text`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from nsys_pp.frames.part import Track
from nsys_pp.output.trace.tree import Node, Path, arrange

SHOWS = "shows "
"""Before the name of the child whose events an outermost row shows, in its description."""
_AFTER_OUTERMOST = 1 << 62  # ranks of machines


def hoist(
    tracks: Mapping[Path, Track], leaves: Mapping[Path, Sequence[int]], outermost: Mapping[Path, str]
) -> tuple[dict[Path, Track], dict[Path, list[int]]]:
    """Move rows out of their machines, above these, and the events of their first children with slices onto them.

    A row whose children are all counters shows the first of them.

    The description of a machine is added to those of its rows.

    Args:
        tracks: Tracks by path.
        leaves: Perfetto's uuids of the tracks with events, by path.
        outermost: Names of the rows to move by path, in order of drawing.

    Returns:
        The tracks and the leaves, by new path. Other rows of machines are after the moved rows.
    """
    new_paths = {path: ("\0".join(path),) for path in outermost}
    moved_tracks = {
        track.path: track for track in (_move_track(track, new_paths) for track in tracks.values())
    }
    for number, (path, name) in enumerate(outermost.items()):
        new, machine = new_paths[path], tracks.get(path[:1])
        track = moved_tracks.get(new) or Track(path=new, name=name, rank=number)
        texts = [track.description, machine.description if machine else ""]
        moved_tracks[new] = replace(track, name=name, rank=number, description="; ".join(filter(None, texts)))
    moved_leaves = {_move(path, new_paths): list(uuids) for path, uuids in leaves.items()}
    nodes = arrange(moved_tracks, moved_leaves)
    is_bare = {path for path in new_paths.values() if path not in moved_leaves}
    children = [node.track for node in nodes if len(node.track.path) == 2 and node.track.path in moved_leaves]
    for child in sorted(children, key=lambda child: child.counter_unit is not None):  # else the first counter
        row = child.path[:1]
        if row in is_bare:
            is_bare.remove(row)
            moved_leaves[row] = moved_leaves.pop(child.path)
            facts = filter(None, [f"{SHOWS}{child.name}", child.description, moved_tracks[row].description])
            moved_tracks[row] = replace(
                moved_tracks[row], description="; ".join(facts), counter_unit=child.counter_unit
            )
    return moved_tracks, moved_leaves


def _move_track(track: Track, new_paths: Mapping[Path, Path]) -> Track:
    path = _move(track.path, new_paths)
    is_machine = path == track.path and len(path) == 1
    return replace(track, path=path, rank=track.rank + _AFTER_OUTERMOST if is_machine else track.rank)


def _move(path: Path, new_paths: Mapping[Path, Path]) -> Path:
    new = new_paths.get(path[:2])
    return path if new is None else (*new, *path[2:])


def order_by_text(nodes: Sequence[Node]) -> dict[Path, str]:
    """Name the outermost of some nodes so that the order of their names as text is the order of the nodes.

    >>> from nsys_pp.frames.part import Track
    >>> names = ["steps", "rank 9", "rank 10"]
    >>> nodes = [Node(track=Track(path=(name,), name=name, rank=0), order=0) for name in names]
    >>> list(order_by_text(nodes).values())
    ['  steps', ' rank 9', 'rank 10']
    """
    names: dict[Path, str] = {}
    spaces, next_name = 0, ""
    for node in reversed([node for node in nodes if len(node.track.path) == 1]):
        name = " " * spaces + node.track.name.lstrip(" ")
        if names and name.encode() >= next_name.encode():
            spaces += 1
            name = " " + name
        names[node.track.path] = next_name = name
    return dict(reversed(names.items()))

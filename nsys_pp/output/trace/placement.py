"""Placement of a report in a trace: names and order of its rows, and its clock; computed when reports are merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from nsys_pp.frames.clock import Clock
from nsys_pp.frames.part import Row as Row
from nsys_pp.frames.part import Track

Path = tuple[str, ...]


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

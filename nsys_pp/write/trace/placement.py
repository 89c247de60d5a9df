"""Where a report stands in a trace: what is said of it only when reports are put together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from nsys_pp.frames.clock import Clock
from nsys_pp.frames.part import Track

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How an outermost row of a report is shown under its machine."""

    name: str  # "GPU 0 · rank 3 · stage 1"; rows of one name and machine are one row
    order: int  # among the rows of the machine
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The place of one report; all placements of a trace have one root."""

    root: str  # name of the row above all
    machine: str
    machine_order: int
    rows: Mapping[str, Row]  # by the row's name in the report; one that is not here is not drawn
    clock: Clock  # from the report's clock to the trace's
    machine_description: str = ""
    is_utc: bool = True  # the trace's clock is UTC
    attributes: Mapping[str, str] = field(default_factory=dict)  # facts for the trace's metadata


def place_path(path: Path, placement: Placement) -> Path:
    """Return where a report's track stands in the trace; the root is no part of it.

    Raises:
        KeyError: Its outermost row is not drawn.
    """
    return (placement.machine, placement.rows[path[0]].name, *path[1:])


def place_tracks(tracks: Iterable[Track], placement: Placement) -> dict[Path, Track]:
    """Give the tracks of a report that are drawn, with their machine, at their places in the trace."""
    machine = Track(
        path=(placement.machine,),
        name=placement.machine,
        rank=placement.machine_order,
        description=placement.machine_description,
    )
    placed: dict[Path, Track] = {machine.path: machine}
    given = {track.path: track for track in tracks}
    for name, row in placement.rows.items():
        top = given.get((name,)) or Track(path=(name,), name=name, rank=0)
        path: Path = (placement.machine, row.name)
        placed[path] = replace(top, path=path, name=row.name, rank=row.order, description=row.description)
    for track in given.values():
        if len(track.path) > 1 and track.path[0] in placement.rows:
            path = place_path(track.path, placement)
            placed[path] = replace(track, path=path)
    return placed

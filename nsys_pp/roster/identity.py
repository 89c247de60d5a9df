"""Who recorded a report: what is kept of it to tell it from others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nsys_pp.frames.report import Report, Session
from nsys_pp.frames.roster import Identity, Who
from nsys_pp.roster.coordinates import find_coordinates


def identify(report: Report) -> Identity:
    """Take out of a report what tells who recorded it.

    Session, GPUs, fingerprint, and ranks by MPI, launcher and XLA are the same however little was
    read. Devices are exact with group "ops", ranks know NCCL with "communication", and coordinates
    need "ranges".
    """
    return Identity(
        path=report.path,
        session=report.session,
        processes=report.processes,
        gpus=report.gpus,
        devices=report.devices,
        ranks=report.ranks,
        coordinates=find_coordinates(report.ranges, report.marks),
        fingerprint=report.fingerprint,
    )


def list_who(identities: Sequence[Identity]) -> list[Who]:
    """List every process and device of every report; one row without them for a report that has none."""
    return [
        who
        for place, one in enumerate(identities)
        for who in [Who(place, *keys) for keys in one.devices.select("process_key", "device_id").rows()]
        or [Who(place, None, None)]
    ]


def find_repeated(identities: Sequence[Identity]) -> list[tuple[int, int]]:
    """Find recordings that are there more than once.

    Returns:
        Pairs of places among `identities`: of one that is there again, and where it first was.
    """
    first: dict[int, int] = {}
    pairs = []
    for place, one in enumerate(identities):
        earlier = first.setdefault(one.fingerprint, place)
        if earlier != place:
            pairs.append((place, earlier))
    return pairs


def capture_window(session: Session) -> tuple[int, int] | None:
    """Give the UTC at which a capture began and ended, in ns; None where the report does not tell."""
    if session.utc_epoch_ns is None or session.capture_end_ns is None:
        return None
    return session.utc_epoch_ns, session.utc_epoch_ns + session.capture_end_ns - session.time_shift_ns


def gpu_processes(identity: Identity) -> list[int]:
    """List the keys of the processes that used a GPU."""
    return identity.devices["process_key"].unique().drop_nulls().sort().to_list()


def name_paths(paths: Sequence[Path]) -> str:
    """Name the first three of several files.

    >>> name_paths([Path(f"{name}.sqlite") for name in "abcde"])
    '`a.sqlite`, `b.sqlite`, `c.sqlite` and 2 more'
    >>> name_paths([Path("a.sqlite"), Path("b.sqlite")])
    '`a.sqlite` and `b.sqlite`'
    """
    named = [f"`{path}`" for path in paths[:3]]
    rest = [f"{len(paths) - 3:,} more"] if len(paths) > 3 else []
    *heads, last = [*named, *rest]
    return f"{', '.join(heads)} and {last}" if heads else last

"""Frames of parts, in the order in which files hold them: first the frames that a merge reads, last the frames of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import msgspec
import polars as pl

from nsys_pp.frames.aggregates import AGGREGATE_FRAMES
from nsys_pp.frames.clock import ANCHORS
from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.mpi_pairs import PART_MPI_MESSAGES
from nsys_pp.frames.part import EncodedSubtrack, SubtrackKind
from nsys_pp.frames.part_host import HOST_FRAMES
from nsys_pp.frames.part_metrics import METRIC_FRAMES
from nsys_pp.frames.report import DEVICES, GPUS, PROCESSES, RANKS
from nsys_pp.frames.roster import COORDINATES
from nsys_pp.frames.row_counts import ROW_COUNTS
from nsys_pp.frames.training import REPORT_FRAMES

SUBTRACK_KIND = pl.Enum(get_args(SubtrackKind))

SUBTRACKS = build_schema(
    {  # `EncodedSubtrack`, one row each, in order
        "track": pl.String,  # names of the path, as a list in JSON
        "ordinal": pl.Int64,
        "kind": SUBTRACK_KIND,
        "rows": pl.Int64,
        "first_ns": pl.Int64,
        "last_ns": pl.Int64,
        "size_bytes": pl.Int64,
    },
    name="SUBTRACKS",
)

PART_FRAMES: Mapping[str, pl.Schema] = {
    "subtracks": SUBTRACKS,
    "processes": PROCESSES,
    "gpus": GPUS,
    "devices": DEVICES,
    "ranks": RANKS,
    "coordinates": COORDINATES,
    "anchors": ANCHORS,
    "row_counts": ROW_COUNTS,
    "mpi_messages": PART_MPI_MESSAGES,
    **REPORT_FRAMES,
    **AGGREGATE_FRAMES,
    **METRIC_FRAMES,
    **HOST_FRAMES,
}


def list_subtracks(subtracks: list[EncodedSubtrack]) -> pl.DataFrame:
    """List encoded subtracks as a frame (`SUBTRACKS`)."""
    rows = [
        (msgspec.json.encode(one.track).decode(), *(getattr(one, name) for name in SUBTRACKS.names()[1:]))
        for one in subtracks
    ]
    return pl.DataFrame(rows, schema=SUBTRACKS, orient="row")


def read_subtracks(columns: Mapping[str, Sequence[Any]]) -> list[EncodedSubtrack]:
    """Read encoded subtracks; the inverse of `list_subtracks`.

    Args:
        columns: Values of the columns of `SUBTRACKS`, without null.

    Raises:
        MsgspecError: A track is no list of names.
    """
    tracks: Sequence[str] = columns["track"]
    # subtracks of a track share its path, which is long
    paths = {text: msgspec.json.decode(text, type=tuple[str, ...]) for text in set(tracks)}
    values = [columns[name] for name in SUBTRACKS.names()[1:]]
    return [
        EncodedSubtrack(
            track=paths[track],
            ordinal=ordinal,
            kind=kind,
            rows=rows,
            first_ns=first_ns,
            last_ns=last_ns,
            size_bytes=size_bytes,
        )
        for track, ordinal, kind, rows, first_ns, last_ns, size_bytes in zip(tracks, *values, strict=True)
    ]

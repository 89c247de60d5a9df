"""What the importer holds of a trace, as frames to compare with what was drawn."""

from __future__ import annotations

import json

import polars as pl

from nsys_pp.output.perfetto.trace import ABOUT, SHOWS
from tests.importer.importer import Importer, Trace

TRACKS = """
WITH RECURSIVE tree(id, path, places) AS (
  SELECT id, json_array(ltrim(name)), printf('%08d.', dense_rank() OVER (ORDER BY name))
  FROM track WHERE parent_id IS NULL
  UNION ALL
  SELECT track.id, json_insert(tree.path, '$[#]', track.name),
    places || printf('%08d.', coalesce(extract_arg(track.source_arg_set_id, 'sibling_order_rank'), 0))
  FROM track JOIN tree ON track.parent_id = tree.id
)
SELECT tree.id AS track_id, path, places, track.type, track.track_group_id,
  extract_arg(track.source_arg_set_id, 'description') AS description
FROM tree JOIN track USING (id)
"""

SLICES = """
SELECT id AS slice_id, track_id, ts, dur, depth, name, parent_id, arg_set_id,
  extract_arg(arg_set_id, 'correlation_id') AS correlation
FROM slice ORDER BY id
"""

ARGS = """
SELECT arg_set_id, substr(key, 7) AS key, value_type, int_value, string_value, real_value
FROM args WHERE key GLOB 'debug.*' ORDER BY id
"""

FLOWS = "SELECT slice_out, slice_in FROM flow ORDER BY slice_out, slice_in"

COLUMNS = ("path", "subtrack", "ts", "dur", "depth", "name", "correlation", "args", "slice_id")

Value = int | float | str | bool | None


def read_tracks(importer: Importer, trace: Trace | None = None) -> pl.DataFrame:
    """Return every track in order of the UI.

    Track_id, path (list of names from the outermost), description, subtrack.

    The UI sorts outermost tracks by name; spaces before a name are not shown.

    `subtrack` numbers tracks that are drawn as one row (same path) from 0, in the importer's order.
    """
    tracks = importer.query(trace, TRACKS)
    if tracks.is_empty():
        return tracks
    paths = pl.Series("path", [json.loads(path) for path in tracks["path"]], dtype=pl.List(pl.String))
    return (
        tracks.with_columns(paths)
        .sort("places", "track_id")
        .with_columns(
            subtrack=pl.int_range(pl.len()).over(pl.col("path").list.join("\0", ignore_nulls=False))
        )
        .drop("places")
    )


def read_args(importer: Importer, trace: Trace | None = None) -> dict[int, dict[str, Value]]:
    """Return the arguments of every argument set that has debug annotations."""
    sets: dict[int, dict[str, Value]] = {}
    for set_id, key, kind, integer, text, real in importer.query(trace, ARGS).iter_rows():
        number = integer % 2**64 if kind == "uint" else bool(integer) if kind == "bool" else integer
        sets.setdefault(set_id, {})[key] = text if kind == "string" else real if kind == "real" else number
    return sets


def slices_by_track(importer: Importer, trace: Trace | None = None) -> pl.DataFrame:
    """Return every slice and instant: path, subtrack, ts, dur, depth, name, correlation, args, slice_id.

    Args:
        importer: The fixture `importer`.
        trace: Bytes, blocks or path; None reads the trace that is loaded.

    Returns:
        One row per slice in the importer's order (by ts), `path` as "outermost/…/name" with the
        names joined by "/", `args` as a Python object column (dict). An outermost row that shows the events
        of a row below it has the name of that row at the end of its path. Marks below outermost rows that
        have nothing else there are left out.
    """
    tracks = read_tracks(importer, trace)
    slices = importer.query(None, SLICES)
    sets = read_args(importer)
    if slices.is_empty():
        return pl.DataFrame(schema=dict.fromkeys(COLUMNS, pl.Null))
    args = pl.Series("args", [sets.get(key, {}) for key in slices["arg_set_id"]], dtype=pl.Object)
    named = tracks.with_columns(_name_shown_rows())
    return (
        slices.with_columns(args)
        .join(
            named.select("track_id", "subtrack", path=pl.col("path").list.join("/", ignore_nulls=False)),
            on="track_id",
            how="left",
            maintain_order="left",
        )
        .filter(~pl.col("path").str.ends_with(f"/{ABOUT}"))
        .select(COLUMNS)
    )


def _name_shown_rows() -> pl.Expr:
    shown = pl.col("description").cast(pl.String).str.extract(f"^{SHOWS}([^;]+)")
    return (
        pl.when((pl.col("path").list.len() == 1) & shown.is_not_null())
        .then(pl.concat_list("path", shown))
        .otherwise("path")
        .alias("path")
    )


def slices_by_machine(importer: Importer, trace: Trace | None = None) -> pl.DataFrame:
    """Return `slices_by_track` on the clock of the run, each `path` with the machine before the row.

    Rows of the run have the path "pipeline/…". `machine` is a column, too.
    """
    slices = slices_by_track(importer, trace)
    machines = read_machines(importer)
    outermost = pl.col("path").cast(pl.String).str.split("/").list.first()
    on_machine = outermost.is_in([*machines])
    is_of_run = outermost.str.contains("^(steps|bubble of stage .*)$")
    return slices.with_columns(
        ts=pl.col("ts") + (read_zero_ns(importer) or 0),
        machine=pl.when(on_machine)
        .then(outermost.replace(machines))
        .when(is_of_run)
        .then(pl.lit("pipeline"))
        .otherwise(outermost),
    ).with_columns(
        path=pl.when(on_machine | is_of_run)
        .then(pl.concat_str("machine", "path", separator="/"))
        .otherwise("path")
    )


def read_machines(importer: Importer) -> dict[str, str]:
    """Return the machine of each row with a GPU, by the name of the row, from the loaded trace."""
    rows = read_tracks(importer).filter(pl.col("path").list.len() == 1, pl.col("description").is_not_null())
    named = rows.select(
        pl.col("path").list.first(),
        pl.col("description").cast(pl.String).str.extract("(?:^|; )([^,;]*), GPU [0-9]"),
    )
    return {row: machine for row, machine in named.iter_rows() if machine is not None}


def read_zero_ns(importer: Importer) -> int | None:
    """Return UTC at 0 of the loaded trace; None if it is unknown."""
    snapshots = importer.query(
        None, "SELECT clock_value - ts FROM clock_snapshot WHERE clock_name = 'REALTIME'"
    )
    return None if snapshots.is_empty() else int(snapshots.item(0, 0))


def read_flows(importer: Importer, trace: Trace | None = None) -> list[tuple[int, int]]:
    """Return the arrows as pairs of slice_id, from and to."""
    return [(out, into) for out, into in importer.query(trace, FLOWS).iter_rows()]


def assert_no_errors(importer: Importer, trace: Trace | None = None) -> None:
    """Fail if the importer counted an error or lost data."""
    assert importer.errors(trace).rows() == []

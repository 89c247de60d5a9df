"""Queries over a trace, in the SQL of Perfetto's trace processor, for tabs of its UI.

Names of outermost rows may begin with spaces (`nsys_pp.output.perfetto.rows`).
"""

from __future__ import annotations

from typing import NamedTuple


class Query(NamedTuple):
    """A query."""

    title: str
    sql: str


QUERIES = {
    "bubbles": Query(
        "Bubbles per stage",
        """
SELECT ltrim(track.name) AS row, round(sum(value * length_ns) / sum(length_ns), 1) AS mean_percent
FROM (SELECT track_id, value, lead(ts) OVER (PARTITION BY track_id ORDER BY ts) - ts AS length_ns FROM counter)
JOIN counter_track AS track ON track.id = track_id
WHERE ltrim(track.name) GLOB 'bubble of stage *' AND length_ns IS NOT NULL
GROUP BY track.name ORDER BY track.name
""",
    ),
    "jobs": Query(
        "Slowest jobs",
        """
SELECT ltrim(track.name) AS row, slice.name AS job, extract_arg(slice.arg_set_id, 'debug.step') AS step,
  round(slice.dur / 1e6, 3) AS duration_ms, slice.id AS id, slice.ts AS ts, slice.dur AS dur, slice.track_id AS track_id
FROM slice JOIN track ON track.id = slice.track_id
WHERE extract_arg(track.source_arg_set_id, 'description') GLOB '*shows jobs*'
ORDER BY slice.dur DESC LIMIT 100
""",
    ),
    "messages": Query(
        "Late messages",
        """
SELECT ltrim(parent.name) AS row, slice.name AS message, extract_arg(slice.arg_set_id, 'debug.step') AS step,
  round(extract_arg(slice.arg_set_id, 'debug.wait_ns') / 1e6, 3) AS wait_ms,
  slice.id AS id, slice.ts AS ts, slice.dur AS dur, slice.track_id AS track_id
FROM slice JOIN track ON track.id = slice.track_id JOIN track AS parent ON parent.id = track.parent_id
WHERE track.name = 'messages' AND slice.name GLOB 'receive*'
  AND extract_arg(slice.arg_set_id, 'debug.wait_ns') IS NOT NULL
ORDER BY wait_ms DESC LIMIT 100
""",
    ),
}
"""Queries by name."""

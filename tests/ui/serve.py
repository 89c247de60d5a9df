"""Serve Perfetto's web UI and one trace on this machine only."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, *args: object, trace: Path, **kwargs: object) -> None:
        self._trace = trace
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]

    def translate_path(self, path: str) -> str:
        return str(self._trace) if path.startswith("/trace/") else super().translate_path(path)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serve(root: Path, trace: Path) -> Iterator[str]:
    """Serve `root` at / and the trace at /trace/ANYTHING; give the address without a slash at its end."""
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(_Handler, trace=trace.resolve(), directory=str(root))
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

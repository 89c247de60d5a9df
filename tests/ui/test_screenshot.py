"""What Perfetto's UI shows of a merged run and of its pieces as soon as it is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nsys_pp
from nsys_pp.output.perfetto.trace import write_perfetto
from nsys_pp.output.split_index import SplitFile, write_index
from nsys_pp.output.tables.text import clean
from tests.cli.calls import PIPELINE
from tests.output.drawings import drawing, encode, mark_subtrack, slice_subtrack, slices
from tests.ui.browser import Shot, Step, perfetto_screenshot, visit

# Rows that are in view, from top to bottom, as the page shows their names; `slices` of the row's tracks.
IN_VIEW = """(async () => {
  const rows = [];
  const walk = (node) => {
    for (const child of node.children) {
      rows.push({ name: child.name, uri: child.uri, is_open: !child.collapsed, has_children: child.hasChildren });
      if (!child.collapsed) walk(child);
    }
  };
  walk(app.trace.workspace);
  const last = rows[rows.length - 1].name.trim();
  for (let i = 0; i < 600 && !document.body.innerText.includes(last); i++)
    await new Promise((done) => setTimeout(done, 100));
  const result = await app.trace.engine.query(
    "SELECT count(*) AS n FROM slice WHERE track_id IN (SELECT id FROM track WHERE ltrim(name) GLOB 'rank *')");
  return { rows, text: document.body.innerText, start: Number(app.trace.traceInfo.start),
           job_slices: Number(result.firstRow({ n: 0 }).n) };
})()"""


def open_trace(trace: Path, picture: Path) -> dict[str, Any]:
    found = perfetto_screenshot(trace, picture, Shot(script=IN_VIEW))
    assert found["errors"] == []
    value: dict[str, Any] = found["value"]
    return value


def test_steps_bubbles_and_the_jobs_of_all_ranks_are_in_view(tmp_path: Path) -> None:
    trace = tmp_path / "run.pftrace"
    nsys_pp.merge([PIPELINE], trace)
    found = open_trace(trace, tmp_path / "run.png")
    rows = [row for row in found["rows"] if row["name"] != "System"]
    assert [row["name"].strip() for row in rows] == [
        "steps",
        *(f"bubble of stage {stage}" for stage in range(4)),
        *(f"rank {rank} · stage {rank} · node{2 if rank < 2 else 10} · GPU {rank % 2}" for rank in range(4)),
    ]
    assert all(row["uri"] for row in rows)
    shown = found["text"].split("\n")
    assert "rank 2 · stage 2 · node10 · GPU 0" in shown, "spaces before a name do not show"
    assert found["job_slices"] > 100
    assert 0 <= found["start"] < 10**12, "times count from the start of the run"


NAMES = "app.trace.workspace.flatTracksOrdered.map((track) => track.name)"


def test_the_ui_shows_tracks_in_order(tmp_path: Path) -> None:
    rows = slices([(0, 5_000, 0, "x", "forward"), (1_000, 2_000, 1, "y")])
    drawn = drawing(
        slice_subtrack("node10/GPU 0/stream 7", rows),
        slice_subtrack("node2/GPU 0/stream 20", rows),
        slice_subtrack("node2/GPU 0/stream 7", rows),
        slice_subtrack("node2/GPU 0/stream 7", rows, number=1),
        mark_subtrack("node2/GPU 0/stream 7", [(9_000, "m", None)]),
    )
    trace, picture = tmp_path / "t.pftrace", tmp_path / "t.png"
    trace.write_bytes(b"".join(write_perfetto(encode(drawn))))
    found = perfetto_screenshot(trace, picture, Shot(expand=".*", script=NAMES, settle_ms=500))
    assert found["errors"] == []
    names = found["value"]
    gpu = ["GPU 0", "stream 20", "stream 7"]
    assert [name.strip() for name in names[names.index(" node2") :]] == [
        "node2",
        *gpu,
        "node10",
        "GPU 0",
        "stream 7",
    ]
    assert picture.read_bytes().startswith(b"\x89PNG")


NASTY = "</style><script>document.title='owned'</script><img src=x onerror=alert(2)> \"'\\ 😀 \u202egnirts"


CONTRAST = """(() => {
  const luminance = (color) => {
    const parts = color.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255)
      .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const page = luminance(getComputedStyle(document.body).backgroundColor);
  return Math.min(...[...document.querySelectorAll('h1, p, a, td, th, caption')].map((element) => {
    const [dark, light] = [luminance(getComputedStyle(element).color), page].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  }));
})()"""


READ = """({ title: document.title, injected: document.querySelectorAll('img, script').length,
  rows: document.querySelectorAll('tbody tr').length, background: getComputedStyle(document.body).backgroundColor,
  links: [...document.links].map((link) => link.getAttribute('href')),
  texts: [...document.links].map((link) => link.textContent),
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth })"""


def describe(path: Path, title: str) -> SplitFile:
    return SplitFile(
        path=path,
        title=title,
        machines=(title,),
        ranks=(0, 1, 2, 9),
        steps=(10, 11),
        slice_count=1_234_567,
        event_count=2_000_000,
        size_bytes=12_345_678,
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360])
def test_the_page_is_readable_and_safe(scheme: str, width: int, tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    files = [describe(tmp_path / "a_b.pftrace", NASTY), describe(tmp_path / "node2.pftrace", "node2")]
    write_index(
        page, overview=describe(tmp_path.parent / "a b#?.pftrace", "all"), files=files, unit="machine"
    )
    steps: list[Step] = [["evaluate", READ], ["evaluate", CONTRAST]]
    visited = visit(page, steps, width=width, scheme=scheme, ready="document.readyState === 'complete'")
    assert (visited.errors, visited.requests) == ([], [])
    read, contrast = visited.values
    assert read["title"] == "Traces of a b#?.pftrace"
    assert (read["injected"], read["rows"]) == (0, 3)
    assert read["links"] == ["../a%20b%23%3F.pftrace", "a_b.pftrace", "node2.pftrace"]
    assert read["texts"][1].split() == clean(NASTY).split()
    assert read["wide"] <= 0
    assert (read["background"] == "rgb(255, 255, 255)") == (scheme == "light")
    assert contrast >= 4.5

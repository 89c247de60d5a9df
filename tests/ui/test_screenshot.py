"""The picture tool; what a picture shows is for people to judge."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys_pp.output.perfetto.trace import write_perfetto
from tests.importer.parts import PartMissingError
from tests.output.drawings import drawing, encode, mark_subtrack, slice_subtrack, slices
from tests.ui.screenshot import Shot, perfetto_screenshot

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
    try:
        found = perfetto_screenshot(trace, picture, Shot(expand=".*", script=NAMES, settle_ms=500))
    except PartMissingError as error:
        pytest.skip(str(error))
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

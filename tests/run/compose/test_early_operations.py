"""Operations that are encoded while ranges are projected: the bytes of a part are those of one after the other."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import polars as pl
import pytest

from fixtures.recording.bulk import Shape, write_bulk_report
from nsys_pp.arrays import threads
from nsys_pp.frames.part import Part, PartOptions, Track
from nsys_pp.run import early_operations
from nsys_pp.run.report import extract_report
from nsys_pp.write.perfetto.encoding import BlockList, Early, encode_drawing
from nsys_pp.write.trace.drawing import SAMPLES, CounterSubtrack
from tests.write.drawings import draw_subtracks

KERNELS = 3_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = Shape(threads=3, streams=8, domains=2, overlap=50, unique=0.1)
    folder = tmp_path_factory.mktemp("early")
    return write_bulk_report(folder / "bulk.sqlite", kernels=KERNELS, ranges=KERNELS, shape=shape)


def extract(path: Path, detail: str, *, with_tables: bool) -> tuple[Part, bytes]:
    sink = BytesIO()
    part = extract_report(path, PartOptions(detail=detail), sink, nsys=None, with_tables=with_tables)
    return part, sink.getvalue()


@pytest.mark.parametrize("with_tables", [False, True])
@pytest.mark.parametrize("detail", ["kernels", "cpu", "ranges"])
def test_the_bytes_are_the_same(
    path: Path, detail: str, with_tables: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, blocks = extract(path, detail, with_tables=with_tables)
    monkeypatch.setattr(threads, "_FEW_ROWS", 1)  # the part is built in a thread, too
    monkeypatch.setattr(early_operations, "_FEWEST", 1)
    monkeypatch.setattr(early_operations, "count_processors", lambda: 2)
    part, same = extract(path, detail, with_tables=with_tables)
    assert len(blocks) > 10 * KERNELS
    assert same == blocks
    assert part.encoded == whole.encoded
    assert all(part.frames[name].equals(frame) for name, frame in whole.frames.items())


def encode(*first_ns: int, names: str, early: Early | None = None) -> Early:
    """Encode a counter for each name, with samples from a time on."""
    subtracks = []
    for name, time_ns in zip(names, first_ns, strict=True):
        samples = pl.DataFrame([(time_ns, 1.0), (time_ns + 5, 2.0)], schema=SAMPLES, orient="row")
        subtracks.append(CounterSubtrack(track=("GPU 0", name), samples=samples))
    tracks = [Track(path=subtrack.track, name=subtrack.track[-1], rank=0) for subtrack in subtracks]
    sink = BlockList()
    encoded = encode_drawing(draw_subtracks(tracks, subtracks), sink, early=early)
    return Early(encoded=encoded, blocks=sink.blocks)


def test_tracks_are_in_order_wherever_they_were_encoded() -> None:
    whole = encode(100, 200, 300, names="abc")
    assert encode(200, names="b", early=encode(100, 300, names="ac")) == whole
    assert encode(names="", early=whole) == whole
    assert encode(100, 200, 300, names="abc", early=encode(names="")) == whole


def test_times_count_from_the_first_event() -> None:
    with pytest.raises(ValueError, match="before those that were encoded early"):
        encode(99, names="b", early=encode(100, names="a"))

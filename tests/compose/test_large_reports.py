"""Large reports are worked on piece by piece, with columns in files; all that is made of them stays the same."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import polars as pl
import pytest

from fixtures.recording.bulk import Shape, write_bulk_report
from nsys_pp.arrays import scratch
from nsys_pp.compose import report, report_memory
from nsys_pp.compose.report import extract_report, project
from nsys_pp.compose.report_memory import move_projections, move_report
from nsys_pp.compose.report_training import find_links
from nsys_pp.frames.groups import SURVEY_GROUPS
from nsys_pp.frames.part import Part, PartOptions
from nsys_pp.model import build_report
from nsys_pp.projection import pieces
from nsys_pp.read import read_report
from nsys_pp.write.perfetto import encoding
from nsys_pp.write.trace import slices, tracks

KERNELS = 30_000
_LIMITS = (
    (scratch, "_LARGE_BYTES", 4_096),
    (scratch, "_MOST_BYTES", 1 << 20),
    (pieces, "_PIECE_ROWS", 4_000),
    (encoding, "_LARGE_ROWS", 1_000),
    (encoding, "_HUGE_ROWS", 2_000),
    (slices, "_LARGE_ROWS", 1_000),
    (slices, "_LARGE_TRACK_ROWS", 1_000),
    (tracks, "_LARGE_ROWS", 1_000),
    (tracks, "_MANY_RANGES", 1_000),
    (report_memory, "MANY_ROWS", 1_000),
    (report, "MANY_ROWS", 1_000),
)

pytestmark = pytest.mark.skipif(not scratch._HAS_PAGES, reason="the system has no pages to drop")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = Shape(threads=3, streams=8, domains=2, overlap=10, unique=0.1)
    folder = tmp_path_factory.mktemp("large")
    return write_bulk_report(folder / "bulk.sqlite", kernels=KERNELS, ranges=KERNELS, shape=shape)


def as_large(patch: pytest.MonkeyPatch) -> None:
    for module, name, limit in _LIMITS:
        patch.setattr(module, name, limit)


def extract(path: Path, *, detail: str, with_tables: bool) -> tuple[Part, bytes]:
    sink = BytesIO()
    options = PartOptions(detail=detail)
    part = extract_report(path, options, sink, nsys=None, with_tables=with_tables, scratch=path.parent)
    return part, sink.getvalue()


@pytest.mark.parametrize(("detail", "with_tables"), [("kernels", False), ("cpu", False), ("kernels", True)])
def test_large_reports_have_the_same_parts(path: Path, detail: str, with_tables: bool) -> None:
    whole, blocks = extract(path, detail=detail, with_tables=with_tables)
    with pytest.MonkeyPatch.context() as patch:
        as_large(patch)
        part, blocks_of_pieces = extract(path, detail=detail, with_tables=with_tables)
    assert blocks_of_pieces == blocks
    assert part.encoded == whole.encoded
    assert part.frames.keys() == whole.frames.keys()
    assert all(part.frames[name].equals(frame) for name, frame in whole.frames.items())


def test_bytes_of_a_large_report_in_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and kinds alone, and what is null somewhere; the frames have 240 bytes a kernel."""
    as_large(monkeypatch)
    with scratch.open_scratch(None):
        in_files = scratch._scratch.get()
        assert in_files is not None
        raw = read_report(path, need=SURVEY_GROUPS | {"details"})
        moved = move_report(build_report(raw, is_last_use=True))
        projections = move_projections(project(moved, PartOptions(), find_links(moved)))
        frames = [getattr(moved, name) for name in moved.__struct_fields__]
        columns: dict[int, pl.Series] = {}
        for frame in [*(frame for frame in frames if isinstance(frame, pl.DataFrame)), projections]:
            for column in frame:
                values = column.to_physical()
                is_shared = values.dtype.is_numeric() and not column.null_count()
                if is_shared and in_files.has(values.to_numpy()):
                    continue
                if column.null_count() < len(column):
                    columns[values.to_numpy().ctypes.data if is_shared else id(column)] = column
        held = sum(column.estimated_size() for column in columns.values())
    assert held / KERNELS < 50

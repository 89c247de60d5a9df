"""Large reports are worked on piece by piece, with columns in files; all that is made of them stays the same."""

from __future__ import annotations

import tempfile
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import nsys_pp
from fixtures import simulate
from fixtures.recording.bulk import Shape, write_bulk_report
from nsys_pp.arrays import names as row_names
from nsys_pp.arrays import scratch, scratch_frames
from nsys_pp.commands import project as project_command
from nsys_pp.frames.names import StoredName
from nsys_pp.frames.part import Part, PartOptions
from nsys_pp.frames.raw import SURVEY_GROUPS
from nsys_pp.model import build_report
from nsys_pp.model import ranges as model_ranges
from nsys_pp.projection import pieces
from nsys_pp.read import read_report, sqlite_plain
from nsys_pp.run import report, report_memory
from nsys_pp.run.report import extract_report, project
from nsys_pp.run.report_memory import move_projections, move_report
from nsys_pp.run.report_training import find_links
from nsys_pp.training.report import hand_names, operators, range_names, rule_choice, vocabulary
from nsys_pp.write.perfetto import encoding, subtracks, wire
from nsys_pp.write.trace import slices, strings, tracks
from tests.conftest import find_shared_reports

KERNELS = 30_000
_LIMITS = (
    (scratch, "_LARGE_BYTES", 4_096),
    (scratch, "_MOST_BYTES", 1 << 20),
    (scratch, "_PAGED_BYTES", 4_096),
    (scratch, "_MOST_PAGED_BYTES", 1 << 20),
    (scratch_frames, "_BLOCK_ROWS", 1_000),
    (scratch_frames, "_FEWEST_MOVED", 100),
    (row_names, "WINDOW", 400),
    (row_names, "_MOST_NAMES", 100),
    (range_names, "WINDOW", 400),
    (operators, "WINDOW", 400),
    (vocabulary, "MOST_NAMES", 100),
    (rule_choice, "MOST_NAMES", 100),
    (hand_names, "_MOST_NAMES", 100),
    (strings, "_FEW_WORDS", 100),
    (subtracks, "_LARGE_BYTES", 4_096),
    (wire, "WINDOW", 400),
    (sqlite_plain, "_MANY_ROWS", 1_000),
    (sqlite_plain, "_MOST_ROWS", 1_000),
    (model_ranges, "_FEW_NAMES", 100),
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


def as_large(patch: pytest.MonkeyPatch, *, share: int = 1) -> None:
    """Have limits of rows so low that a report of some thousand rows is large; `share`: divided by it."""
    for module, name, limit in _LIMITS:
        patch.setattr(module, name, limit if "BYTES" in name else max(limit // share, 1))


def extract(path: Path, *, detail: str, with_tables: bool, **rules: Any) -> tuple[Part, bytes]:
    sink = BytesIO()
    options = PartOptions(detail=detail, **rules)
    part = extract_report(
        path, options, sink, nsys=None, with_tables=with_tables, scratch=Path(tempfile.gettempdir())
    )
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


def test_rules_of_the_user_are_matched_with_all_names_of_a_large_report(path: Path) -> None:
    rules = {
        "job_patterns": ("forward=op_1", r"leaf_\d of request 29\d+ .*", "no_such_name"),
        "step_patterns": (r"layer_(\d+)", "neither"),
    }
    whole, _ = extract(path, detail="jobs", with_tables=True, **rules)
    with pytest.MonkeyPatch.context() as patch:
        as_large(patch)
        part, _ = extract(path, detail="jobs", with_tables=True, **rules)
    assert len(whole.facts.unmatched) == 2
    assert part.facts == whole.facts
    assert part.frames["jobs"]["name"].n_unique() > 2
    assert all(part.frames[name].equals(frame) for name, frame in whole.frames.items())


@pytest.mark.few(8)
@pytest.mark.parametrize("share", [1, 10, 97])
@pytest.mark.parametrize("report_path", find_shared_reports(), ids=lambda path: path.stem)
def test_real_reports_have_the_same_parts(report_path: Path, share: int) -> None:
    """Ranges across blocks, operations without calls, graphs and events out of order, cut at many places."""
    check_parts(report_path, share=share)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "options", ["--pp 4 --dp 2 --machines 2 --steps 2", "--pp 2 --dp 2 --steps 3 --layers 2"]
)
def test_simulated_reports_have_the_same_parts(options: str, tmp_path: Path) -> None:
    simulate.main([str(tmp_path / "run"), *options.split(), "--no-truth"])
    for report_path in sorted((tmp_path / "run").rglob("*.sqlite"))[:2]:
        check_parts(report_path, share=31)


def check_parts(path: Path, *, share: int) -> None:
    for detail in ("kernels", "cpu"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            whole, blocks = extract(path, detail=detail, with_tables=True)
            with pytest.MonkeyPatch.context() as patch:
                as_large(patch, share=share)
                part, blocks_of_pieces = extract(path, detail=detail, with_tables=True)
        assert blocks_of_pieces == blocks
        assert part.encoded == whole.encoded
        assert part.facts == whole.facts
        assert all(part.frames[name].equals(frame) for name, frame in whole.frames.items())


def test_bytes_of_a_large_report_in_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds, and codes of names with nulls, alone; the frames have 240 bytes a kernel. Names are in files."""
    as_large(monkeypatch)
    with scratch.open_scratch(None):
        in_files = scratch._scratch.get()
        assert in_files is not None
        raw = read_report(path, need=SURVEY_GROUPS | {"details"})
        moved = move_report(build_report(raw, is_last_use=True))
        projections = move_projections(project(moved, PartOptions(), find_links(moved)))
        assert all(isinstance(frame["name"].dtype, StoredName) for frame in (moved.ranges, projections))
        frames = [getattr(moved, name) for name in moved.__struct_fields__]
        kept: dict[int, pl.Series] = {}
        for frame in [*(frame for frame in frames if isinstance(frame, pl.DataFrame)), projections]:
            for column in frame:
                values = column.to_physical()
                is_shared = values.dtype.is_numeric() and not column.null_count()
                if is_shared and in_files.has(values.to_numpy()):
                    continue
                if column.null_count() < len(column):
                    kept[values.to_numpy().ctypes.data if is_shared else id(column)] = column
        held = sum(column.estimated_size() for column in kept.values())
    assert held / KERNELS < 50


def test_names_of_a_large_report_are_decoded_window_by_window(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many names of their own ranges have."""
    decoded: list[int] = []
    decode = row_names.Texts.decode

    def record(texts: row_names.Texts, at: slice) -> pl.Series:
        decoded.append(len(found := decode(texts, at)))
        return found

    as_large(monkeypatch)
    monkeypatch.setattr(row_names.Texts, "decode", record)
    extract(path, detail="kernels", with_tables=True)
    names = read_report(path, need=SURVEY_GROUPS)["nvtx"]["text"].n_unique()
    assert names > 4 * row_names.WINDOW
    assert max(decoded) <= row_names.WINDOW
    assert sum(decoded) >= names


def test_bubbles_of_large_reports_have_the_same_hosts(tmp_path: Path) -> None:
    """They read the report once more, from columns in files."""
    options = "--pp 2 --dp 1 --steps 3 --layers 2"
    simulate.main([str(tmp_path / "run"), *options.split(), "--no-truth"])
    report_path = min((tmp_path / "run").rglob("*.sqlite"))
    whole, _ = extract(report_path, detail="jobs", with_tables=True)
    with pytest.MonkeyPatch.context() as patch:
        as_large(patch, share=7)
        part, _ = extract(report_path, detail="jobs", with_tables=True)
    assert len(whole.frames["bubble_hosts"])
    assert part.frames["bubble_hosts"].equals(whole.frames["bubble_hosts"])


def test_large_reports_have_the_same_projections(path: Path, tmp_path: Path) -> None:
    whole = nsys_pp.project([path]).ranges
    with pytest.MonkeyPatch.context() as patch:
        as_large(patch)
        patch.setattr(project_command, "_LARGE_COLUMN_BYTES", 4_096)
        patch.setattr(project_command, "_MANY_RANGES", 1_000)
        found = nsys_pp.project([path]).ranges
        with scratch.limit_pages():
            found.write_parquet(tmp_path / "ranges.parquet")
    assert found.equals(whole)
    assert found.schema == whole.schema
    assert pl.read_parquet(tmp_path / "ranges.parquet").equals(whole)

"""Bytes that the stages of one report hold for each kernel with its call and range: they decide the largest report."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pytest

from fixtures.recording.bulk import Shape, write_bulk_report
from nsys_pp.frames.part import PartOptions
from nsys_pp.frames.raw import SURVEY_GROUPS, RawReport
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from nsys_pp.run.report import project
from nsys_pp.run.report_training import find_links
from nsys_pp.run.view import view_report
from nsys_pp.write.trace.drawing import ArrangedSlices, SliceSubtrack
from nsys_pp.write.trace.tracks import draw_report

KERNELS = 30_000  # more rows than tables that are queried


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = Shape(threads=3, streams=8, domains=2, overlap=10, unique=0.1)
    folder = tmp_path_factory.mktemp("memory")
    return write_bulk_report(folder / "bulk.sqlite", kernels=KERNELS, ranges=KERNELS, shape=shape)


def read(path: Path) -> RawReport:
    return read_report(path, need=SURVEY_GROUPS | {"details"})


def bytes_per_kernel(frames: Iterable[pl.DataFrame]) -> float:
    """Return the bytes of all columns with values, each once however many frames share it."""
    columns: dict[int, pl.Series] = {}
    for frame in frames:
        for column in frame:
            if column.null_count() == len(column):
                continue  # held as one null
            is_shared = column.to_physical().dtype.is_numeric() and not column.null_count()
            address = column.to_physical().to_numpy().ctypes.data if is_shared else id(column)
            columns[address] = column  # alive, so that no other column has its address
    return sum(column.estimated_size() for column in columns.values()) / KERNELS


def test_raw_frames(path: Path) -> None:
    raw = read(path)
    assert bytes_per_kernel(raw.frames.values()) < 205
    assert all(column.n_chunks() == 1 for column in raw["kernels"])


def test_texts_hold_their_own_bytes_alone(path: Path) -> None:
    """Not the pages of the file that they were cut from."""
    text = read(path)["nvtx"]["text"]
    array = text.to_arrow()
    held = sum(
        buffer.size for chunk in getattr(array, "chunks", [array]) for buffer in chunk.buffers() if buffer
    )
    assert held < 3 * text.str.len_bytes().sum() + 32 * len(text)


def test_the_frames_of_a_report(path: Path) -> None:
    raw = read(path)
    report = build_report(raw, is_last_use=True)
    assert bytes_per_kernel(raw.frames.values()) < 5  # they were freed
    frames = (getattr(report, name) for name in report.__struct_fields__)
    held = bytes_per_kernel(frame for frame in frames if isinstance(frame, pl.DataFrame))
    assert held + report.op_details.row.nbytes / KERNELS < 158
    assert len(report.op_details.distinct) < KERNELS / 10


def test_projections_and_drawings(path: Path) -> None:
    report, options = build_report(read(path), is_last_use=True), PartOptions()
    projections = project(report, options, find_links(report, options.scope))
    assert bytes_per_kernel([report.ranges, projections]) < 126
    view = view_report(report, projections, detail="kernels", flows=False)
    drawing = draw_report(view, detail="kernels")
    arranged = [one.content for one in drawing.subtracks if isinstance(one, SliceSubtrack)]
    assert all(isinstance(one, ArrangedSlices) for one in arranged), "a copy of the rows"
    slices = [one for one in arranged if isinstance(one, ArrangedSlices)]
    assert sum(len(one.rows) for one in slices) > 1.9 * KERNELS
    sources = {id(one.source): one.source for one in slices}
    assert len(sources) <= 3  # ranges, communication, streams
    assert bytes_per_kernel(sources.values()) < 155

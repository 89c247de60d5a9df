"""Registries of output formats: of jobs, and of traces."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import pytest

from nsys_pp.errors import MissingDataError, OutputError
from nsys_pp.frames.clock import Clock
from nsys_pp.frames.training import Training
from nsys_pp.output.formats import (
    EXPORTERS,
    TRACE_FORMATS,
    Exporter,
    ExportOptions,
    ExportSource,
    file_writer,
    find_exporter,
    infer_trace_format,
)
from tests.training.expected_training import PIPELINE, expected_training

TRAINING = expected_training()


def write_lines(training: Training, stream: BinaryIO, options: ExportOptions) -> None:
    for kind in training.jobs["kind"]:
        stream.write(f"{kind}\n".encode())


LINES = Exporter(name="lines", description="one line per job", write=file_writer(write_lines))


def test_a_format_is_one_function(tmp_path: Path) -> None:
    result = LINES.write(TRAINING, tmp_path / "jobs.txt", ExportOptions())
    assert [(file.path, file.row_count) for file in result.files] == [
        (tmp_path / "jobs.txt", TRAINING.jobs.height)
    ]
    assert len((tmp_path / "jobs.txt").read_text().splitlines()) == TRAINING.jobs.height


def test_a_file_is_replaced_only_with_force(tmp_path: Path) -> None:
    output = tmp_path / "jobs.txt"
    output.write_text("mine")
    with pytest.raises(OutputError, match="exists"):
        LINES.check(output, [], False)
    with pytest.raises(OutputError, match="exists"):
        LINES.write(TRAINING, output, ExportOptions())
    LINES.check(output, [], True)
    LINES.write(TRAINING, output, ExportOptions(force=True))
    assert output.read_text() != "mine"


def test_suffixes_select_one_format() -> None:
    suffixes = [suffix for exporter in EXPORTERS.values() for suffix in exporter.suffixes]
    assert len({*suffixes}) == len(suffixes)
    for exporter in EXPORTERS.values():
        for suffix in exporter.suffixes:
            assert find_exporter(Path(f"run{suffix}")) is exporter
    assert find_exporter(Path("run")) is None


@pytest.mark.parametrize("exporter", EXPORTERS.values(), ids=lambda exporter: exporter.name)
def test_all_formats_write_into_a_new_place(tmp_path: Path, exporter: Exporter) -> None:
    source = ExportSource(
        path=PIPELINE / "node2" / "rank0.sqlite",
        report=2,
        clock=Clock.fixed(TRAINING.zero_ns),
        window_ns=(0, 1 << 62),
    )
    output = tmp_path / f"run{exporter.suffixes[0]}" if exporter.suffixes else tmp_path / "run"
    exporter.check(output, [source.path], False)
    result = exporter.write(TRAINING, output, ExportOptions(sources=(source,)))
    assert result.files
    for file in result.files:
        assert file.path.stat().st_size
        assert file.path == output or (exporter.is_folder and file.path.is_relative_to(output))


def test_a_gpu_that_no_machine_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="no machine has a GPU 77"):
        EXPORTERS["paddle"].write(TRAINING, tmp_path / "run", ExportOptions(devices=(77,)))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("run.pftrace", "perfetto"),
        ("run", "perfetto"),
        ("run.json", "chrome"),
        ("run.json.gz", "chrome"),
        ("run.gz", "perfetto"),
    ],
)
def test_the_name_of_a_file_selects_its_format(name: str, expected: str) -> None:
    assert infer_trace_format(Path(name)) is TRACE_FORMATS[expected]


def test_a_format_has_one_writer() -> None:
    for trace_format in TRACE_FORMATS.values():
        assert (trace_format.merge_encoded is None) != (trace_format.encode_drawings is None)

"""Output formats of jobs, and of traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys_pp.errors import MissingDataError
from nsys_pp.frames.clock import Clock
from nsys_pp.output.formats import (
    EXPORTERS,
    Exporter,
    ExportOptions,
    ExportSource,
    find_exporter,
    infer_trace_format,
)
from tests.training.expected_training import PIPELINE, expected_training

TRAINING = expected_training()


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
    exporter.check(output, inputs=[source.path], force=False)
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
    assert infer_trace_format(Path(name)) == expected

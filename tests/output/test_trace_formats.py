"""The registry of trace formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys_pp.output.trace_formats import TRACE_FORMATS, infer_trace_format


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

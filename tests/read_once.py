"""Reports that many tests analyse are read once in a process of tests."""

from __future__ import annotations

import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from nsys_pp.compose import inputs
from nsys_pp.compose.report import survey_report
from nsys_pp.frames.part import Part


@pytest.fixture
def reports_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what is read of a report for other tests, for those about what is made of it: tables, charts and gates."""
    monkeypatch.setattr(inputs, "survey_report", _survey)


def _survey(path: Path, options: Any, *, nsys: str | None, **asked: bool) -> Part:
    """Read a report, or return what was read of it as long as the file is the same; warnings are emitted again."""
    state = path.stat()
    key = (path, state.st_mtime_ns, state.st_size, state.st_ino, options, nsys, tuple(sorted(asked.items())))
    part, caught = _survey_once(*key)
    for warning in caught:
        warnings.warn(warning, stacklevel=2)
    return part


@lru_cache(maxsize=64)
def _survey_once(
    path: Path, _changed: int, _size: int, _inode: int, options: Any, nsys: str | None, asked: Any
) -> tuple[Part, list[Any]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        part = survey_report(path, options, nsys=nsys, **dict(asked))
    return part, [warning.message for warning in caught]

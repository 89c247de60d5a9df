from __future__ import annotations

from pathlib import Path

import pytest

from nsys_pp.commands.compare import RunName, parse_run_name
from nsys_pp.errors import OptionError


def parse(run: str, steps: str | None = None) -> RunName:
    return parse_run_name(run, steps=steps, option="steps_a")


@pytest.mark.parametrize(
    ("text", "path", "window"),
    [
        ("run", "run", None),
        ("run:10:14", "run", (10, 14)),
        ("run::14", "run", (None, 14)),
        ("run:10:", "run", (10, None)),
        ("a/b:c/d:1:2", "a/b:c/d", (1, 2)),
        ("2026-11-24T12:30:55", "2026-11-24T12:30:55", None),
        ("node*/r.sqlite:3:5", "node*/r.sqlite", (3, 5)),
    ],
)
def test_steps_are_at_the_end(
    text: str,
    path: str,
    window: tuple[int | None, int | None] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "2026-11-24T12:30:55").mkdir()
    assert parse(text) == RunName(inputs=path, window=window)


def test_a_path_that_exists_keeps_its_colons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run", "run:10:14", "2026-01-01T10:20:30"):
        (tmp_path / name).mkdir()
    assert parse("run:10:14") == RunName(inputs="run:10:14")
    assert parse("2026-01-01T10:20:30") == RunName(inputs="2026-01-01T10:20:30")
    assert parse("2026-01-01T10:20:30:5:7") == RunName(inputs="2026-01-01T10:20:30", window=(5, 7))
    assert parse("run:10:14:2:3") == RunName(inputs="run:10:14", window=(2, 3))
    assert parse("run:10:*") == RunName(inputs="run:10:*"), "a pattern with matches"
    assert parse("run", "10:14") == RunName(inputs="run", window=(10, 14))


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    with pytest.raises(OptionError, match="use `run:10:11`"):
        parse("run:10")
    with pytest.raises(OptionError, match="given twice"):
        parse("run:10:14", "1:2")
    with pytest.raises(OptionError, match="empty steps"):
        parse("run:14:10")

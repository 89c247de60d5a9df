"""The library: its names, short results, one form of its keywords, and one way through inputs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nsys_pp
from nsys_pp.cli import main
from nsys_pp.commands.compare import RunName, parse_run_name
from nsys_pp.errors import OptionError
from tests.cli.calls import PIPELINE

COMMANDS: dict[str, Callable[..., Any]] = {
    "align": nsys_pp.align,
    "info": nsys_pp.info,
    "pipeline": nsys_pp.pipeline,
    "project": nsys_pp.project,
    "summary": nsys_pp.summary,
}
FRAMES: dict[str, Callable[[Any], Any]] = {
    "info": lambda result: [report.contents.gpus.to_dicts() for report in result.reports],
    "project": lambda result: result.ranges.to_dicts(),
    "align": lambda result: result.clocks.to_dicts(),
}


@pytest.mark.filterwarnings("ignore:.*have no report:UserWarning")
def test_all_names_exist() -> None:
    assert len(nsys_pp.__all__) <= 50  # about 20 functions, their results and options
    for name in nsys_pp.__all__:
        assert getattr(nsys_pp, name) is not None
    assert {*main.commands} - {*nsys_pp.__all__} == {"open", "recipe"}  # docs/library.md says so
    with pytest.raises(AttributeError, match="no attribute `merged`"):
        nsys_pp.merged  # noqa: B018


@pytest.mark.filterwarnings("ignore:.*have no report:UserWarning")
def test_importing_the_library_imports_no_polars() -> None:
    code = "import sys, nsys_pp, nsys_pp.errors, nsys_pp.capture; assert 'polars' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.filterwarnings("ignore:.*have no report:UserWarning")
@pytest.mark.parametrize("command", COMMANDS)
def test_broken_reports_are_skipped(command: str, tmp_path: Path) -> None:
    for rank in (0, 1):
        shutil.copy(PIPELINE / "node2" / f"rank{rank}.sqlite", tmp_path)
    broken = tmp_path / "rank1.sqlite"
    broken.write_bytes(broken.read_bytes()[:20_000])
    with pytest.raises(nsys_pp.NsysPPError, match=r"rank1\.sqlite` is truncated"):
        COMMANDS[command](tmp_path)
    assert [path for path, _ in COMMANDS[command](tmp_path, keep_going=True).skipped] == [broken]


@pytest.mark.filterwarnings("ignore:.*have no report:UserWarning")
@pytest.mark.few(1)
@pytest.mark.parametrize("command", FRAMES)
def test_processes_give_equal_results(command: str) -> None:
    alone, spawned = (COMMANDS[command](PIPELINE / "node2", processes=count) for count in (None, 2))
    assert FRAMES[command](alone) == FRAMES[command](spawned)


@pytest.mark.filterwarnings("ignore:.*have no report:UserWarning")
@pytest.mark.parametrize("command", COMMANDS)
def test_inputs_that_never_come_are_skipped(command: str) -> None:
    absent = str(PIPELINE / "node77*.sqlite")
    result = COMMANDS[command]([PIPELINE / "node2", absent], wait_for=3, wait_timeout_s=0.0, keep_going=True)
    assert [str(path) for path, _ in result.skipped] == [absent]
    assert "matches no report after 0s" in result.skipped[0][1].message


@pytest.mark.filterwarnings("ignore:.*have no report:UserWarning")
def test_texts_and_values_are_equal() -> None:
    first = nsys_pp.pipeline(str(PIPELINE), layout="pp=4", steps="11:12").training
    second = nsys_pp.pipeline([PIPELINE], layout="pp=4", steps=(11, 12)).training
    assert first.jobs.equals(second.jobs)
    assert first.steps["step"].unique().to_list() == [11]


@pytest.mark.filterwarnings("ignore:.*have no report:UserWarning")
@pytest.mark.parametrize(
    "options",
    [
        {"layout": "pp=four"},
        {"steps": "12"},
        {"steps": (12, 11)},
        {"rank_from": "("},
        {"clock": "sundial"},
        {"schedule": "someday"},
        {"job_patterns": ["("]},
        {"processes": -1},
        {"processes": 2, "dask_scheduler": "tcp://x:1"},
    ],
    ids=str,
)
def test_invalid_values_are_refused_before_work(options: dict[str, Any]) -> None:
    with pytest.raises(nsys_pp.OptionError):
        nsys_pp.pipeline(PIPELINE / "none.sqlite", **options)


@pytest.mark.filterwarnings("ignore:.*have no report:UserWarning")
def test_unknown_keywords_are_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword `layuot`; did you mean `layout`"):
        nsys_pp.pipeline(PIPELINE, layuot="pp=4")  # type: ignore[call-arg]


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
    assert parse(text) == RunName(inputs=(path,), window=window)


@pytest.mark.parametrize(
    ("text", "steps", "path", "window"),
    [
        ("run:10:14", None, "run:10:14", None),
        ("2026-01-01T10:20:30", None, "2026-01-01T10:20:30", None),
        ("2026-01-01T10:20:30:5:7", None, "2026-01-01T10:20:30", (5, 7)),
        ("run:10:14:2:3", None, "run:10:14", (2, 3)),
        ("run:10:*", None, "run:10:*", None),  # a pattern with matches
        ("run", "10:14", "run", (10, 14)),
    ],
)
def test_a_path_that_exists_keeps_its_colons(
    text: str,
    steps: str | None,
    path: str,
    window: tuple[int, int] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run", "run:10:14", "2026-01-01T10:20:30"):
        (tmp_path / name).mkdir()
    assert parse(text, steps) == RunName(inputs=(path,), window=window)


@pytest.mark.parametrize(
    ("run", "steps", "words"),
    [
        ("run:10", None, "use `run:10:11`"),
        ("run:10:14", "1:2", "given twice"),
        ("run:14:10", None, "empty steps"),
    ],
)
def test_refusals(
    run: str, steps: str | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    with pytest.raises(OptionError, match=words):
        parse(run, steps)

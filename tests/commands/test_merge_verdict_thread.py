"""Verdict of a merged run: the same from another thread, with its errors."""

from __future__ import annotations

from pathlib import Path

import pytest

import nsys_pp
from fixtures import simulate
from nsys_pp.commands import merge_verdict
from nsys_pp.frames.training import Training
from nsys_pp.frames.verdict import Verdict


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    simulate.main([str(folder), "--steps", "2", "--no-truth"])
    return folder


def test_another_thread_builds_the_same(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = nsys_pp.merge(run, tmp_path / "a.pftrace").verdict
    assert expected.lines
    trained = []
    build = merge_verdict._build

    def note(training: Training) -> Verdict:
        trained.append(training)
        return build(training)

    monkeypatch.setattr(merge_verdict, "_FEWEST", 0)
    monkeypatch.setattr(merge_verdict, "count_processors", lambda: 2)
    monkeypatch.setattr(merge_verdict, "_build", note)
    assert nsys_pp.merge(run, tmp_path / "b.pftrace").verdict == expected
    assert len(trained) == 1


def test_its_error_is_raised(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(training: Training) -> Verdict:
        raise ZeroDivisionError

    monkeypatch.setattr(merge_verdict, "_FEWEST", 0)
    monkeypatch.setattr(merge_verdict, "count_processors", lambda: 2)
    monkeypatch.setattr(merge_verdict, "_build", fail)
    with pytest.raises(ZeroDivisionError):
        nsys_pp.merge(run, tmp_path / "a.pftrace")

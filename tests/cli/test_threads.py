"""Threads of libraries: one where all inputs are small, unless the user chose."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.calls import environment
from tests.patience import PATIENCE_S

_LIST = (
    "import os, sys; from nsys_pp.cli.threads import limit_threads; limit_threads(sys.argv[1:]);"
    " print(*(os.environ.get(name) for name in ('POLARS_MAX_THREADS', 'OPENBLAS_NUM_THREADS')))"
)


def _threads(*inputs: str | Path, **variables: str) -> list[str]:
    environ = environment(**variables)
    for name in {"POLARS_MAX_THREADS", "OPENBLAS_NUM_THREADS"} - variables.keys():
        environ.pop(name, None)
    command = [sys.executable, "-c", _LIST, *map(str, inputs)]
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    return done.stdout.split()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for name in ("node1/a.sqlite", "node2/b.sqlite"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"small")
    return tmp_path


def test_small_inputs_need_one_thread(run: Path) -> None:
    file = run / "node1" / "a.sqlite"
    for inputs in ([run], [file], [run / "node*" / "*.sqlite"], [run / "absent"]):
        assert _threads(*inputs) == ["1", "1"], inputs
    assert _threads(run, POLARS_MAX_THREADS="7") == ["7", "1"]


def test_frames_of_many_parts_have_two_threads(tmp_path: Path) -> None:
    for number in range(5):
        with (tmp_path / f"{number}.nspart").open("wb") as file:
            file.truncate(1 << 20)
    assert _threads(tmp_path) == ["2", "1"]
    assert _threads(tmp_path / "1.nspart", tmp_path / "2.nspart") == ["1", "1"]
    assert _threads(tmp_path, POLARS_MAX_THREADS="1") == ["1", "1"]


def test_one_large_input_leaves_the_number_of_threads_to_the_libraries(run: Path) -> None:
    with (run / "node2" / "large.sqlite").open("wb") as file:
        file.truncate(40 << 20)
    for inputs in ([run], [run / "node1", run / "node2" / "large.sqlite"], [run / "node*" / "*"]):
        assert _threads(*inputs) == ["None", "None"], inputs
    assert _threads(run / "node1") == ["1", "1"]

"""Scripts that use processes: their end by SIGTERM, and a script that its processes run again."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fixtures.recording.bulk import write_bulk_report
from tests.cli.calls import environment
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]


def read_example() -> str:
    page = (ROOT / "docs" / "library.md").read_text()
    return page.split("<!-- ended scripts -->\n```python\n")[1].split("```")[0]


def start_script(text: str, folder: Path) -> subprocess.Popen[str]:
    (folder / "script.py").write_text(text)
    return subprocess.Popen(
        [sys.executable, "script.py"], cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True
    )


def test_a_script_that_sigterm_ends_leaves_nothing(tmp_path: Path) -> None:
    """The program of docs/library.md."""
    if sys.platform == "win32":
        pytest.skip("no SIGTERM")
    (tmp_path / "reports").mkdir()
    for number in range(3):
        write_bulk_report(tmp_path / "reports" / f"{number}.sqlite", kernels=20_000 + number, ranges=20_000)
    with start_script(read_example(), tmp_path) as script:
        until = time.monotonic() + PATIENCE_S
        while not any(tmp_path.glob(".run.*")):
            assert script.poll() is None, script.communicate()
            assert time.monotonic() < until
            time.sleep(0.005)
        script.send_signal(signal.SIGTERM)
        _, stderr = script.communicate(timeout=PATIENCE_S)
    assert script.returncode == 143, stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reports", "script.py"]


def test_a_script_that_its_processes_run_again(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "fixtures" / "pipeline" / "node2", tmp_path / "reports")
    text = "import nsys_pp\nnsys_pp.merge('reports', 'run.pftrace', processes=2)\n"
    with start_script(text, tmp_path) as script:
        _, stderr = script.communicate(timeout=PATIENCE_S)
    assert script.returncode == 1
    assert "if __name__ == '__main__':" in stderr  # Python's words, of the processes
    last = stderr.strip().splitlines()[-1]
    assert last.endswith(
        "was gone with status 1, and so was a second one that ran alone: see its error on stderr"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reports", "script.py"]

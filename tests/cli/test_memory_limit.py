"""`--memory` holds for a whole command, also after the reports: one sentence, and nothing half-written."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nsys_pp.errors import NsysPPError
from nsys_pp.executors.limits import Limits, enforced_by_pool, guard_memory
from tests.cli.calls import environment, run
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured on Linux only")
PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"
_MB = 1_000_000

# What is made of all reports needs much: in steps that hear a signal, or in a call of a library that hears none.
_PATCH = """
import sys, time, zlib, os
from nsys_pp.run import trace
before = trace.TraceBuilder.write

def write(self, shown, **options):
    held = [b"x" * (1 << 20) for _ in range(900)]
    if {is_deaf}:
        zlib.compress(os.urandom(1 << 25) * 24, 9)  # half a minute without the interpreter
    else:
        time.sleep(60)
    return before(self, shown, **options)

trace.TraceBuilder.write = write
from nsys_pp.cli import main
main(prog_name="nsys-pp")
"""


@pytest.mark.parametrize("is_deaf", [False, True])
def test_what_is_made_of_the_reports_counts(tmp_path: Path, *, is_deaf: bool) -> None:
    output = tmp_path / "run.pftrace"
    output.write_bytes(b"earlier")
    code = _PATCH.format(is_deaf=is_deaf)
    line = [sys.executable, "-c", code, "merge", str(PIPELINE), "-o", str(output), "--force"]
    done = subprocess.run(
        [*line, "--memory", "900MB"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    lines = [text for text in done.stderr.splitlines() if text and not text.startswith("note:")]
    assert len(lines) == 2
    assert lines[0].startswith("Error: the run needs more memory than `--memory` allows: it was stopped at ")
    assert lines[0].endswith(" GB, and 0.90 GB are allowed")
    assert lines[1].startswith("hint: raise `--memory`")
    assert [path.name for path in tmp_path.iterdir()] == ["run.pftrace"]
    assert output.read_bytes() == b"earlier"


def test_a_limit_below_the_program_itself(tmp_path: Path) -> None:
    quiet = environment(PYTHONWARNINGS="error,ignore::ResourceWarning")  # of an interrupted import
    done = run("merge", PIPELINE, "-o", tmp_path / "run.pftrace", "--memory", "20MB", env=quiet)
    assert done.code == 1
    assert "more memory than `--memory` allows: it was stopped at" in done.stderr
    assert "Traceback" not in done.stderr
    assert not any(tmp_path.iterdir())


def test_a_pool_names_no_report_for_the_memory_of_this_process() -> None:
    with pytest.raises(NsysPPError, match="the run needs more memory"):
        Limits(memory_bytes=1).check_own_memory()
    Limits(memory_bytes=1 << 50).check_own_memory()
    Limits().check_own_memory()


def test_the_guard_waits_for_a_pool() -> None:
    stopped = threading.Event()
    ended: list[NsysPPError] = []
    with guard_memory(1, stop=lambda _: stopped.set(), end=ended.append):
        with enforced_by_pool():
            assert not stopped.wait(1)
        assert stopped.wait(PATIENCE_S)
    assert not ended
    with guard_memory(None, stop=lambda _: os.abort(), end=lambda _: os.abort()):
        assert threading.active_count() < 100

"""End of the process of the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.calls import environment
from tests.patience import PATIENCE_S

_AROUND = """
import atexit, sys, threading, time
def say(text):
    print(text, file=sys.stderr)
atexit.register(say, "cleaned up")
def work():
    time.sleep(0.2)
    say("worked")
{start}
from nsys_pp.cli.program import run
sys.argv = ["nsys-pp", *sys.argv[1:]]
run()
"""


def run(*words: str, start: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _AROUND.format(start=start), *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize(("words", "status"), [(["--version"], 0), (["info", "/none"], 1), (["unknown"], 2)])
def test_the_process_has_the_status_of_the_command_and_cleans_up_once(words: list[str], status: int) -> None:
    done = run(*words)
    assert done.returncode == status
    assert done.stderr.count("cleaned up") == 1
    assert bool(done.stdout) == (status == 0)


def test_the_process_waits_for_threads() -> None:
    done = run("--version", start="threading.Thread(target=work).start()")
    assert done.returncode == 0
    assert done.stderr == "worked\ncleaned up\n"


def test_a_profiler_sees_the_end() -> None:
    done = run(
        "--version",
        start="import cProfile; profile = cProfile.Profile(); profile.enable()\natexit.register(lambda: say(len(profile.getstats()) > 0))",
    )
    assert done.returncode == 0
    assert done.stderr == "True\ncleaned up\n"


def test_an_output_that_cannot_be_written_has_a_status() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "nsys_pp", "--version"], env=environment(), stdout=full, check=False
        )
    assert done.returncode != 0

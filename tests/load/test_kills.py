"""Kills at random points of a run: the output is the old one or the new one, and the next run cleans up."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.calls import command_line, environment, run
from tests.draws import count_draws

PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"
_OLD = b"the output of an earlier run"


@pytest.mark.draws
@pytest.mark.parametrize("command", ["merge", "merge --processes 2", "scrub"])
def test_a_kill_at_any_point_leaves_whole_outputs(command: str, tmp_path: Path) -> None:
    report = PIPELINE / "node2" / "rank0.sqlite"
    inputs = [report] if command == "scrub" else [PIPELINE]
    folder = tmp_path / "out"
    folder.mkdir()
    output = folder / ("clean.sqlite" if command == "scrub" else "run.pftrace")
    line = command_line(*command.split(), *inputs, "-o", output, "--force")
    began = time.monotonic()
    assert run(*line[3:], before=[], env=environment()).code == 0
    whole_s, expected = time.monotonic() - began, output.read_bytes()
    rng = random.Random(len(command))
    killed = 0
    delays_s = [rng.uniform(0.0, 1.0) * whole_s for _ in range(count_draws(12, least=4))]
    for delay_s in [0.0, *delays_s]:  # the first is killed on any machine, while it starts
        output.write_bytes(_OLD)
        process = subprocess.Popen(
            line, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(delay_s)
        process.kill()
        killed += process.wait() != 0
        is_whole = output.read_bytes() in (_OLD, expected)
        assert is_whole
    assert killed
    assert run(*line[3:], before=[], env=environment()).code == 0
    assert output.read_bytes() == expected
    assert [path.name for path in folder.iterdir()] == [output.name]
    shutil.rmtree(folder)

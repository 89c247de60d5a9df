"""Clocks of GPUs in the verdict: simulated runs in which a clock falls with the speed of a rank, and controls in which it does not."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

import nsys_pp
from fixtures.recording.metrics import add_clocks
from fixtures.simulate import main as simulate
from nsys_pp.frames.verdict import Finding

_RUN = "--steps 6 --micro-batches 4 --jitter 0.01 --layers 2 --no-truth"
_USUAL = 1_700.0
_END_NS = 10**12
Clock = Callable[[int, int], float]  # of a rank in a step, in MHz


def run(folder: Path, options: str, seed: int) -> Path:
    simulate([*f"{_RUN} {options} --seed {seed}".split(), str(folder)])
    return folder


def record_clocks(folder: Path, clock: Clock) -> None:
    """Add the clock of its GPU to the report of each rank: it changes where the steps begin on the host."""
    for path in sorted(folder.rglob("rank*.sqlite")):
        rank = int(path.stem.removeprefix("rank"))
        with closing(sqlite3.connect(path)) as connection:
            steps = connection.execute(
                "SELECT n.start, coalesce(n.text, s.value) FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId"
                " WHERE coalesce(n.text, s.value) LIKE 'step\\_%' ESCAPE '\\' ORDER BY n.start"
            ).fetchall()
            [(gpu, last)] = connection.execute(
                "SELECT max(deviceId), max(end) FROM CUPTI_ACTIVITY_KIND_KERNEL"
            ).fetchall()
        knots = [(0, _USUAL), *((start, clock(rank, int(name.split("_")[1]))) for start, name in steps)]
        add_clocks(path, {gpu: [*knots, (last + 1_000_000, _USUAL)]}, seed=rank)


def of_kind(folder: Path, kind: str) -> list[Finding]:
    return [found for found in nsys_pp.pipeline(folder).verdict.findings if found.kind == kind]


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(5))
def test_a_rank_that_is_slow_as_its_clock_fell_has_this_cause(tmp_path: Path, seed: int) -> None:
    rng = Random(f"clock {seed}")
    rank, factor, since = rng.randrange(8), rng.uniform(1.15, 1.5), rng.choice([None, 12, 13])
    options = f"--dp 2 --slow-rank {rank}={factor:.3f}" + (f" --slow-since {since}" if since else "")
    folder = run(tmp_path, options, rng.randrange(10**6))
    record_clocks(folder, lambda of, step: _USUAL / factor if of == rank and step >= (since or 0) else _USUAL)
    [found] = of_kind(folder, "straggler")
    assert found.label == f"rank {rank}", found.line
    assert f", as its SM clock was {_USUAL / factor:,.0f} of 1,700 MHz" in _round(found.line, _USUAL / factor)
    assert "guess" not in found.text


def _round(line: str, value: float) -> str:
    """Replace a clock within 2 % of a value, as means of samples are, by the value."""
    words = line.split(" ")
    for at, word in enumerate(words):
        number = word.replace(",", "")
        if number.isdigit() and words[at + 1 : at + 2] in (["of"], ["MHz"]):
            for exact in (value, _USUAL):
                if abs(int(number) / exact - 1) < 0.02:
                    words[at] = f"{exact:,.0f}"
    return " ".join(words)


def test_parts_have_the_same_cause(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", "--dp 2 --slow-rank 3=1.3", 60_501)
    record_clocks(folder, lambda rank, step: _USUAL / 1.3 if rank == 3 else _USUAL)
    nsys_pp.extract(folder, tmp_path / "parts")
    lines = nsys_pp.pipeline(folder).verdict.lines
    assert "as its SM clock was" in lines[0]
    assert nsys_pp.pipeline(tmp_path / "parts").verdict.lines == lines


@pytest.mark.parametrize(
    ("name", "clock"),
    [
        ("another rank", lambda rank, step: 1_200.0 if rank == 6 else _USUAL),
        ("all ranks alike", lambda rank, step: 1_200.0),
        ("before it is slow, too", lambda rank, step: 1_200.0 if rank == 3 else _USUAL),
        ("steps in which it is not slow", lambda rank, step: 1_200.0 if rank == 3 and step < 13 else _USUAL),
    ],
)
def test_a_clock_that_falls_elsewhere_is_not_blamed(tmp_path: Path, name: str, clock: Clock) -> None:
    folder = run(tmp_path, "--dp 2 --slow-rank 3=1.3 --slow-since 13", 60_502)
    record_clocks(folder, clock)
    found = nsys_pp.pipeline(folder).verdict.findings
    assert found[0].label == "rank 3", name
    assert not [finding.line for finding in found if "clock was" in finding.text], name
    assert not [finding for finding in found if finding.kind == "gpu_clock"]


def test_in_a_healthy_run_a_low_clock_is_no_finding(tmp_path: Path) -> None:
    folder = run(tmp_path, "--dp 2", 60_503)
    record_clocks(folder, lambda rank, step: 1_200.0 if rank == 3 else _USUAL)
    assert not [found for found in nsys_pp.pipeline(folder).verdict.findings if "clock was" in found.text]


def test_a_clock_that_does_not_fit_the_excess_is_a_guess(tmp_path: Path) -> None:
    folder = run(tmp_path, "--dp 2 --slow-rank 3=1.8", 60_504)
    record_clocks(folder, lambda rank, step: 1_500.0 if rank == 3 else _USUAL)
    [found] = of_kind(folder, "straggler")
    assert "; a guess at why: its SM clock was 1,500 of 1,700 MHz" in _round(found.line, 1_500.0)


def test_clocks_of_all_gpus_that_fall_are_a_finding(tmp_path: Path) -> None:
    folder = run(tmp_path, "--dp 2 --slow-rank=-1=1.25 --slow-since 13", 60_505)
    record_clocks(folder, lambda rank, step: _USUAL / 1.25 if step >= 13 else _USUAL)
    [found] = of_kind(folder, "gpu_clock")
    assert (found.confidence, found.since_step) == ("likely", 13)
    assert "8 of 8 GPUs compute" in found.text

"""Some inputs of each target hold the promise, as do all that once broke it; `python -m tests.fuzz` draws many more."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.fuzz import promise
from tests.fuzz.targets import TARGETS, Bench
from tests.fuzz.worker import draw

CORPUS = Path(__file__).parent / "corpus"
_SEED = 20261123


@pytest.fixture(params=TARGETS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bench(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(promise, "MOST_CPU_S", math.inf)  # tests hold on slow machines too
    bench = Bench(TARGETS[name])
    yield bench
    bench.close()


def test_drawn_inputs(name: str, bench: Bench) -> None:
    generator = random.Random(_SEED)
    for _ in range(TARGETS[name].runs):
        bench.use(draw(generator))


def test_inputs_that_broke_it(name: str, bench: Bench) -> None:
    """Files of an earlier find, whose name begins with its target, by all that is done with this target."""
    for path in sorted(CORPUS.glob(f"{name}-*.zip")):
        with ZipFile(path) as archive:
            files = {member: archive.read(member) for member in archive.namelist()}
        for work in TARGETS[name].works:
            bench.replay(files, work)

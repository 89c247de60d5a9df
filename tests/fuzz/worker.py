"""One process that fuzzes one target: by atheris where it is installed, else by random bytes.

`python -m tests.fuzz.worker TARGET OUT --seconds N --runs N --seed N`; `tests.fuzz` starts these.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import random
import sys
import time
import zipfile
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_HANGS_S = 120  # or up to `_ALARM_S` less
_ALARM_S = 5.0  # between settings of the alarm: each starts a thread
_WRITE_S = 1.0  # between notes of the state
_MOST_BYTES = 300


class Record:
    """Numbers of inputs, and each reason of a broken promise once."""

    def __init__(self, name: str, output: Path) -> None:
        from tests.fuzz.targets import TARGETS, Bench, BrokenPromiseError

        self._broken = BrokenPromiseError
        self._name, self._output = name, output
        self.bench = Bench(TARGETS[name])
        self.counts = {"inputs": 0, "results": 0, "refused": 0, "broken": 0}
        self._slowest_s = 0.0
        self._written = self._alarmed = -_ALARM_S
        self._last = (output / f"{name}.last").open("wb", buffering=0)

    def use(self, data: bytes) -> None:
        self._last.seek(0)
        self._last.truncate()
        self._last.write(data)
        began = time.monotonic()
        if began - self._alarmed >= _ALARM_S:
            faulthandler.dump_traceback_later(_HANGS_S, exit=True)
            self._alarmed = began
        self.counts["inputs"] += 1
        try:
            self.counts["results" if self.bench.use(data) else "refused"] += 1
        except self._broken as broken:
            self.counts["broken"] += 1
            self._keep(data, broken.key, str(broken))
        now = time.monotonic()
        self._slowest_s = max(self._slowest_s, now - began)
        if now - self._written > _WRITE_S:
            self.write()
            self._written = now

    def _keep(self, data: bytes, key: str, text: str) -> None:
        """Keep an input with its files; of equal reasons the shortest."""
        path = self._output / f"{self._name}-{key}.bin"
        if path.exists() and path.stat().st_size <= len(data):
            return
        path.write_bytes(data)
        path.with_suffix(".txt").write_text(text)
        with zipfile.ZipFile(path.with_suffix(".zip"), "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for file in sorted(self.bench.source.rglob("*")):
                if file.is_file():
                    archive.write(file, file.relative_to(self.bench.source))

    def write(self) -> None:
        state = {**self.counts, "slowest_s": round(self._slowest_s, 2)}
        (self._output / f"{self._name}.json").write_text(json.dumps(state))


def draw(generator: random.Random) -> bytes:
    return generator.randbytes(generator.choice([4, 16, 40, 100, _MOST_BYTES]))


def fuzz_randomly(use: Callable[[bytes], None], seconds: float, runs: int, seed: int) -> None:
    generator, until = random.Random(seed), time.monotonic() + seconds
    for number in range(runs or sys.maxsize):
        if number and time.monotonic() > until:
            break
        use(draw(generator))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.worker", description=__doc__)
    parser.add_argument("target")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--random", action="store_true", help="no guidance by coverage")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    if chosen.random or find_spec("atheris") is None:
        record = Record(chosen.target, chosen.out)
        fuzz_randomly(record.use, chosen.seconds, chosen.runs, chosen.seed)
        record.write()
        record.bench.close()
        return
    atheris: Any = import_module("atheris")
    generator = random.Random(chosen.seed)
    with atheris.instrument_imports(include=["nsys_pp"]):
        record = Record(chosen.target, chosen.out)
        for _ in range(12):  # what is imported on first use
            record.use(draw(generator))
    corpus = chosen.out / f"{chosen.target}.corpus"
    corpus.mkdir(exist_ok=True)
    if not any(corpus.iterdir()):
        for number in range(20):
            (corpus / str(number)).write_bytes(draw(generator))
    limits = [f"-max_total_time={max(1, int(chosen.seconds))}"]
    if chosen.runs:
        limits.append(f"-runs={chosen.runs}")
    quiet = ["-verbosity=0", f"-artifact_prefix={chosen.out}/{chosen.target}-", "-rss_limit_mb=4096"]
    line = [*limits, *quiet, f"-seed={chosen.seed}", f"-max_len={_MOST_BYTES}", "-len_control=0", str(corpus)]

    def use(data: bytes) -> None:
        record.use(data)
        if record.counts["inputs"] == chosen.runs:
            record.write()

    atheris.Setup([sys.argv[0], *line], use)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

"""Fuzz targets for as long as you like: `python -m tests.fuzz [TARGET ...] --seconds N --jobs N`.

Each target runs in a process of its own for `--seconds`, `--jobs` at once. Inputs that break the promise lie in `--out`:
`.txt` has the traceback, `.zip` the files; copy a small `.zip` to tests/fuzz/corpus next to the code that mends it.
With atheris (`pip install '.[fuzz]'`: Linux, CPython 3.11 to 3.13) inputs follow the coverage of the code, else they are random.
For hours: `python -m tests.fuzz --seconds 3600 --jobs 8 --out found`, again with the same folder to go on with its inputs.
`.github/workflows/nightly.yml` does so each night, and keeps its folder. `--times 3 --seed 1` draws the same inputs each time (`.ci/run`).
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.cli.calls import environment
from tests.fuzz.targets import TARGETS

_GRACE_S = 180  # after its time; a hanging input ends its process before


def fuzz(
    target: str, output: Path, *, seconds: float, runs: int = 0, seed: int = 1, is_random: bool = False
) -> dict[str, float]:
    """Fuzz a target; a process that dies is noted with its last input, and another one goes on."""
    total: dict[str, float] = {
        "inputs": 0,
        "results": 0,
        "refused": 0,
        "broken": 0,
        "slowest_s": 0,
        "died": 0,
        "late": 0,  # ended because the machine is too slow; not a broken promise
    }
    until = time.monotonic() + seconds
    output.mkdir(parents=True, exist_ok=True)
    while True:
        left = max(1.0, until - time.monotonic())
        line = [sys.executable, "-m", "tests.fuzz.worker", target, str(output), "--seed", str(seed)]
        line += ["--seconds", str(left), "--runs", str(runs), *["--random"] * is_random]
        with (output / f"{target}.log").open("ab") as log:
            environ = environment(PYTHONWARNINGS="ignore", POLARS_MAX_THREADS="1")
            try:
                ended = subprocess.run(
                    line, stdout=log, stderr=log, env=environ, timeout=left + _GRACE_S, check=False
                )
                code = ended.returncode
            except subprocess.TimeoutExpired:
                total["late"] += 1
                code = 0
        state = output / f"{target}.json"
        if state.exists():
            for name, value in json.loads(state.read_text()).items():
                total[name] = max(total[name], value) if name == "slowest_s" else total[name] + value
            state.unlink()
        if code == 0:
            return total
        total["died"] += 1
        (output / f"{target}.last").replace(output / f"{target}-died-{seed}.bin")
        seed += 1
        if runs or time.monotonic() >= until:
            return total


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help=f"some of {', '.join(TARGETS)}; default: all"
    )
    parser.add_argument("--seconds", type=float, default=60, help="of each target; default: 60")
    parser.add_argument(
        "--times",
        type=int,
        default=0,
        help="draw so many times the inputs of the tests by chance instead, the same ones for a seed",
    )
    parser.add_argument("--jobs", type=int, default=1, help="targets at once; default: 1")
    parser.add_argument("--seed", type=int, help="default: another one each time")
    parser.add_argument(
        "--out", type=Path, help="folder for inputs that break the promise; kept between runs"
    )
    chosen = parser.parse_args()
    unknown = [name for name in chosen.targets if name not in TARGETS]
    if unknown:
        parser.error(f"unknown target {unknown[0]}; expected some of {', '.join(TARGETS)}")
    output = chosen.out or Path(tempfile.mkdtemp(prefix="nsys-pp-fuzz-found-"))
    seed = secrets.randbelow(1 << 31) if chosen.seed is None else chosen.seed
    print(f"seed {seed}; what breaks the promise lies in {output}", flush=True)
    bad = 0.0
    with ThreadPoolExecutor(chosen.jobs) as pool:
        names = chosen.targets or list(TARGETS)
        work = {
            name: pool.submit(
                fuzz,
                name,
                output,
                seconds=chosen.seconds,
                seed=seed,
                runs=chosen.times * TARGETS[name].runs,
                is_random=chosen.times > 0,
            )
            for name in names
        }
        for name, future in work.items():
            total = future.result()
            bad += total["broken"] + total["died"]
            print(name, ", ".join(f"{value:g} {key}" for key, value in total.items()), flush=True)
    for path in sorted(output.glob("*.txt")):
        print(f"{path.stem}: {path.read_text().strip().splitlines()[-1][:150]}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

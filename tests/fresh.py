"""Run the random tests with fresh seeds, round after round: `python -m tests.fresh [--rounds N] [PYTEST OPTIONS]`.

The README's test command draws the same examples everywhere, so it passes everywhere or nowhere. This command
searches for new ones before a release; pin an example that fails with `@example` next to the code that mends it. The first
round also runs all cases of the tests of which the README's command runs a few (`tests/draws.py`).
"""

from __future__ import annotations

import argparse
import secrets
import subprocess
import sys


def main() -> int:
    """Run the rounds; return the exit status of the first one that fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.fresh", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="Number of rounds. Default: 10.")
    options, others = parser.parse_known_args()
    for number in range(1, options.rounds + 1):
        seed = secrets.randbelow(1 << 32)
        print(f"round {number} of {options.rounds}: --hypothesis-seed={seed}", flush=True)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "auto",
            "-m",
            f"(hypothesis or draws{' or few' if number == 1 else ''}) and not bench",
        ]
        command += ["--hypothesis-profile=fresh", f"--hypothesis-seed={seed}", *others]
        if status := subprocess.run(command, check=False).returncode:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())

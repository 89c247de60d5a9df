"""Large runs of which some reports are broken."""

from __future__ import annotations

import random
from pathlib import Path

from fixtures.simulate import main as simulate
from tests.breaks import BREAKS, LEAST_BYTES

# a folder does not list what is absent, and links to one device are one report
_KINDS = [name for name in BREAKS if name not in ("absent", "a link to a device")]


def draw_run(folder: Path, *, count: int, broken: int, seed: int) -> dict[Path, str]:
    """Simulate a training of four stages, and break some of its reports, each kind of damage as often.

    Args:
        folder: Receives a folder per machine of eight reports.
        count: Number of reports, a multiple of eight.
        broken: Number of broken ones.
        seed: Of the training, and of the choice.

    Returns:
        The broken reports, with words of the sentence that names their damage.
    """
    shape = f"--pp 4 --dp {count // 4} --machines {count // 8} --micro-batches 6 --steps 4 --layers 1"
    simulate([str(folder), *shape.split(), "--no-truth", "--seed", str(seed)])
    reports = sorted(folder.rglob("*.sqlite"))
    assert len(reports) == count
    assert min(report.stat().st_size for report in reports) > LEAST_BYTES  # as the damages need
    rng = random.Random(seed)
    chosen = rng.sample(reports, broken)
    kinds = rng.sample(_KINDS, len(_KINDS))
    words = {}
    for number, report in enumerate(chosen):
        damage, words[report] = BREAKS[kinds[number % len(kinds)]]
        damage(report)
    return words

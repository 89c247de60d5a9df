"""Large runs of which some reports are broken, and ways to merge one."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from fixtures.simulate import main as simulate
from tests.breaks import BREAKS, LEAST_BYTES
from tests.cli.calls import command_line, environment, run


class Merged(Struct, frozen=True):
    """A finished merge.

    Attributes:
        trace: Its trace.
        wall_s: Time that it took.
        skipped: Reason of each skipped report.
    """

    trace: Path
    wall_s: float
    skipped: dict[Path, str]


def merge_folder(folder: Path, output: Path, *options: str) -> Merged:
    """Merge a folder with `--keep-going`.

    It ends with status 3 and without words for defects, or an assertion fails.
    """
    result = output.with_suffix(".json")
    line: list[str | Path] = [
        "merge",
        folder,
        "-o",
        output,
        "--keep-going",
        "--force",
        "--result",
        result,
        *options,
    ]
    began = time.monotonic()
    done = run(*line, env=environment(NSYS_PP_LOG_SECONDS="0"))
    assert done.code == 3, (command_line(*line), done)
    assert "unforeseen" not in done.stderr, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    written = json.loads(result.read_text())
    skipped = {Path(entry["path"]): str(entry["reason"]) for entry in written["skipped"]}
    return Merged(output, time.monotonic() - began, skipped)


def check_skipped(merged: Merged, broken: Mapping[Path, str]) -> None:
    """Hold that the broken reports are skipped, each with its reason, and no others."""
    assert merged.skipped.keys() == broken.keys(), merged.skipped.keys() ^ broken.keys()
    for path, words in broken.items():
        assert words in merged.skipped[path], (path, merged.skipped[path])


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

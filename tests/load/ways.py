"""One merge of a run with broken reports, in this process, in several, or on a Dask cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

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

"""Labels of the recordings of a run, and repeated recordings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from nsys_pp.compose.batch import Batch
from nsys_pp.frames.part import SUFFIX
from nsys_pp.frames.paths import describe_path
from nsys_pp.frames.roster import Identity
from nsys_pp.roster.identity import find_repeated
from nsys_pp.roster.roster import repeated_error


def label_reports(paths: Sequence[Path]) -> list[str]:
    """Label reports as in `label_files`; bytes of names that are no UTF-8 are escaped."""
    return [describe_path(label) for label in label_files(paths)]


def label_files(paths: Sequence[Path]) -> list[str]:
    """Label reports by file name without suffix, and by as many folders as distinguish them.

    >>> label_files([Path("a/rank0.sqlite"), Path("b/rank0.sqlite"), Path("b/rank1.sqlite")])
    ['a/rank0', 'b/rank0', 'rank1']
    """
    # a group part counts as a folder of its parts
    parts = [(*(name.removesuffix(SUFFIX) for name in path.parent.parts), path.stem) for path in paths]
    labels = [part[-1] for part in parts]
    for length in range(2, max(map(len, parts), default=0) + 1):
        shared = {label for label, count in Counter(labels).items() if count > 1}
        labels = [
            "/".join(part[-length:]) if label in shared else label
            for label, part in zip(labels, parts, strict=True)
        ]
    return labels


def skip_repeated(identities: Sequence[Identity], paths: Sequence[Path], batch: Batch) -> list[int]:
    """Return the index of the first input of each recording; others are skipped where `keep_going` allows it.

    Args:
        identities: Identity of each input.
        paths: Path of each input, as named by the user.
        batch: The batch of these inputs.

    Raises:
        ReportError: Two inputs are the same recording.
    """
    repeated = dict(find_repeated(identities))
    for again, first in repeated.items():
        batch.skip(paths[again], repeated_error(paths[first], paths[again]))
    return [index for index in range(len(paths)) if index not in repeated]

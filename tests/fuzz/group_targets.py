"""Targets whose inputs are group parts and files of clocks, with changed bytes or changed contents."""

from __future__ import annotations

import json
import warnings
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_STORED, ZipFile

import nsys_pp
from nsys_pp.frames.run_clocks import CLOCKS_MEMBER
from nsys_pp.read import check_part_blocks, find_reports, read_part
from tests.fuzz import seeds
from tests.fuzz.choices import Choices
from tests.fuzz.report_targets import change_json
from tests.fuzz.values import change_bytes


@cache
def _read_group_seed(number: int) -> bytes:
    """Return a group of the parts of both ranks."""
    output = BytesIO()
    with ZipFile(output, "w") as archive:
        for rank in (0, 1):
            archive.writestr(f"rank{rank}.nspart", seeds.read_part(number, rank))
    return output.getvalue()


def write_changed_group(choices: Choices, folder: Path) -> None:
    """Write a group with changed bytes, anywhere or at its end, where the list of members is."""
    data = _read_group_seed(choices.below(seeds.COUNT))
    cut = len(data) - choices.pick([0, 60, 300, len(data)])
    data = data[:cut] + change_bytes(data[cut:] or data, choices, block=64, most=4)
    (folder / "node.nspart").write_bytes(data)


def read_group(source: Path, output: Path) -> None:
    """Read all parts of a group, each with its frames and blocks."""
    for path in find_reports([source / "node.nspart"], with_parts=True):
        part = read_part(path, version="0")
        for name in part.frames:
            part.frames[name]
        check_part_blocks(path)


def copy_group(source: Path, output: Path) -> None:
    """Copy what is sound of a group."""
    nsys_pp.extract(source / "node.nspart", output / "copy.nspart", keep_going=True)


@cache
def _read_clocks_seed() -> tuple[bytes, bytes]:
    """Return a part, and the clocks of its run of two ranks."""
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        group = Path(folder) / "node.nspart"
        group.write_bytes(_read_group_seed(0))
        nsys_pp.align(group, Path(folder) / "run.nsclocks")
        return seeds.read_part(0), (Path(folder) / "run.nsclocks").read_bytes()


def write_changed_clocks(choices: Choices, folder: Path) -> None:
    """Write a part, and changed clocks of its run: bytes, or facts in a sound archive."""
    part, clocks = _read_clocks_seed()
    (folder / "rank0.nspart").write_bytes(part)
    path = folder / "run.nsclocks"
    if choices.below(3) == 0:
        path.write_bytes(change_bytes(clocks, choices, block=64))
        return
    with ZipFile(BytesIO(clocks)) as archive, ZipFile(path, "w", ZIP_STORED) as changed:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
        name = choices.pick(
            sorted(name for name in members if name.endswith(".json") or name == CLOCKS_MEMBER)
        )
        facts = json.loads(members[name])
        change_json(facts, choices)
        members[name] = json.dumps(facts).encode()
        for name, data in members.items():
            changed.writestr(name, data)


def merge_on_clocks(source: Path, output: Path) -> None:
    """Draw the part by the clocks."""
    nsys_pp.merge(source / "rank0.nspart", output / "run.pftrace", clocks=source / "run.nsclocks")

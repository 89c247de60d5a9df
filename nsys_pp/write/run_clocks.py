"""Writer of files with the clocks and rows of a run (`nsys_pp.frames.run_clocks`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import msgspec

from nsys_pp.frames.run_clocks import CLOCKS_MEMBER, MachineClocks, RunClocks
from nsys_pp.write.files import replace_file
from nsys_pp.write.parts import make_member
from nsys_pp.write.spool import OpenBlocks

_PIECE_BYTES = 1 << 20


def write_run_clocks(
    path: Path,
    facts: RunClocks,
    machines: Sequence[MachineClocks],
    blocks: Sequence[Sequence[OpenBlocks]],
    *,
    force: bool,
) -> None:
    """Write the file atomically; equal runs have equal bytes.

    Args:
        path: The file.
        facts: Facts of the run.
        machines: In order of `facts`.
        blocks: Of each machine, functions that open the blocks of its `training`.
        force: Replace an existing file.

    Raises:
        OutputError: The file exists and `force` is not set, or it cannot be written.
    """
    with replace_file(path, force=force) as target, ZipFile(target, "w", ZIP_STORED) as archive:
        archive.writestr(make_member(CLOCKS_MEMBER), msgspec.json.encode(facts), ZIP_DEFLATED)
        for number, (machine, opened) in enumerate(zip(machines, blocks, strict=True)):
            archive.writestr(make_member(f"{number}.json"), msgspec.json.encode(machine), ZIP_DEFLATED)
            with archive.open(make_member(f"{number}.blocks"), "w", force_zip64=True) as copy:
                for rows, open_blocks in zip(machine.training, opened, strict=True):
                    left = rows.encoded.size_bytes
                    with open_blocks() as source:
                        while left and (data := source.read(min(left, _PIECE_BYTES))):
                            copy.write(data)
                            left -= len(data)

"""Registry of targets: how each makes its input of choices, and the work that is done with it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import decoder_targets, option_targets, report_targets
from tests.fuzz.choices import Choices
from tests.fuzz.promise import Work, hold


@dataclass(frozen=True)
class Target:
    """A kind of input.

    Attributes:
        write: Writes an input to a folder.
        works: What may be done with it; an input chooses one, and a replay does all.
        runs: Number of inputs in the tests of each change; a second or two.
    """

    write: Callable[[Choices, Path], None]
    works: tuple[Work, ...]
    runs: int


TARGETS = {
    "rows": Target(report_targets.write_changed_rows, (report_targets.read_both_ways,), 60),
    "pages": Target(report_targets.write_changed_pages, (report_targets.read_once,), 120),
    "reports": Target(report_targets.write_changed_rows, report_targets.WHOLE, 15),
    "damaged": Target(report_targets.write_changed_pages, report_targets.WHOLE, 15),
    "folders": Target(
        report_targets.write_changed_folder, (report_targets.read_once, report_targets.info), 40
    ),
    "parts": Target(report_targets.write_changed_part, report_targets.OF_PARTS, 20),
    "copies": Target(report_targets.write_changed_rows, (report_targets.scrub_all,), 15),
    "frames": Target(decoder_targets.write_changed_frame, (decoder_targets.unpack_frames,), 400),
    "blocks": Target(decoder_targets.write_changed_blocks, (decoder_targets.check_blocks_of_a_track,), 300),
    "kept": Target(report_targets.write_changed_part_of_two, (report_targets.merge_kept,), 20),
    "archives": Target(report_targets.write_changed_part, (decoder_targets.read_whole_part,), 60),
    "rules": Target(option_targets.write_rules, (option_targets.load_rules,), 100),
    "named": Target(option_targets.write_rules, (option_targets.pipeline_with_rules,), 10),
    "values": Target(option_targets.write_text, option_targets.PARSE_VALUE, 1000),
    "commands": Target(option_targets.write_command, (option_targets.run_command,), 20),
}

_IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # files there cost no disk


class Bench:
    """A folder in which inputs of a target are made and used, one after the other."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._folder = Path(tempfile.mkdtemp(prefix="nsys-pp-fuzz-", dir=_IN_MEMORY))
        self.source, self.output = self._folder / "in", self._folder / "out"

    def use(self, data: bytes) -> bool:
        """Make an input of bytes, and work with it; results and errors as of `hold`."""
        choices = Choices(data)
        work = choices.pick(self._target.works)
        self._clear()
        self._target.write(choices, self.source)
        return hold(work, self.source, self.output)

    def replay(self, files: dict[str, bytes], work: Work) -> bool:
        """Work with an input of which the files are kept."""
        self._clear()
        for name, data in files.items():
            path = self.source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return hold(work, self.source, self.output)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _clear(self) -> None:
        for folder in (self.source, self.output):
            folder.mkdir(exist_ok=True)
            for entry in folder.iterdir():
                if entry.is_dir():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()

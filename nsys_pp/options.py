r"""All options of the command line: one name, one meaning and one help text in every command.

Click's commands, the library's checks and the recipes of nsys read this table. Standard library only: `--help` imports no more,
and neither does the Python of nsys.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

OUTPUT = "Input and output"
SELECTION = "Selection"
PROJECTION = "Projection"
TRAINING = "Training"
RANKS = "Clocks and ranks"
BATCH = "Batch processing"
LOGGING = "Logging and help"
SECTIONS = (OUTPUT, SELECTION, PROJECTION, TRAINING, RANKS, BATCH, LOGGING)
"""Headings of `--help`, in order."""

_RUN = "merge report pipeline chart compare sql"  # commands that analyse the training of a run
_JOBS = f"{_RUN} summary extract"
_RANKED = f"{_RUN} summary info align"
_WAITING = "merge report pipeline chart summary project info check align sql extract"
_READING = f"{_WAITING} compare"
_PROJECTING = "merge summary project extract"
_TABLES = "pipeline summary project sql"
_WRITING = "merge report pipeline chart summary compare project sql extract scrub"
_JSON = "pipeline summary compare project info check align sql"
_INPUTS = "Exported reports, .nsys-rep files, parts, folders of these, or quoted patterns."

_NS = {"ns": 1, "us": 1000, "ms": 1000**2, "s": 1000**3, "": 1}
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZES |= {f"{unit}ib": size for unit, size in _SIZES.items() if unit}
_SIZES |= {f"{unit}b": 1000**power for power, unit in enumerate("kmgt", start=1)}
_MOST_NS = 1 << 61  # 73 years; sums of two such times are below 2^63


def parse_duration(text: str) -> int:
    """Parse a time in ns: `1.5s`, `20ms`, `300us`, `4000ns`; nanoseconds without a unit."""
    match = re.fullmatch(r"(-?)(\d{1,19})(?:\.(\d{1,19}))?\s*(ns|us|ms|s|)", text.strip())
    if match is None:
        raise ValueError(f"invalid time {text!r}; expected e.g. `1.5s`, `20ms`, `300us` or `4000ns`")
    sign, whole, fraction, unit = match.groups("")
    size = int(whole) * _NS[unit] + int(fraction or 0) * _NS[unit] // 10 ** len(fraction)
    if size >= _MOST_NS:
        raise ValueError(f"invalid time {text!r}; expected less than 73 years")
    return -size if sign else size


def parse_window(text: str) -> tuple[int, int]:
    """Parse two times in ns, `1.5s:1.7s`; the second is later."""
    first, colon, last = text.partition(":")
    if not colon:
        raise ValueError(f"invalid range {text!r}; expected e.g. `1.5s:1.7s`")
    start, end = parse_duration(first), parse_duration(last)
    if end <= start:
        raise ValueError(f"invalid range {text!r}; the second time must be later")
    return start, end


def parse_timeout(text: str) -> float:
    """Parse a timeout in seconds: `90s`, `10m`, `1h`; seconds without a unit."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smhd]?)", text.strip())
    if match is None:
        raise ValueError(f"invalid timeout {text!r}; expected e.g. `90s`, `10m` or `1h`")
    return float(match[1]) * _SECONDS[match[2]]


def parse_size(text: str) -> int:
    """Parse a size of memory in bytes: `8GB`, `512MiB`, `16G`."""
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,18})?)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _SIZES or not float(match[1]):
        raise ValueError(f"invalid memory size {text!r}; expected e.g. `8GB` or `512MiB`")
    return int(float(match[1]) * _SIZES[match[2]])


def parse_numbers(text: str) -> frozenset[int]:
    """Parse whole numbers separated by commas."""
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", text.strip()):
        raise ValueError(f"invalid list of numbers {text!r}; expected e.g. `0,1`")
    return frozenset(map(int, text.split(",")))


def parse_processes(text: str) -> int:
    """Parse a number of processes; `auto` is 0."""
    if text.strip() == "auto":
        return 0
    if not re.fullmatch(r"\d{1,4}", text.strip()):
        raise ValueError(f"invalid number of processes {text!r}; expected e.g. `4`, or `auto`")
    return int(text)


def parse_offset(text: str) -> tuple[str, int]:
    """Parse a machine with the offset of its clock in ns: `node07=-1.2ms`."""
    machine, equals, offset = text.rpartition("=")
    if not (machine and equals and offset):
        raise ValueError(f"invalid offset {text!r}; expected e.g. `node07=-1.2ms`")
    return machine, parse_duration(offset.removeprefix("+"))


class Option(NamedTuple):
    """An option, or an argument where `flags` is empty."""

    name: str  # keyword of the library, and of the function of a command
    flags: str
    section: str
    commands: str  # that have it, separated by spaces
    help: str
    type: Any = str  # str, int, float, bool (a flag), Path, or a function from text to value
    choices: Sequence[str] = ()
    least: float | None = None  # of a number
    default: Any = None
    default_text: str | None = None  # None: the default itself
    metavar: str | None = None
    is_many: bool = False  # repeatable
    is_folder: bool | None = None  # of a path: True: no file; False: no folder
    variable: str | None = None  # of the environment, with another default
    is_forwarded: bool = False  # recipes of nsys have it, too


def _flag(name: str, flags: str, section: str, commands: str, help: str, *, is_forwarded: bool = False) -> Option:
    return Option(name, flags, section, commands, help, type=bool, default=False, is_forwarded=is_forwarded)


OPTIONS = (
    Option("a", "", OUTPUT, "compare", "The run to compare with: a report, a part, a folder of them, or a quoted pattern,"
           " with its steps as in runs/7:10:14."),
    Option("b", "", OUTPUT, "compare", "The run to judge, likewise; or other steps of the same run."),
)

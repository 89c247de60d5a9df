"""Scrubbed copies of traces: with pseudonyms of machines and GPUs in names of rows, descriptions and attributes.

A trace has no environment, no command lines, and no text that no event refers to. Machines are those that its
attributes and descriptions name.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, cast

from nsys_pp.errors import ReportError
from nsys_pp.read.unreadable import check_regular, unreadable_error
from nsys_pp.scrubbing.pseudonyms import Identities, Pseudonyms, find_uuids
from nsys_pp.write.files import replace_file
from nsys_pp.write.perfetto.texts import list_attributes, read_description, read_packets, replace_texts

_MACHINE = re.compile(r"clock\.(.+)\.report\d+\.source")
# of a trace of one report, whose clock has no attributes: the description of a row, and the name of a row in Chrome's format
_DESCRIBED = re.compile(r"(?:^|; )([^,;]+), GPU \d")
_TITLED = re.compile(r'"name": "([^"/]+) / GPU \d')
_METADATA = ('"ph": "M"', '"otherData"')  # lines with names of rows, and with attributes
SUFFIXES = (".pftrace", ".perfetto-trace", ".json", ".json.gz")


def is_trace(path: Path) -> bool:
    """Return whether a file has the suffix of traces."""
    return path.name.endswith(SUFFIXES)


def find_trace_identities(path: Path) -> Identities:
    """Find the names of machines and GPUs in a trace.

    Raises:
        ReportError: It cannot be read, or nsys-pp did not write it.
    """
    hosts: set[str] = set()
    uuids: set[str] = set()
    with _translated(path):
        if _is_chrome(path):
            with _open_text(path, "rt") as lines:
                for line in lines:
                    if any(mark in line for mark in _METADATA):
                        hosts |= _list_machines(_read_attributes(line)) | {*_TITLED.findall(line)}
                        uuids |= find_uuids(line)
        else:
            with path.open("rb") as file:
                for packet in read_packets(file):
                    description = read_description(packet)
                    hosts |= _list_machines([*list_attributes(packet)]) | {*_DESCRIBED.findall(description)}
                    uuids |= find_uuids(description)
    if not hosts:
        raise _foreign_error(path)
    return Identities(hosts=frozenset(hosts), uuids=frozenset(uuids))


def scrub_trace(path: Path, output: Path, pseudonyms: Pseudonyms, *, force: bool) -> None:
    """Write a copy of a trace with pseudonyms.

    Args:
        path: The trace, of any format.
        output: The copy, of the same format.
        pseudonyms: Replacement of names.
        force: Replace an existing file.

    Raises:
        ReportError: It cannot be read, or is no trace.
        OutputError: The output exists, or cannot be written.
    """
    rows = partial(pseudonyms.replace_words, with_short=True)
    with replace_file(output, force=force) as target, _translated(path):
        if _is_chrome(path):
            with _open_text(path, "rt") as lines, _open_text(path, "wt", target) as file:
                for line in lines:
                    is_row = any(mark in line for mark in _METADATA)
                    file.write(rows(line) if is_row else pseudonyms.replace_words(line))
        else:
            with path.open("rb") as trace, target.open("wb") as copy:
                for packet in replace_texts(trace, rows=rows, events=pseudonyms.replace_words):
                    copy.write(packet)


def _is_chrome(path: Path) -> bool:
    return path.name.endswith((".json", ".json.gz"))


def _open_text(path: Path, mode: str, target: Path | None = None) -> IO[str]:
    open_any: Callable[..., object] = open
    if path.name.endswith(".gz"):
        open_any = gzip.open
    return cast("IO[str]", open_any(target or path, mode, encoding="utf-8", newline=""))


def _read_attributes(line: str) -> list[str]:
    """Read the keys of the attributes in the first line of a trace in Chrome's format; none in others."""
    if '"otherData"' not in line:
        return []
    try:
        start = json.loads(line.rstrip().removesuffix("[") + "[]}")
    except ValueError:
        return []
    return [*start.get("otherData", {})]


def _list_machines(keys: list[str]) -> set[str]:
    return {match[1] for key in keys if (match := _MACHINE.fullmatch(key))}


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    check_regular(path)
    try:
        yield
    except (gzip.BadGzipFile, zlib.error, ValueError, EOFError) as error:
        raise _foreign_error(path) from error
    except OSError as error:
        if error.filename is None or str(error.filename) != str(path):
            raise
        raise unreadable_error(path, error) from None


def _foreign_error(path: Path) -> ReportError:
    return ReportError(f"`{path}` is damaged, or not a trace of nsys-pp", "merge its reports again")

"""Rules of families, read from `rules/*.toml`.

A rule matches the function of a kernel (namespaces and name, without template arguments and parameters), and
optionally its whole name. Files and their rules apply in order; the first match decides.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from nsys_pp.frames.aggregates import FAMILIES

_FOLDER = Path(__file__).parent / "rules"
# names are ASCII nearly always; classes of Unicode take longer to compile and to search
_ASCII = {r"\w": "[0-9A-Za-z_]", r"\d": "[0-9]"}


class Rule(Struct, frozen=True, kw_only=True):
    """A rule of one family.

    Attributes:
        pattern: Regular expression, searched in the function.
        arguments: Regular expression, searched in the whole name; "": any.
        family: One of `FAMILIES`.
        library: Library of the kernel; None: unknown.
        tensor_cores: Whether the kernel uses tensor cores; None: unknown.
    """

    pattern: str
    arguments: str
    family: str
    library: str | None
    tensor_cores: bool | None


class InnerName(Struct, frozen=True, kw_only=True):
    """A function that runs many kernels: their names are template arguments.

    Attributes:
        function: Regular expression, searched in the function.
        pattern: Regular expression of the inner name, searched in the whole name; the first group that
            matches.
        is_suffix: The inner name follows the function instead of replacing it.
    """

    function: str
    pattern: str
    is_suffix: bool


@cache
def read_rules() -> tuple[Rule, ...]:
    """Read the `[[kernel]]` rules of all files, in order of their names."""
    return tuple(
        _build_rule(entry, library=file["library"]) for file in _read_files() for entry in file["kernel"]
    )


@cache
def read_inner_names() -> tuple[InnerName, ...]:
    """Read the `[[inner]]` entries of all files, in order of their names."""
    return tuple(
        InnerName(
            function=to_ascii(entry["function"]),
            pattern=to_ascii(entry["pattern"]),
            is_suffix=entry.get("is_suffix", False),
        )
        for file in _read_files()
        for entry in file.get("inner", ())
    )


def to_ascii(pattern: str) -> str:
    r"""Replace `\d` and `\w` by ASCII digits and letters.

    >>> to_ascii(r"sm\d+_\w+")
    'sm[0-9]+_[0-9A-Za-z_]+'
    """
    for escape, letters in _ASCII.items():
        pattern = pattern.replace(escape, letters)
    return pattern


@cache
def _read_files() -> tuple[Mapping[str, Any], ...]:
    return tuple(tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(_FOLDER.glob("*.toml")))


def _build_rule(entry: Mapping[str, Any], *, library: str) -> Rule:
    family = entry["family"]
    if family not in FAMILIES:
        raise ValueError(f"invalid family {family!r}; expected one of {', '.join(FAMILIES)}")
    return Rule(
        pattern=to_ascii(entry["pattern"]),
        arguments=to_ascii(entry.get("arguments", "")),
        family=family,
        library=entry.get("library", library) or None,
        tensor_cores=entry.get("tensor_cores"),
    )

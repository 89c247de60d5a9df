"""Values of options: times, sizes and lists of numbers."""

from __future__ import annotations

import re
from typing import Any

import click

from nsys_pp.units import NS_PER_MS, NS_PER_S, NS_PER_US

_NS_UNITS = {"ns": 1, "us": NS_PER_US, "ms": NS_PER_MS, "s": NS_PER_S, "": 1}
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZES |= {f"{unit}ib": size for unit, size in _SIZES.items() if unit}
_SIZES |= {f"{unit}b": 1000**power for power, unit in enumerate("kmgt", start=1)}
_MOST_NS = 1 << 61  # 73 years; sums of two such times are below 2^63
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Duration(click.ParamType[int]):
    """A duration in ns: `1.5s`, `20ms`, `300us`, `4000ns`; nanoseconds without a unit."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return whole nanoseconds."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(-?)(\d{1,19})(?:\.(\d{1,19}))?\s*(ns|us|ms|s|)", value.strip())
        if match is None:
            self.fail(
                f"invalid time {value!r}; expected e.g. `1.5s`, `20ms`, `300us` or `4000ns`", param, ctx
            )
        sign, whole, fraction, unit = match.groups()
        scale = _NS_UNITS[unit]
        part = int(fraction or 0) * scale // int("1" + "0" * len(fraction or ""))
        size = int(whole) * scale + part
        if size >= _MOST_NS:
            self.fail(f"invalid time {value!r}; expected less than 73 years", param, ctx)
        return -size if sign else size


class DurationRange(click.ParamType[tuple[int, int]]):
    """Two times in ns, `1.5s:1.7s`; the second is later."""

    name = "range"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Return whole nanoseconds."""
        if isinstance(value, tuple):
            return value
        first, colon, last = value.partition(":")
        if not colon:
            self.fail(f"invalid range {value!r}; expected e.g. `1.5s:1.7s`", param, ctx)
        start, end = (Duration().convert(text, param, ctx) for text in (first, last))
        if end <= start:
            self.fail(f"invalid range {value!r}; the second time must be later", param, ctx)
        return start, end


class Timeout(click.ParamType[float]):
    """A timeout in seconds: `90s`, `10m`, `1h`; seconds without a unit."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smhd]?)", value.strip())
        if match is None:
            self.fail(f"invalid timeout {value!r}; expected e.g. `90s`, `10m` or `1h`", param, ctx)
        return float(match[1]) * _SECONDS[match[2]]


class Numbers(click.ParamType[frozenset[int]]):
    """Whole numbers separated by commas."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[int]:
        """Return the set of numbers."""
        if isinstance(value, frozenset):
            return value
        if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", value.strip()):
            self.fail(f"invalid list of numbers {value!r}; expected e.g. `0,1`", param, ctx)
        return frozenset(map(int, value.strip().split(",")))


class MemorySize(click.ParamType[int]):
    """A memory size in bytes: `8GB`, `512MiB`, `16G`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return bytes."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,18})?)\s*([a-z]*)", value.strip().lower())
        if match is None or match[2] not in _SIZES or not float(match[1]):
            self.fail(f"invalid memory size {value!r}; expected e.g. `8GB` or `512MiB`", param, ctx)
        return int(float(match[1]) * _SIZES[match[2]])


class ProcessCount(click.ParamType[int]):
    """A number of processes, or `auto` (0)."""

    name = "processes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number; 0 for `auto`."""
        if isinstance(value, int):
            return value
        if value.strip() == "auto":
            return 0
        if not re.fullmatch(r"\d{1,4}", value.strip()):
            self.fail(f"invalid number of processes {value!r}; expected e.g. `4`, or `auto`", param, ctx)
        return int(value.strip())

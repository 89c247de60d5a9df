"""Short `repr` of dataclasses that hold frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields
from typing import Any

import polars as pl

_MOST_NAMES = 6
_MOST_CHARACTERS = 60


class ShortRepr:
    """Base of dataclasses (with `repr=False`) whose `repr` has counts instead of contents."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the class and its fields, each in a few characters."""
        described = (
            f"{field.name}={describe_value(getattr(self, field.name))}"
            for field in fields(self)  # type: ignore[arg-type]  # of subclasses
        )
        return f"{type(self).__name__}({', '.join(described)})"


def describe_value(value: Any) -> str:
    """Return a value in a few characters: the size of a frame or a list, the keys of a mapping.

    >>> describe_value(pl.DataFrame({"a": [1, 2]})), describe_value(["x"] * 100), describe_value({"a": 1, "b": 2})
    ('<2 rows>', '<100 items>', '{a, b}')
    """
    if isinstance(value, pl.DataFrame):
        return f"<{value.height:,} rows>"
    if isinstance(value, Mapping):
        names = [str(key) for key in value]
        more = [f"and {len(names) - _MOST_NAMES} more"] * (len(names) > _MOST_NAMES)
        return "{" + ", ".join([*names[:_MOST_NAMES], *more]) + "}"
    if isinstance(value, (Sequence, Set)) and not isinstance(value, (str, bytes)):
        return f"<{len(value):,} items>" if value else "<none>"
    if isinstance(value, ShortRepr):
        return f"<{type(value).__name__}>"
    text = repr(value)
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "..."

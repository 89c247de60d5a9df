"""Arguments of the compiled search of points near others (`core.c`), and room for their arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

_COUNT, _POINTER, _NUMBER = ctypes.c_int64, ctypes.c_void_p, ctypes.c_double
MOST_STARTS = 8
"""Pairs of channels that are listed with their pairs."""


class _SideArgument(ctypes.Structure):
    """`Side` of `core.c`."""

    _fields_ = (*((name, _COUNT) for name in ("first", "stop", "count")), ("others", _POINTER))


class PointsArgument(ctypes.Structure):
    """`Points` of `core.c`."""

    _fields_ = (
        ("count", _COUNT),
        *((name, _POINTER) for name in ("key", "channel_given", "kind", "end")),
        ("other_count", _COUNT),
        *((name, _POINTER) for name in ("other_key", "other_channel", "other_kind", "other_time")),
        *((name, _COUNT) for name in ("send", "receive", "exchange")),
        *((name, _NUMBER) for name in ("beyond", "together")),
        *((name, _POINTER) for name in ("channel", "share", "is_message", "is_exchange")),
        *((name, _POINTER) for name in ("own_total", "other_total", "by_channel", "channel_bounds")),
        *((name, _POINTER) for name in ("sections", "comparable", "others")),
        *((name, _COUNT) for name in ("comparable_count", "channel_count", "other_channel_count")),
        ("section_count", _COUNT),
        *((name, _NUMBER) for name in ("first", "last")),
        ("sides", _SideArgument * 3),
    )


class SearchArgument(ctypes.Structure):
    """`Search` of `core.c`."""

    _fields_ = (
        *((name, _NUMBER) for name in ("offset", "rate", "center", "tolerance", "margin")),
        *((name, _COUNT) for name in ("capacity", "pairs", "links")),
        *((name, _POINTER) for name in ("predicted", "first_pair", "pairs_of")),
        *((name, _POINTER) for name in ("point", "other", "link", "nearest", "residual")),
        *((name, _POINTER) for name in ("numbers", "pair_count", "squares", "shares")),
        *((name, _POINTER) for name in ("own_within", "others_within")),
        ("within_ns", _NUMBER),
        *((name, _POINTER) for name in ("best", "stamp", "touched", "owners", "sums")),
        ("last_mark", _COUNT),
    )


class EvidenceArgument(ctypes.Structure):
    """`Evidence` of `core.c`."""

    _fields_ = (
        *((name, _NUMBER) for name in ("scatter", "prior_count", "lockstep", "missing", "missing_message")),
        *((name, _COUNT) for name in ("measurable", "measurable_whole")),
        *((name, _NUMBER) for name in ("evidence", "exchange", "sharpest")),
        ("kept", _COUNT),
        *((name, _POINTER) for name in ("point", "other", "of_pair")),
        ("chosen_count", _COUNT),
        *((name, _POINTER) for name in ("chosen", "sums", "product", "of_link", "weight")),
        *((name, _COUNT) for name in ("start_count", "min_sharp")),
        *((name, _NUMBER) for name in ("wide", "first_scatter")),
        ("start_bounds", _COUNT * (MOST_STARTS + 1)),
        ("start_point", _POINTER),
        ("start_residual", _POINTER),
    )


class AgainstArgument(ctypes.Structure):
    """`Against` of `core.c`."""

    _fields_ = (*((name, _POINTER) for name in ("point", "bounds", "is_paired")), ("most", _NUMBER))


class LinesArgument(ctypes.Structure):
    """`Lines` of `core.c`."""

    _fields_ = (
        *((name, _COUNT) for name in ("count", "done")),
        ("lines", _POINTER),
        ("against", AgainstArgument),
        ("scatter_count", _COUNT),
        *((name, _POINTER) for name in ("scatters", "evidence", "exchange", "sharpest")),
        ("start_capacity", _COUNT),
        *((name, _POINTER) for name in ("start_bounds", "start_point", "start_residual")),
    )


class FitsArgument(ctypes.Structure):
    """`Fits` of `core.c`."""

    _fields_ = (
        *((name, _COUNT) for name in ("count", "done")),
        ("lines", _POINTER),
        ("starts", _COUNT),
        *((name, _POINTER) for name in ("bounds", "point", "residual")),
        *((name, _NUMBER) for name in ("scatter", "floor", "drift")),
        ("rounds", _COUNT),
        *((name, _POINTER) for name in ("fitted", "fitted_count", "tested")),
        ("tested_count", _COUNT),
        ("against", AgainstArgument),
    )


_WORD_BYTES = 8
_BYTES = {"f": 8, "i": 8, "h": 4, "b": 1, "s": 24, "p": 16}
_TYPES: dict[str, np.dtype[Any]] = {
    "f": np.dtype(np.float64),
    "i": np.dtype(np.int64),
    "h": np.dtype(np.int32),
    "b": np.dtype(np.bool_),
}


class Room:
    """Room for columns as one array, whose addresses a structure receives.

    Args:
        to: Receives the addresses.
        columns: Type of each column and its length. Types are letters of `_TYPES`, `s` for structures of 24 bytes (`Comparable`, `Other` and
            `LinkSums`), and `p` for those of 16 (`Nearest`).
        is_zero: Fill it with zeros.
    """

    __slots__ = ("_columns", "_words")

    def __init__(
        self, to: ctypes.Structure, columns: Mapping[str, tuple[str, int]], *, is_zero: bool = False
    ) -> None:
        self._columns: dict[str, tuple[int, str, int]] = {}
        stop = 0
        for name, (letter, length) in columns.items():
            self._columns[name] = stop, letter, length
            stop += -(-length * _BYTES[letter] // _WORD_BYTES)
        self._words = np.zeros(stop, np.int64) if is_zero else np.empty(stop, np.int64)
        address = self._words.ctypes.data
        for name, (first, _, _) in self._columns.items():
            setattr(to, name, address + _WORD_BYTES * first)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """Return a column; not one of structures."""
        first, letter, length = self._columns[name]
        return self._words[first:].view(_TYPES[letter])[:length]

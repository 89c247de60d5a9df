"""Votes of pairs of points and others for offsets, compiled (`core.c`)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from msgspec import Struct

from nsys_pp.arrays.core import Core
from nsys_pp.arrays.core_arguments import MOST_ROWS, find_address
from nsys_pp.arrays.near_arguments import Room
from nsys_pp.arrays.types import Floats, Int64s

_COUNT, _POINTER, _NUMBER = ctypes.c_int64, ctypes.c_void_p, ctypes.c_double


class _Arguments(ctypes.Structure):
    """`Votes` of `core.c`."""

    _fields_ = (
        ("count", _COUNT),
        *((name, _POINTER) for name in ("end", "expected", "channel", "low", "high")),
        *((name, _POINTER) for name in ("times", "other_channel")),
        ("other_channel_count", _COUNT),
        *((name, _NUMBER) for name in ("half_width", "width", "drift")),
        ("sufficient", _COUNT),
        ("near", _NUMBER),
        *((name, _POINTER) for name in ("time", "offset", "weight", "voter", "link")),
        ("votes", _COUNT),
        *((name, _POINTER) for name in ("half", "bounds")),
        ("halves", _COUNT),
        *((name, _POINTER) for name in ("sums", "inside")),
    )


class CollectedVotes(Struct, frozen=True, kw_only=True):
    """Votes by offset, and their sums by half of a window.

    Attributes:
        time: Time of the voter.
        voter: Number of the voter.
        offset: Time of the other minus this.
        weight: 1 by the number of votes of the voter.
        link: Channel of the voter times the number of channels of the others plus that of the other.
        half: Halves with votes, ascending: number of the half from the least offset.
        bounds: First vote of each half, and their number.
        sums: Sum of the weights of each half.
    """

    time: Floats
    voter: Int64s
    offset: Floats
    weight: Floats
    link: Int64s
    half: Int64s
    bounds: Int64s
    sums: Floats


def collect_votes(
    core: Core,
    *,
    end: Floats,
    expected: Floats,
    channel: Int64s,
    low: Int64s,
    high: Int64s,
    times: Floats,
    other_channel: Int64s,
    half_width: float,
    width: float,
    drift: float,
    sufficient: int,
    near: float,
) -> CollectedVotes | None:
    """Collect the votes of voters for others near their expected time; of equal offsets in order of voters, then others.

    Only those of the windows with most votes, and those nearest to the expected time: of all, few are looked at.

    Args:
        core: The library.
        end: Time of each voter.
        expected: Expected time of the other.
        channel: Channel of each voter.
        low: First of the others that it may vote for.
        high: After the last of these.
        times: Time of each of the others.
        other_channel: Channel of each of the others.
        half_width: Largest distance from the expected time.
        width: Width of a window of offsets, above 0.
        drift: Added to it for each ns between the first and the last time of voters with votes; not negative.
        sufficient: Number of windows of two halves with most votes whose votes are collected, 1 or more; with them those as heavy.
        near: Votes this close to the expected time are collected as well, with all others of their half.

    Returns:
        The votes; None where they are too many, or offsets are too far apart to be counted by halves of windows.

    Raises:
        ValueError: Columns have different lengths, or a window is not among the others.
        MemoryError: Memory is short.
    """
    if len({len(column) for column in (end, expected, channel, low, high)}) > 1:
        raise ValueError("columns of different lengths")
    is_row = low.min(initial=0) >= 0 and high.max(initial=0) <= len(times) and (low <= high).all()
    if not is_row or len(times) != len(other_channel) or not width > 0 or not drift >= 0 or sufficient < 1:
        raise ValueError("a window is not among the others, has no width, or none suffices")
    rows = int((high - low).sum())
    if max(len(end), len(times), rows) >= MOST_ROWS:
        return None
    held: dict[str, Any] = {
        name: np.ascontiguousarray(values, dtype=of)
        for of, columns in (
            (np.float64, {"end": end, "expected": expected, "times": times}),
            (np.int64, {"channel": channel, "low": low, "high": high, "other_channel": other_channel}),
        )
        for name, values in columns.items()
    }
    arguments = _Arguments(
        count=len(end),
        other_channel_count=int(other_channel.max(initial=0)) + 1,
        half_width=half_width,
        width=width,
        drift=drift,
        sufficient=sufficient,
        near=near,
        **{name: find_address(column) for name, column in held.items()},
    )
    room = Room(
        arguments,
        {
            **dict.fromkeys(("time", "offset", "weight", "sums"), ("f", rows)),
            **dict.fromkeys(("voter", "link", "half", "bounds"), ("i", rows + 1)),
            "inside": ("i", len(end)),
        },
    )
    result = core.vote(ctypes.byref(arguments))
    if result < 0:
        raise MemoryError
    if result:
        return None
    votes, halves = slice(arguments.votes), slice(arguments.halves)
    return CollectedVotes(
        time=room["time"][votes],
        voter=room["voter"][votes],
        offset=room["offset"][votes],
        weight=room["weight"][votes],
        link=room["link"][votes],
        half=room["half"][halves],
        bounds=room["bounds"][: arguments.halves + 1],
        sums=room["sums"][halves],
    )

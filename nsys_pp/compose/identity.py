"""Identities of reports, as parts keep them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import polars as pl

from nsys_pp.errors import ReportError
from nsys_pp.frames.part import Part
from nsys_pp.frames.roster import Identity
from nsys_pp.read.frame_archives import DAMAGES
from nsys_pp.read.parts import concat_frames

IDENTITY_FRAMES = tuple(name for name, kind in Identity.__annotations__.items() if "DataFrame" in str(kind))
"""Frames of a part that its identity has."""


def build_identity(part: Part) -> Identity:
    """Build the identity of a part's report; the inverse of its storage.

    Raises:
        KeyError: A frame is missing.
    """
    return _build(part, {name: part.frames[name] for name in IDENTITY_FRAMES})


def build_identities(parts: Sequence[Part]) -> list[Identity] | None:
    """Build the identities of several parts, whose frames are decoded together; None if `build_identity` fails for one."""
    if not parts:
        return []
    joined = []
    try:
        for name in IDENTITY_FRAMES:
            frame, sizes = concat_frames([part.frames for part in parts], name)
            ends = [0, *accumulate(sizes)]
            joined.append([frame[first:last] for first, last in pairwise(ends)])
    except (ReportError, *DAMAGES):
        return None
    return [
        _build(part, dict(zip(IDENTITY_FRAMES, frames, strict=True)))
        for part, *frames in zip(parts, *joined, strict=True)
    ]


def _build(part: Part, frames: Mapping[str, pl.DataFrame]) -> Identity:
    facts = part.facts
    return Identity(path=part.source, session=facts.session, fingerprint=facts.fingerprint, **frames)

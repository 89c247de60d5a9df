"""Identities of reports, as parts keep them."""

from __future__ import annotations

from nsys_pp.frames.part import Part
from nsys_pp.frames.roster import Identity

IDENTITY_FRAMES = tuple(name for name, kind in Identity.__annotations__.items() if "DataFrame" in str(kind))
"""Frames of a part that its identity has."""


def build_identity(part: Part) -> Identity:
    """Build the identity of a part's report; the inverse of its storage.

    Raises:
        KeyError: A frame is missing.
    """
    frames = {name: part.frames[name] for name in IDENTITY_FRAMES}
    facts = part.facts
    return Identity(path=part.source, session=facts.session, fingerprint=facts.fingerprint, **frames)

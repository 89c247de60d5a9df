"""Colours: the seeds hash to the colours that are claimed, and kinds can be told apart."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest

from nsys_pp.output.trace.colors import COLORS, chrome_names, perfetto_seeds


def ui_hash(text: str, modulus: int) -> int:
    """Hash as `ui/src/base/hash.ts` does, where the product is a double and wraps to 32 bits."""
    state = 18652613
    for character in text:
        state ^= ord(character)
        product = int(16777619.0 * (state - (1 << 32) if state >= 1 << 31 else state))
        state = int(float(product)) & 0xFFFFFFFF
    return abs(state - (1 << 32) if state >= 1 << 31 else state) % modulus


def hue_and_lightness(seed: str) -> tuple[int, int]:
    """Choose a colour as `proceduralColorScheme` of `ui/src/components/colorizer.ts` does."""
    return ui_hash(seed, 360), ui_hash(seed + "x", 40) + 40


@pytest.mark.parametrize(
    ("kind", "hue"),
    [("forward", 250), ("backward", 130), ("optimizer", 285), ("send", 36), ("communication", 20)],
)
def test_hues(kind: str, hue: int) -> None:
    assert abs(hue_and_lightness(COLORS[kind].seed)[0] - hue) <= 3


def test_kinds_look_different() -> None:
    looks = sorted(hue_and_lightness(color.seed) for color in COLORS.values())
    close = [(a, b) for a, b in pairwise(looks) if abs(a[0] - b[0]) < 8 and abs(a[1] - b[1]) < 8]
    assert not close
    assert len({color.cname for color in COLORS.values()}) == len(COLORS)
    assert len({color.rgb for color in COLORS.values()}) == len(COLORS)


def test_seeds_say_what_they_stand_for() -> None:
    assert all(color.seed.startswith(kind) for kind, color in COLORS.items())


def test_unknown_kinds() -> None:
    keys = pl.Series(["forward", "mine"])
    assert perfetto_seeds(keys) == [COLORS["forward"].seed, "mine"]
    assert chrome_names(keys).to_list() == [COLORS["forward"].cname, None]
    assert perfetto_seeds(keys.head(0)) == chrome_names(keys.head(0)).to_list() == []

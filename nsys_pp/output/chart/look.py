"""Colors of charts: fills of kinds and causes, shades of chunks, and text colors with enough contrast."""

from __future__ import annotations

from nsys_pp.frames.training import JOB_KINDS
from nsys_pp.output.trace.colors import COLORS

Rgb = tuple[int, int, int]

WHITE: Rgb = (255, 255, 255)
BLACK: Rgb = (0, 0, 0)
SHADES = 4
"""Number of shades; chunk 4 has the shade of chunk 0 again."""
SHADE_STEP = 0.17  # share of white that each shade adds
_SAME_AS = {"send_receive": "communication"}


def color_of(key: str) -> Rgb:
    """Return the color of a kind of job or a cause."""
    return COLORS[_SAME_AS.get(key, key)].rgb


def mix(color: Rgb, other: Rgb, share: float) -> Rgb:
    """Mix two colors; `share` (0 to 1) is the share of `other`."""
    first, second, third = (round(a * (1 - share) + b * share) for a, b in zip(color, other, strict=True))
    return first, second, third


def shade_of(kind: str, shade: int) -> Rgb:
    """Return the fill of a kind's bars: the color of the kind, lighter with each shade."""
    return mix(color_of(kind), WHITE, SHADE_STEP * shade)


def text_on(fill: Rgb) -> Rgb:
    """Return black or white, the color with more contrast on the fill; its contrast is at least 4.5."""
    return max((BLACK, WHITE), key=lambda text: contrast(text, fill))


def contrast(color: Rgb, other: Rgb) -> float:
    """Return the contrast ratio of two colors, 1 to 21 (WCAG 2.2, "contrast ratio")."""
    dark, light = sorted((_luminance(color), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def to_hex(color: Rgb) -> str:
    """Format a color as `#rrggbb`."""
    return "#{:02x}{:02x}{:02x}".format(*color)


def kind_looks() -> list[list[dict[str, str]]]:
    """Return the fill and the text color of each kind (in the order of `JOB_KINDS`) and shade."""
    return [
        [
            {"fill": to_hex(shade_of(kind, shade)), "text": to_hex(text_on(shade_of(kind, shade)))}
            for shade in range(SHADES)
        ]
        for kind in JOB_KINDS
    ]


def _luminance(color: Rgb) -> float:
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (value / 255 for value in color)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

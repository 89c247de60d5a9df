"""Bars as SVG: rows of rectangles, in percent of the width, so that texts keep their size on a narrow screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from msgspec import Struct

from nsys_pp.output.colors import color_of, to_hex
from nsys_pp.output.tables.text import clean


class Piece(Struct, frozen=True, kw_only=True):
    """A piece of a bar.

    Attributes:
        key: Key of its color (`nsys_pp.output.colors`).
        value: Its length; negative ones extend to the left of zero.
        text: Its meaning and value, shown under the mouse and read aloud.
    """

    key: str
    value: float
    text: str


class Bar(Struct, frozen=True, kw_only=True):
    """A row: its label, pieces from zero on, and a text at its end."""

    label: str
    pieces: tuple[Piece, ...]
    text: str = ""
    is_marked: bool = False


def draw_bars(
    bars: Sequence[Bar], *, caption: str, legend: Mapping[str, str] | None = None, least: float = 0.0
) -> str:
    """Draw bars on one scale.

    Args:
        bars: The bars, from top to bottom.
        caption: Sentence above them.
        legend: Text of each key of a color, in order.
        least: Least length of the scale, so that small values do not fill the width.

    Returns:
        A fragment of HTML; "" without bars.
    """
    if not bars:
        return ""
    lows = [sum(min(piece.value, 0) for piece in bar.pieces) for bar in bars]
    highs = [sum(max(piece.value, 0) for piece in bar.pieces) for bar in bars]
    low, high = min(0.0, *lows), max(least, *highs)
    scale = 100 / (high - low) if high > low else 0.0
    rows = "".join(_draw_bar(bar, -low * scale, scale) for bar in bars)
    return f'<figure class="bars"><figcaption>{escape(caption)}</figcaption>{draw_legend(legend or {})}{rows}</figure>'


def draw_legend(legend: Mapping[str, str]) -> str:
    """Draw the legend of colors by their keys; "" without any."""
    entries = "".join(
        f'<span><svg width="12" height="12" aria-hidden="true"><rect width="12" height="12" rx="2" fill="{_fill(key)}"/></svg>'
        f"{escape(text)}</span>"
        for key, text in legend.items()
    )
    return f'<div class="legend">{entries}</div>' if entries else ""


def _draw_bar(bar: Bar, zero: float, scale: float) -> str:
    """Draw a row; `zero` is its origin in percent, `scale` the percent of a unit."""
    left = right = zero
    shapes = []
    for piece in bar.pieces:
        size = abs(piece.value) * scale
        left -= size if piece.value < 0 else 0
        at = left if piece.value < 0 else right
        right += size if piece.value >= 0 else 0
        if size:
            shapes.append(
                f'<rect x="{at:.3f}%" width="{size:.3f}%" height="100%" fill="{_fill(piece.key)}">'
                f"<title>{escape(clean(piece.text))}</title></rect>"
            )
    if zero:
        shapes.append(f'<rect class="zero" x="{zero:.3f}%" width="1" height="100%"/>')
    label, spoken = escape(clean(bar.label)), escape(clean("; ".join(piece.text for piece in bar.pieces)))
    mark = ' class="row marked"' if bar.is_marked else ' class="row"'
    return (
        f'<div{mark}><span class="label" title="{label}">{label}</span>'
        f'<svg role="img" aria-label="{label}: {spoken}" width="100%" height="18">{"".join(shapes)}</svg>'
        f'<span class="value">{escape(clean(bar.text))}</span></div>'
    )


def _fill(key: str) -> str:
    return to_hex(color_of(key))

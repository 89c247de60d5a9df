"""Charts as pictures for papers and chat: SVG and PNG, drawn by matplotlib with the font it ships.

The same training makes the same bytes with the same version of matplotlib.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from nsys_pp.errors import NsysPPError
from nsys_pp.frames.training import Training
from nsys_pp.output.chart.bars import (
    build_bars,
    build_bubbles,
    build_step_spans,
    describe_missing,
    describe_run,
    name_kinds,
    time_span,
    used_causes,
    used_kinds,
)
from nsys_pp.output.chart.canvas import ARROW_LIMIT, Canvas, lay_out_lanes
from nsys_pp.output.chart.look import shade_of, to_hex

if TYPE_CHECKING:
    import polars as pl

_MUTED = "#5d6877"
_TEXT = "#1c2430"
_RC: dict[Any, Any] = {
    "svg.hashsalt": "nsys-pp",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "text.usetex": False,
    "text.parse_math": False,
    "path.simplify": False,
    "hatch.linewidth": 0.6,
}
_ROW = 18  # height of a row of the legend
_MARGIN = 14


def write_svg(
    training: Training,
    output: Path | BinaryIO,
    *,
    title: str,
    width_px: int = 1600,
    height_px: int | None = None,
) -> None:
    """Write the chart of a training as SVG; jobs of one kind are in one group (`jobs-forward`).

    Args:
        training: The run. Without lanes or jobs, the picture shows the reason instead of a chart.
        output: A path, which is replaced, or a binary stream.
        title: Heading of the picture.
        width_px: Width; 96 pixels are an inch.
        height_px: Height. Default: computed from the number of lanes.

    Raises:
        NsysPPError: matplotlib is not installed.
        ValueError: The size is too small.
    """
    _write(training, output, title=title, width_px=width_px, height_px=height_px, format="svg", scale=1)


def write_png(
    training: Training,
    output: Path | BinaryIO,
    *,
    title: str,
    width_px: int = 1600,
    height_px: int | None = None,
    scale: int = 2,
) -> None:
    """Write the chart of a training as PNG.

    Args:
        training: The run. Without lanes or jobs, the picture shows the reason instead of a chart.
        output: A path, which is replaced, or a binary stream.
        title: Heading of the picture.
        width_px: Width of the layout.
        height_px: Height of the layout. Default: computed from the number of lanes.
        scale: Pixels of the file per pixel of the layout.

    Raises:
        NsysPPError: matplotlib is not installed.
        ValueError: The size is too small.
    """
    _write(training, output, title=title, width_px=width_px, height_px=height_px, format="png", scale=scale)


def _write(
    training: Training,
    output: Path | BinaryIO,
    *,
    title: str,
    width_px: int,
    height_px: int | None,
    format: str,
    scale: int,
) -> None:
    try:
        from matplotlib import rc_context
    except ImportError as error:
        raise NsysPPError(
            "charts need `matplotlib`, which is not installed", "pip install 'nsys-pp[chart]'"
        ) from error
    metadata: dict[str, Any] = (
        {"Date": None, "Creator": "nsys-pp"} if format == "svg" else {"Software": "nsys-pp"}
    )
    content = io.BytesIO()
    with rc_context(_RC), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "(?s)Glyph .* missing from", UserWarning
        )  # the font draws a box for a missing glyph
        figure = _draw(training, title=title, width_px=width_px, height_px=height_px)
        figure.savefig(content, format=format, dpi=96 * scale, metadata=metadata)
    if isinstance(output, Path):
        output.write_bytes(content.getvalue())
    else:
        output.write(content.getvalue())


def _draw(training: Training, *, title: str, width_px: int, height_px: int | None) -> Any:
    bars, bubbles = build_bars(training), build_bubbles(training)
    has_messages = training.transfers.height > 0 or bool(bars["is_message"].any())
    texts = name_kinds(training, used_kinds(bars, training.transfers))
    rows = _legend_rows(texts, training.transfers, bubbles, width_px)
    below = _ROW * len(rows) + _MARGIN
    layout = lay_out_lanes(training.lanes, has_messages=has_messages, height_px=height_px, below_px=below)
    if width_px < 400 or layout.height_px < 120:
        raise ValueError(f"{width_px} x {layout.height_px} pixels is too small for a chart")
    canvas = Canvas(width_px, layout, time_span(training, bars), training.zero_ns)
    canvas.draw_lanes(training.lanes)
    canvas.draw_bubbles(bubbles)
    canvas.draw_jobs(bars, has_arrows=training.transfers.height > 0)
    canvas.draw_messages(training.transfers)
    canvas.draw_steps(training.steps, build_step_spans(training))
    _draw_texts(canvas, title, describe_run(training), describe_missing(training))
    for number, row in enumerate(rows):
        y = layout.height_px - below + _MARGIN / 2 + _ROW * number
        for x, look, text in row:
            canvas.write_key(x, y, text, **look)
    return canvas.figure


def _draw_texts(canvas: Canvas, title: str, facts: list[str], missing: str) -> None:
    room = canvas.width_px - 2 * _MARGIN
    canvas.write(_MARGIN, 20, canvas.shorten(title, 14, room, bold=True), size=14, color=_TEXT, bold=True)
    canvas.write(_MARGIN, 39, canvas.shorten("  ·  ".join(facts), 10, room), size=10, color=_MUTED)
    if missing:
        canvas.write(_MARGIN, 84, canvas.shorten(missing, 11, room), size=11, color=_TEXT)


def _legend_rows(
    kind_texts: dict[str, str], transfers: pl.DataFrame, bubbles: pl.DataFrame, width_px: int
) -> list[list[tuple[float, dict[str, Any], str]]]:
    """Arrange the legend: per row, the x, the swatch and the text of each entry."""
    entries: list[tuple[dict[str, Any], str]] = [
        ({"color": to_hex(shade_of(kind, 0))}, text) for kind, text in kind_texts.items()
    ]
    if transfers.height:
        text = "waits" if transfers.height <= ARROW_LIMIT else "waits (too many messages for arrows)"
        entries.append(({"color": to_hex(shade_of("receive", 0)), "is_hatched": True}, text))
    entries += [({"cause": cause}, f"bubble: {cause.replace('_', ' ')}") for cause in used_causes(bubbles)]
    rows: list[list[tuple[float, dict[str, Any], str]]] = []
    x = float("inf")
    for look, text in entries:
        size = 40 + Canvas.width_of(text, 10)
        if x + size > width_px - _MARGIN:
            rows.append([])
            x = _MARGIN
        rows[-1].append((x, look, text))
        x += size
    return rows

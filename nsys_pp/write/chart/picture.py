"""Pictures for papers and chat: SVG and PNG, drawn by matplotlib with its own fonts.

Equal trainings give equal bytes with one version of matplotlib.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from nsys_pp.errors import NsysPPError
from nsys_pp.frames.training import Training
from nsys_pp.write.chart.bars import (
    build_bars,
    build_bubbles,
    build_step_spans,
    describe_run,
    time_span,
    used_causes,
    used_kinds,
    what_is_missing,
)
from nsys_pp.write.chart.canvas import ARROW_LIMIT, Canvas, place_lanes
from nsys_pp.write.chart.look import shade_of, to_hex

if TYPE_CHECKING:
    import polars as pl

MUTED = "#5d6877"
TEXT = "#1c2430"
LINE = "#dde2e8"
_RC: dict[Any, Any] = {
    "svg.hashsalt": "nsys-pp",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "text.usetex": False,
    "text.parse_math": False,
    "path.simplify": False,
    "hatch.linewidth": 0.6,
}
_ROW = 18  # of the legend
_MARGIN = 14


def write_svg(
    training: Training,
    output: Path | BinaryIO,
    *,
    title: str,
    width_px: int = 1600,
    height_px: int | None = None,
) -> None:
    """Draw a training as SVG; every job is a path in the group of its kind (`jobs-forward`).

    Args:
        training: What is drawn, all of it. Empty frames give a picture that says what is missing.
        output: A path, which is replaced, or a binary stream.
        title: What stands above it.
        width_px: Width, 96 to the inch.
        height_px: Height; by the number of lanes if None.

    Raises:
        NsysPPError: matplotlib is not installed.
        ValueError: The size is too small to draw anything in.
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
    """Draw a training as PNG.

    Args:
        training: What is drawn, all of it. Empty frames give a picture that says what is missing.
        output: A path, which is replaced, or a binary stream.
        title: What stands above it.
        width_px: Width as it is laid out.
        height_px: Height as it is laid out; by the number of lanes if None.
        scale: Pixels of the file for each of these.

    Raises:
        NsysPPError: matplotlib is not installed.
        ValueError: The size is too small to draw anything in.
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
        warnings.filterwarnings("ignore", "(?s)Glyph .* missing from", UserWarning)  # a box stands for it
        figure = _draw(training, title=title, width_px=width_px, height_px=height_px)
        figure.savefig(content, format=format, dpi=96 * scale, metadata=metadata)
    if isinstance(output, Path):
        output.write_bytes(content.getvalue())
    else:
        output.write(content.getvalue())


def _draw(training: Training, *, title: str, width_px: int, height_px: int | None) -> Any:
    bars, bubbles = build_bars(training), build_bubbles(training)
    has_talk = training.transfers.height > 0 or bool(bars["is_talk"].any())
    rows = _legend_rows(bars, training.transfers, bubbles, width_px)
    below = _ROW * len(rows) + _MARGIN
    places = place_lanes(training.lanes, has_talk=has_talk, height_px=height_px, below_px=below)
    if width_px < 400 or places.height_px < 120:
        raise ValueError(f"{width_px} x {places.height_px} pixels are too few for a chart")
    canvas = Canvas(width_px, places, time_span(training, bars), training.zero_ns)
    canvas.draw_lanes(training.lanes)
    canvas.draw_bubbles(bubbles)
    canvas.draw_jobs(bars, has_arrows=training.transfers.height > 0)
    canvas.draw_messages(training.transfers)
    canvas.draw_steps(training.steps, build_step_spans(training))
    _draw_words(canvas, title, describe_run(training), what_is_missing(training))
    for number, row in enumerate(rows):
        y = places.height_px - below + _MARGIN / 2 + _ROW * number
        for x, look, words in row:
            canvas.write_key(x, y, words, **look)
    return canvas.figure


def _draw_words(canvas: Canvas, title: str, facts: list[str], missing: str) -> None:
    room = canvas.width_px - 2 * _MARGIN
    canvas.write(_MARGIN, 20, canvas.shorten(title, 14, room, bold=True), size=14, color=TEXT, bold=True)
    canvas.write(_MARGIN, 39, canvas.shorten("  ·  ".join(facts), 10, room), size=10, color=MUTED)
    if missing:
        canvas.write(_MARGIN, 84, canvas.shorten(missing, 11, room), size=11, color=TEXT)


def _legend_rows(
    bars: pl.DataFrame, transfers: pl.DataFrame, bubbles: pl.DataFrame, width_px: int
) -> list[list[tuple[float, dict[str, Any], str]]]:
    """Return swatches and words of the legend by row, with where each begins."""
    entries: list[tuple[dict[str, Any], str]] = [
        ({"color": to_hex(shade_of(kind, 0))}, kind.replace("_", " ")) for kind in used_kinds(bars, transfers)
    ]
    if transfers.height:
        words = "waits" if transfers.height <= ARROW_LIMIT else "waits (too many messages for arrows)"
        entries.append(({"color": to_hex(shade_of("receive", 0)), "is_hatched": True}, words))
    entries += [({"cause": cause}, f"bubble: {cause.replace('_', ' ')}") for cause in used_causes(bubbles)]
    rows: list[list[tuple[float, dict[str, Any], str]]] = []
    x = float("inf")
    for look, words in entries:
        size = 40 + Canvas.width_of(words, 10)
        if x + size > width_px - _MARGIN:
            rows.append([])
            x = _MARGIN
        rows[-1].append((x, look, words))
        x += size
    return rows

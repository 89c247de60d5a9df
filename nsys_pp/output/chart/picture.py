"""Charts as pictures for papers and chat: SVG and PNG, drawn by matplotlib with the font it ships.

The same training makes the same bytes with the same version of matplotlib.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.errors import NsysPPError
from nsys_pp.frames.training import BUBBLE_CAUSES, JOB_KINDS, Training
from nsys_pp.output.chart.content import (
    build_bars,
    build_bubbles,
    build_step_spans,
    describe_missing,
    describe_run,
    name_kinds,
    name_lanes,
    time_span,
    used_causes,
    used_kinds,
)
from nsys_pp.output.colors import SHADES, WHITE, color_of, mix, shade_of, text_on, to_hex

if TYPE_CHECKING:
    import polars as pl


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


LEFT = 190  # x of the start of lanes


RIGHT = 14


TOP = 96  # y of the first lane, below title, time axis and steps


_STEP_TOP, _STEP_HEIGHT = 72, 18


_STAGE_GAP = 8


_MAX_BOXES = 4000  # boxes per path: rasterizers refuse longer paths


ARROW_LIMIT = 2500  # more arrows are indistinguishable


_MIN_LINED = 3  # pixels; narrower bars have no white outline


_BUBBLE_TINT = 0.42


# bubbles inside a bar: share of the bar's height, and share of the cause's color
_EDGE, _EDGE_TINT = 0.1, 0.6


_PALE = 0.35


_TEXT, _MUTED, _LINE, _BAND = "#1c2430", "#5d6877", "#dde2e8", "#f6f7f9"


Array = np.ndarray[Any, Any]


class LaneLayout(Struct, frozen=True, kw_only=True):
    """Positions of lanes, in pixels."""

    height_px: int  # of the picture
    tops: Array  # y of each lane
    size: float  # height of a lane
    pad: float  # above and below the contents of a lane
    bar: float  # height of jobs
    message: float  # height of the row of sends, and of the row of receives; 0 without messages


def lay_out_lanes(
    lanes: pl.DataFrame, *, has_messages: bool, height_px: int | None, below_px: int
) -> LaneLayout:
    """Compute the positions of lanes; without `height_px`, the height is computed from their number."""
    stage = lanes["stage"].fill_null(-1).to_numpy()
    is_new = np.diff(stage, prepend=stage[:1]) != 0
    gaps = _STAGE_GAP * np.cumsum(is_new)
    gaps_height = float(gaps[-1]) if gaps.size else 0.0
    count = max(1, lanes.height)
    if height_px is None:
        size = float(np.clip(900 / count, 30 if count <= 64 else 22, 76))
        height_px = int(np.ceil(TOP + count * size + gaps_height + below_px))
    else:
        size = max(1.0, (height_px - TOP - below_px - gaps_height) / count)
    pad = 4.0 if size >= 40 else 0.08 * size
    message = (size - 2 * pad) * 0.16 if has_messages else 0.0
    return LaneLayout(
        height_px=height_px,
        tops=TOP + np.arange(lanes.height) * size + gaps,
        size=size,
        pad=pad,
        bar=size - 2 * pad - (2 * message + 3 if message else 0),
        message=message,
    )


def arrow_alpha(count: int) -> float:
    """Return the opacity of arrows: the more arrows, the fainter, so that bars remain visible, as on the page.

    >>> [round(arrow_alpha(count), 2) for count in (10, 500, 1000, 2500)]
    [0.6, 0.6, 0.3, 0.18]
    """
    return 0.6 * min(1.0, max(0.3, 500 / max(count, 1)))


class Canvas:
    """A matplotlib figure in pixel coordinates: 96 pixels are an inch, y points down."""

    def __init__(self, width_px: int, layout: LaneLayout, span: tuple[int, int], zero_ns: int) -> None:
        from matplotlib.figure import Figure

        self.width_px, self.layout, self.zero_ns = width_px, layout, zero_ns
        margin = max(1, (span[1] - span[0]) // 200)
        self.start, self.end = span[0] - margin, span[1] + margin
        self.figure = Figure(figsize=(width_px / 96, layout.height_px / 96), dpi=96, facecolor="white")
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, width_px), ylim=(layout.height_px, 0))
        self.axes.axis("off")

    def x(self, time_ns: pl.Series) -> Array:
        """Return the x of times; the start is subtracted as an integer, since doubles lose nanoseconds."""
        share = (time_ns - self.start).to_numpy() / (self.end - self.start)
        return np.asarray(LEFT + share * (self.width_px - LEFT - RIGHT), np.float64)

    def draw_lanes(self, lanes: pl.DataFrame) -> None:
        """Draw the label and the background band of each lane."""
        layout = self.layout
        self._draw_axis(bool(lanes.height))
        stages = lanes["stage"].to_list()
        for lane, (label, gpu) in enumerate(name_lanes(lanes).iter_rows()):
            top = float(layout.tops[lane])
            self._fill(LEFT, top + layout.pad, self.width_px - RIGHT, layout.bar, _BAND, z=0)
            is_first = lane == 0 or stages[lane] != stages[lane - 1]
            middle = top + layout.size / 2
            if is_first and stages[lane] is not None:
                self.write(12, middle, f"stage {stages[lane]}", size=9.5, color=_TEXT, bold=True)
            if is_first and lane:
                self._fill(12, top - _STAGE_GAP / 2, self.width_px - RIGHT, 0.8, _LINE, z=0)
            room = LEFT - 84
            size = min(10.0, layout.size * 0.6)
            if both := bool(gpu) and layout.size >= 32:
                self.write(76, middle + 8, self.shorten(gpu, 8.5, room), size=8.5, color=_MUTED)
            self.write(76, middle - 6 * both, self.shorten(label, size, room), size=size, color=_TEXT)

    def draw_bubbles(self, bubbles: pl.DataFrame) -> None:
        """Shade bubbles by cause."""
        for cause in BUBBLE_CAUSES:
            own = bubbles.filter(pl.col("cause") == cause)
            top = self.layout.tops[own["lane"].to_numpy()] + self.layout.pad
            left, right = self.x(own["start_ns"]), self.x(own["end_ns"])
            self._boxes(left, right, top, self.layout.bar, fill=_tint(cause), gid=f"bubbles-{cause}", z=1)
            # a bar hides bubbles inside it: they are drawn at its lower edge
            edge = self.layout.bar * _EDGE
            bottom = top + self.layout.bar - edge
            color = to_hex(mix(WHITE, color_of(cause), _EDGE_TINT))
            self._boxes(left, right, bottom, edge, fill=color, gid=f"edges-{cause}", z=4.5)

    def draw_jobs(self, bars: pl.DataFrame, *, has_arrows: bool) -> None:
        """Draw jobs, with the labels that fit into their bars."""
        layout = self.layout
        for kind in JOB_KINDS:
            own = bars.filter(pl.col("kind") == kind)
            is_message = bool(own.height) and bool(own["is_message"][0])
            lane_top = layout.tops[own["lane"].to_numpy()] + layout.pad
            inset = np.minimum(own["depth"].to_numpy(), 3) * round(layout.bar * 0.22)
            height = layout.bar - inset
            top = lane_top + inset
            if is_message:
                is_low = kind == "receive"
                top = lane_top + layout.bar + 2 + is_low * (layout.message + 1)
                height = np.full(
                    own.height, 2 * layout.message + 1 if kind == "send_receive" else layout.message
                )
            left, right = self.x(own["bar_start_ns"]), self.x(own["bar_end_ns"])
            fills = [_hex(kind, shade, is_message) for shade in range(SHADES)]
            colors = np.array(fills)[own["shade"].to_numpy()]
            z = 3 + float(is_message)
            self._boxes(left, right, top, height, fill=colors, gid=f"jobs-{kind}", z=z)
            if not (is_message and has_arrows):
                by_shade = [to_hex(text_on(shade_of(kind, shade))) for shade in range(SHADES)]
                text_colors = [_TEXT if is_message else by_shade[shade] for shade in own["shade"].to_list()]
                self._label(own["label"].to_list(), left, right, top, height, text_colors)

    def draw_messages(self, transfers: pl.DataFrame) -> None:
        """Draw the kernels of messages, their waits hatched, and an arrow per transfer."""
        if not transfers.height:
            return
        from matplotlib.collections import PathCollection
        from matplotlib.path import Path

        layout = self.layout
        ends = {}
        for kind, lane, shift in [("send", "sender", 0.0), ("receive", "receiver", layout.message + 1)]:
            top = layout.tops[transfers[lane].to_numpy()] + layout.pad + layout.bar + 2 + shift
            start, end = transfers[f"{kind}_start_ns"], transfers[f"{kind}_end_ns"]
            left, right = self.x(start), self.x(end)
            wait_end = np.minimum(self.x(start + transfers[f"{kind}_wait_ns"].fill_null(0)), right)
            pale, full = _hex(kind, 0, True), _hex(kind, 0, False)
            width = wait_end - left
            # hatches are unreadable in narrow boxes
            for waits, hatch in [((width > 0) & (width <= 3), None), (width > 3, full)]:
                box = left[waits], wait_end[waits], top[waits]
                self._boxes(*box, layout.message, fill=pale, gid=f"waits-{kind}", z=5, hatch=hatch)
            self._boxes(wait_end, right, top, layout.message, fill=full, gid=f"messages-{kind}", z=6)
            ends[kind] = (left if kind == "send" else right, top + layout.message / 2)
        if transfers.height > ARROW_LIMIT:
            return
        # lanes with clocks that cannot be compared have no arrows
        has_arrow = transfers["transfer_ns"].is_not_null().to_numpy()
        (x1, y1), (x2, y2) = ([values[has_arrow] for values in ends[kind]] for kind in ("send", "receive"))
        bend = np.clip(np.abs(x2 - x1) / 2, 6, 60)
        points = np.stack([np.stack([x1, x1 + bend, x2 - bend, x2], 1), np.stack([y1, y1, y2, y2], 1)], 2)
        codes = np.array([Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4], Path.code_type)
        by_direction = {"forward": color_of("forward"), "backward": color_of("backward")}
        directions = [
            to_hex(by_direction.get(name, (93, 104, 119)))
            for name in transfers["direction"].filter(has_arrow).to_list()
        ]
        curves = PathCollection(
            [Path(curve, codes) for curve in points],
            facecolors="none",
            edgecolors=directions,
            linewidths=0.7,
            alpha=arrow_alpha(len(points)),
            zorder=8,
            gid="arrows",
        )
        self.axes.add_collection(curves, autolim=False)
        heads = np.stack([np.stack([x2, x2 - 4, x2 - 4], 1), np.stack([y2, y2 - 2.2, y2 + 2.2], 1)], 2)
        self._polygons(
            heads, fill=np.array(directions), gid="arrow-heads", z=8, alpha=arrow_alpha(len(points))
        )

    def draw_steps(self, steps: pl.DataFrame, spans: pl.DataFrame) -> None:
        """Draw the row of steps, and on each lane a line at the start of each of its steps."""
        layout = self.layout
        top = layout.tops[steps["lane"].to_numpy()]
        left = self.x(steps["start_ns"])
        self._boxes(left - 0.4, left + 0.4, top, layout.size, fill="#b4bdc9", gid="step-lines", z=7)
        next_start = spans["start_ns"].shift(-1).fill_null(np.iinfo(np.int64).max)
        end = pl.select(pl.min_horizontal(spans["end_ns"], next_start)).to_series()
        left, right = self.x(spans["start_ns"]), self.x(end)
        fill = np.array(["#dce4ed", "#e9eef4"])[np.arange(spans.height) % 2]
        tops = np.full(spans.height, float(_STEP_TOP))
        heights = np.full(spans.height, float(_STEP_HEIGHT))
        self._boxes(left, right, tops, heights, fill=fill, gid="steps", z=2)
        texts = [
            f"step {step}{' (cut)' if cut else ''}"
            for step, cut in spans.select("step", "is_partial").iter_rows()
        ]
        self._label(texts, left, right, tops, heights, [_TEXT] * spans.height)

    def write_key(
        self, x: float, y: float, text: str, *, color: str = "", cause: str = "", is_hatched: bool = False
    ) -> None:
        """Draw an entry of the legend: a swatch and its text."""
        box = (np.array([x]), np.array([x + 11]), np.array([y + 3]))
        fill = (
            _tint(cause) if cause else to_hex(mix(WHITE, color_of("receive"), _PALE)) if is_hatched else color
        )
        self._boxes(*box, 11.0, fill=fill, gid=None, z=5, hatch=color if is_hatched else None)
        self.write(x + 17, y + 9, text, size=10, color=_TEXT)

    def write(self, x: float, y: float, text: str, *, size: float, color: str, bold: bool = False) -> None:
        """Write a text on one line; it starts at x and is centered vertically at y. The size is in pixels."""
        self.axes.text(
            x,
            y,
            text,
            size=size * 0.75,
            color=color,
            va="center_baseline",
            weight="bold" if bold else "normal",
            zorder=9,
        )

    @staticmethod
    @cache
    def width_of(text: str, size: float, bold: bool = False) -> float:
        """Return the width of a text, in pixels."""
        from matplotlib.font_manager import FontProperties
        from matplotlib.textpath import text_to_path

        font = FontProperties(family="DejaVu Sans", size=size, weight="bold" if bold else "normal")
        return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0])

    def shorten(self, text: str, size: float, room: float, *, bold: bool = False) -> str:
        """Shorten a text to one line of at most `room` pixels; a shortened text ends with "…"."""
        line = " ".join(text.split())
        if self.width_of(line, size, bold) <= room:
            return line
        low, high = 0, len(line)
        while low < high:
            middle = (low + high + 1) // 2
            if self.width_of(line[:middle] + "…", size, bold) <= room:
                low = middle
            else:
                high = middle - 1
        return line[:low] + "…"

    def _draw_axis(self, has_lanes: bool) -> None:
        from matplotlib.ticker import MaxNLocator

        if not has_lanes:
            return
        first, last = self.start - self.zero_ns, self.end - self.zero_ns
        bottom = float(self.layout.tops[-1]) + self.layout.size
        ticks = [
            int(tick) for tick in MaxNLocator(9, steps=[1, 2, 5, 10], integer=True).tick_values(first, last)
        ]
        shown = [tick for tick in ticks if first <= tick <= last]
        step = ticks[1] - ticks[0]
        for tick, x in zip(shown, self.x(pl.Series(shown, dtype=pl.Int64) + self.zero_ns), strict=True):
            self._fill(x - 0.4, _STEP_TOP - 6, x + 0.4, bottom - _STEP_TOP + 6, _LINE, z=-1)
            text = format_time(tick, step)
            self.write(x - self.width_of(text, 9.5) / 2, _STEP_TOP - 13, text, size=9.5, color=_MUTED)

    def _fill(self, left: float, top: float, right: float, height: float, color: str, *, z: float) -> None:
        edges = (np.array([left]), np.array([right]), np.array([top]))
        self._boxes(*edges, height, fill=color, gid=None, z=z)

    def _boxes(
        self,
        left: Array,
        right: Array,
        top: Array,
        height: Array | float,
        *,
        fill: str | Array,
        gid: str | None,
        z: float,
        hatch: str | None = None,
    ) -> None:
        bottom = top + height
        corners = np.stack(
            [np.stack([left, left, right, right], 1), np.stack([top, bottom, bottom, top], 1)], 2
        )
        is_wide = (right - left > _MIN_LINED) if z >= 3 and not hatch else np.zeros(len(left), bool)
        for rows, line in [(~is_wide, 0.0), (is_wide, 0.6)]:
            own = fill[rows] if isinstance(fill, np.ndarray) else fill
            self._polygons(corners[rows], fill=own, gid=gid, z=z, line=line, hatch=hatch)

    def _polygons(
        self,
        corners: Array,
        *,
        fill: str | Array,
        gid: str | None,
        z: float,
        line: float = 0.0,
        hatch: str | None = None,
        alpha: float = 1.0,
    ) -> None:
        """Draw polygons, one path per color: a file with many paths is large and slow."""
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        count = corners.shape[1]
        closed = np.concatenate([corners, corners[:, :1]], 1)
        codes = np.array([Path.MOVETO, *[Path.LINETO] * (count - 1), Path.CLOSEPOLY], Path.code_type)
        for color in np.unique(fill):
            own = closed[fill == color] if isinstance(fill, np.ndarray) else closed
            for first in range(0, len(own), _MAX_BOXES):
                shapes = own[first : first + _MAX_BOXES]
                patch = PathPatch(
                    Path(shapes.reshape(-1, 2), np.tile(codes, len(shapes))),
                    facecolor=str(color),
                    edgecolor=hatch or "white",
                    linewidth=line,
                    hatch="//////" if hatch else None,
                    zorder=z,
                    alpha=alpha,
                    gid=gid,
                )
                self.axes.add_artist(patch)

    def _label(
        self,
        texts: Sequence[str | None],
        left: Array,
        right: Array,
        top: Array,
        height: Array,
        colors: list[str],
    ) -> None:
        texts = [" ".join(text.split()) if text else None for text in texts]
        room = right - left - 4
        widths = {text: self.width_of(text, 1.0) for text in set(texts) if text}
        unit = np.array([widths.get(text, np.inf) if text else np.inf for text in texts])
        size = np.minimum(11.0, height * 0.72)
        for index in np.flatnonzero((unit * size <= room) & (size >= 7)):
            text = texts[int(index)]
            self.axes.text(
                (left[index] + right[index]) / 2,
                top[index] + height[index] / 2,
                str(text),
                size=size[index] * 0.75,
                color=colors[index],
                ha="center",
                va="center_baseline",
                zorder=9,
            )


def format_time(ns: int, step: int) -> str:
    """Format ns in s, ms, µs or ns, with enough digits to distinguish ticks that are `step` ns apart."""
    if ns == 0:
        return "0"
    unit, scale = next(
        ((unit, scale) for unit, scale in [("s", 10**9), ("ms", 10**6), ("µs", 10**3)] if abs(ns) >= scale),
        ("ns", 1),
    )
    digits = max(0, int(np.ceil(-np.log10(step / scale) - 1e-9)))
    return f"{ns / scale:.{digits}f} {unit}".replace("-", "−")


def _hex(kind: str, shade: int, is_pale: bool) -> str:
    color = shade_of(kind, shade)
    return to_hex(mix(WHITE, color, _PALE) if is_pale else color)


def _tint(cause: str) -> str:
    return to_hex(mix(WHITE, color_of(cause), _BUBBLE_TINT))


_MOST_JOBS = 3_000  # an SVG of more is slow to draw, and bars would be thinner than a pixel


def draw_small_chart(training: Training) -> str:
    """Draw the chart of a run; "" if it has no jobs or too many, or if matplotlib is not installed."""
    if not 0 < len(training.jobs) <= _MOST_JOBS or find_spec("matplotlib") is None:
        return ""
    from nsys_pp.output.chart.picture import write_svg

    picture = BytesIO()
    write_svg(training, picture, title="")
    svg = picture.getvalue().decode()
    return svg[svg.index("<svg") :].replace("<svg ", '<svg style="max-width:100%;height:auto" ', 1)

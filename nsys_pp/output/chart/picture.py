"""Charts as pictures for papers and chat: SVG, and PNG, which is the same SVG through resvg.

Lanes are from top to bottom, time from left to right; coordinates are pixels from the top left corner. Widths
of texts are estimated, as the font is the viewer's. The same training makes the same bytes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Sequence
from html import escape
from itertools import accumulate
from typing import Any, BinaryIO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys_pp.errors import NsysPPError
from nsys_pp.frames.training import BUBBLE_CAUSES, JOB_KINDS, Training, span_steps
from nsys_pp.frames.verdict import NO_VERDICT, Verdict
from nsys_pp.output.chart.content import (
    build_bars,
    build_bubbles,
    describe_missing,
    describe_run,
    list_named_lanes,
    name_kinds,
    name_lanes,
    time_span,
    used_causes,
    used_kinds,
)
from nsys_pp.output.colors import HATCH_PX, HATCHES, SHADES, WHITE, color_of, mix, shade_of, text_on
from nsys_pp.output.tables.text import clean
from nsys_pp.output.trace.tracks import round_up

WIDTH, LEFT, MARGIN = 1600, 190, 14  # of the picture, of the labels of lanes, and around texts and lanes
_STEP_TOP, _BELOW = 72, 24  # y of the row of steps without findings, and of the first lane below it
_FINDING = 15  # height of the line of a finding
_STAGE_GAP = 8
_ROW = 18  # height of the row of steps, and of a row of the legend
_MOST_ARROWS = 2500  # more are indistinguishable
_MOST_JOBS = (
    3_000  # of a chart in a notebook: an SVG of more is slow to draw, and bars would be thinner than a pixel
)
_LEAST_LINED = 3  # pixels; narrower bars have no white outline
_TEXT, _MUTED, _LINE, _BAND, _ACCENT = "#1c2430", "#5d6877", "#dde2e8", "#f6f7f9", "#d6246e"
_FONTS = "'DejaVu Sans', Roboto, Arial, 'Liberation Sans', 'Noto Sans', sans-serif"
_PROBE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" font-family="{}"><text y="9">{}'
    "</text></svg>"
)
_Array = NDArray[Any]


def write_svg(training: Training, output: BinaryIO, *, title: str, verdict: Verdict = NO_VERDICT) -> None:
    """Write the chart of a training as SVG; jobs of one kind are in one group (`jobs-forward`).

    Args:
        training: The run. Without lanes or jobs, the picture shows the reason instead of a chart.
        output: A binary stream.
        title: Heading of the picture.
        verdict: Findings below it; the ranks that they name are marked.
    """
    output.write(_draw(training, title, verdict).encode())


def write_png(training: Training, output: BinaryIO, *, title: str, verdict: Verdict = NO_VERDICT) -> None:
    """Write the chart of a training as PNG, as `write_svg` draws it, with two pixels for one.

    Raises:
        NsysPPError: The machine has no font.
    """
    from resvg_py import svg_to_bytes

    empty, text = (svg_to_bytes(_PROBE.format(_FONTS, letter)) for letter in ("", "M"))
    if empty == text:
        raise NsysPPError("charts as PNG need a font, and this machine has none", "write an `.svg`")
    output.write(svg_to_bytes(_draw(training, title, verdict), zoom=2))


def draw_small_chart(training: Training) -> str:
    """Draw the chart of a run as SVG for a notebook; "" if it has no jobs or too many."""
    if not 0 < len(training.jobs) <= _MOST_JOBS:
        return ""
    return _draw(training, "", NO_VERDICT).replace("<svg ", '<svg style="max-width:100%;height:auto" ', 1)


def _draw(training: Training, title: str, verdict: Verdict) -> str:
    bars, bubbles = build_bars(training), build_bubbles(training)
    legend = _arrange_legend(training, bars, bubbles)
    below = _ROW * len(legend) + MARGIN
    has_messages = training.transfers.height > 0 or bool(bars["is_message"].any())
    picture = _Picture(training, time_span(training, bars), len(verdict.lines), below, has_messages)
    picture.draw_axis()
    picture.draw_lanes(training.lanes, list_named_lanes(training.lanes, verdict.findings))
    picture.draw_bubbles("bubbles", bubbles, BUBBLE_CAUSES)
    picture.draw_steps(training.steps, span_steps(training.steps).sort("start_ns", "step"))
    picture.draw_jobs(bars, has_arrows=training.transfers.height > 0)
    # the bubbles that bars hide
    picture.draw_bubbles("edges", bubbles, used_causes(bubbles), share=0.3)
    picture.draw_messages(training.transfers)
    room = WIDTH - 2 * MARGIN
    picture.write(MARGIN, 20, title, size=14, room=room, is_bold=True)
    picture.write(MARGIN, 39, "  ·  ".join(describe_run(training)), size=10, room=room, color=_MUTED)
    for number, line in enumerate(verdict.lines):
        picture.write(MARGIN, 56 + _FINDING * number, line, size=10, room=room)
    picture.write(MARGIN, picture.step_top + 12, describe_missing(training), size=11, room=room)
    for number, row in enumerate(legend):
        y = picture.height_px - below + MARGIN / 2 + _ROW * number
        for x, fill, text in row:
            picture.add_boxes("", x, x + 11, y + 3, 11, fill, is_lined=fill.startswith("#"))
            picture.write(x + 17, y + 9, text, size=10)
    return picture.finish()


def _arrange_legend(
    training: Training, bars: pl.DataFrame, bubbles: pl.DataFrame
) -> list[list[tuple[float, str, str]]]:
    transfers = training.transfers
    kinds = name_kinds(training, used_kinds(bars, transfers))
    entries = [(shade_of(kind, 0), text) for kind, text in kinds.items()]
    if transfers.height:
        is_full = transfers.height > _MOST_ARROWS
        entries.append(("url(#hatch-receive)", "waits" + " (too many messages for arrows)" * is_full))
    entries += [(_fill_bubble(cause), f"bubble: {cause.replace('_', ' ')}") for cause in used_causes(bubbles)]
    rows: list[list[tuple[float, str, str]]] = []
    x = float("inf")
    for fill, text in entries:
        size = 40 + _measure(text, 10)
        if x + size > WIDTH - MARGIN:
            rows.append([])
            x = MARGIN
        rows[-1].append((x, fill, text))
        x += size
    return rows


class _Picture:
    """The shapes of a picture, and the places of lanes and times in it."""

    def __init__(
        self,
        training: Training,
        span: tuple[int, int],
        finding_count: int,
        below_px: int,
        has_messages: bool,
    ) -> None:
        self._shapes: list[str] = []
        self._texts: list[str] = []  # above all shapes
        self._zero_ns = training.zero_ns
        margin = max(1, (span[1] - span[0]) // 200)
        self._start_ns, self._end_ns = span[0] - margin, span[1] + margin
        stage = training.lanes["stage"].fill_null(-1).to_numpy()
        gaps = _STAGE_GAP * np.cumsum(np.diff(stage, prepend=stage[:1]) != 0)
        count = max(1, len(stage))
        self._size = float(np.clip(900 / count, 30 if count <= 64 else 22, 76))  # height of a lane
        self.step_top = _STEP_TOP + _FINDING * finding_count
        first = self.step_top + _BELOW
        self.height_px = int(np.ceil(first + count * self._size + float(gaps.max(initial=0)) + below_px))
        self._tops = first + np.arange(len(stage)) * self._size + gaps
        self._pad = 4.0 if self._size >= 40 else 0.08 * self._size  # above and below the contents of a lane
        inner = self._size - 2 * self._pad
        self._message = 0.16 * inner if has_messages else 0.0  # of the row of sends, and of that of receives
        self._bar = inner - (2 * self._message + 3 if has_messages else 0)

    def draw_axis(self) -> None:
        if not len(self._tops):
            return
        first, last = self._start_ns - self._zero_ns, self._end_ns - self._zero_ns
        step = round_up(-(-(last - first) // 9))
        ticks = np.arange(-(-first // step) * step, last + 1, step)
        bottom = float(self._tops[-1]) + self._size
        self.write(12, self.step_top + _ROW / 2, "time since the start of the run", size=9, color=_MUTED)
        for tick, x in zip(ticks.tolist(), self._find_x(pl.Series(ticks + self._zero_ns)), strict=True):
            top = self.step_top - 6
            self.add_boxes("", x - 0.4, x + 0.4, top, bottom - top, _LINE)
            self.write(x, top - 7, format_time(tick, step), size=9.5, color=_MUTED, anchor="middle")

    def draw_lanes(self, lanes: pl.DataFrame, named: Collection[int]) -> None:
        """Draw the label, marked where the verdict names it, and the background band of each lane."""
        stages, right = lanes["stage"].to_list(), WIDTH - MARGIN
        for lane, (label, gpu) in enumerate(name_lanes(lanes).iter_rows()):
            top = float(self._tops[lane])
            self.add_boxes("", LEFT, right, top + self._pad, self._bar, _BAND)
            is_first = lane == 0 or stages[lane] != stages[lane - 1]
            middle = top + self._size / 2
            if is_first and stages[lane] is not None:
                self.write(12, middle, f"stage {stages[lane]}", size=9.5, is_bold=True)
            if is_first and lane:
                self.add_boxes("", 12, right, top - _STAGE_GAP / 2, 0.8, _LINE)
            has_both = bool(gpu) and self._size >= 32
            if has_both:
                self.write(76, middle + 8, gpu, size=8.5, color=_MUTED, room=LEFT - 84)
            self.write(
                76,
                middle - 6 * has_both,
                label,
                size=min(10.0, self._size * 0.6),
                room=LEFT - 84,
                color=_ACCENT if lane in named else _TEXT,
                is_bold=lane in named,
            )

    def draw_bubbles(
        self, name: str, bubbles: pl.DataFrame, causes: Iterable[str], *, share: float = 1.0
    ) -> None:
        """Shade bubbles by cause, from the lower edge of the bars up to a share of their height."""
        height = self._bar * share
        for cause in causes:
            own = bubbles.filter(pl.col("cause") == cause)
            top = self._tops[own["lane"].to_numpy()] + self._pad + (self._bar - height)
            left, right = self._find_x(own["start_ns"]), self._find_x(own["end_ns"])
            self.add_boxes(f"{name}-{cause}", left, right, top, height, _fill_bubble(cause))

    def draw_steps(self, steps: pl.DataFrame, spans: pl.DataFrame) -> None:
        """Draw the row of steps, and on each lane a line at the start of each of its steps."""
        end_ns = spans.select(pl.min_horizontal("end_ns", pl.col("start_ns").shift(-1))).to_series()
        left, right = self._find_x(spans["start_ns"]), self._find_x(end_ns)
        fills = np.array(["#dce4ed", "#e9eef4"])[np.arange(spans.height) % 2]
        self.add_boxes("steps", left, right, self.step_top, _ROW, fills)
        texts = [
            f"{'inferred ' * is_inferred}step {step}{' (cut)' * is_cut}"
            for step, is_cut, is_inferred in spans.select("step", "is_partial", "is_inferred").iter_rows()
        ]
        self._label(texts, left, right, self.step_top, _ROW, [_TEXT] * spans.height)
        x, top = self._find_x(steps["start_ns"]), self._tops[steps["lane"].to_numpy()]
        self.add_boxes("step-lines", x - 0.4, x + 0.4, top, self._size, "#b4bdc9")

    def draw_jobs(self, bars: pl.DataFrame, *, has_arrows: bool) -> None:
        """Draw jobs, with the labels that fit into their bars; outer ones first."""
        for kind in sorted(JOB_KINDS, key=lambda kind: kind in ("send", "receive", "send_receive")):
            own = bars.filter(pl.col("kind") == kind).sort("depth", maintain_order=True)
            is_message = bool(own.height) and bool(own["is_message"][0])
            inset = np.minimum(own["depth"].to_numpy(), 3) * round(self._bar * 0.22)
            top = self._tops[own["lane"].to_numpy()] + self._pad + inset
            height: _Array | float = self._bar - inset
            if is_message:
                top += self._bar + 2 + (kind == "receive") * (self._message + 1) - inset
                height = 2 * self._message + 1 if kind == "send_receive" else self._message
            left, right = self._find_x(own["bar_start_ns"]), self._find_x(own["bar_end_ns"])
            shades = own["shade"].to_numpy()
            fills = np.array([_fill(kind, shade, is_pale=is_message) for shade in range(SHADES)])[shades]
            self.add_boxes(f"jobs-{kind}", left, right, top, height, fills, is_lined=True)
            if not (is_message and has_arrows):
                colors = [_TEXT if is_message else text_on(shade_of(kind, shade)) for shade in range(SHADES)]
                self._label(
                    own["label"].to_list(), left, right, top, height, [colors[shade] for shade in shades]
                )

    def draw_messages(self, transfers: pl.DataFrame) -> None:
        """Draw the kernels of messages, their waits hatched, and an arrow per transfer."""
        ends = []
        for kind, lane, shift in [("send", "sender", 0.0), ("receive", "receiver", self._message + 1)]:
            top = self._tops[transfers[lane].to_numpy()] + self._pad + self._bar + 2 + shift
            start, end = transfers[f"{kind}_start_ns"], transfers[f"{kind}_end_ns"]
            left, right = self._find_x(start), self._find_x(end)
            wait_end = np.minimum(self._find_x(start + transfers[f"{kind}_wait_ns"].fill_null(0)), right)
            pale = np.where(
                wait_end - left > _LEAST_LINED, f"url(#hatch-{kind})", _fill(kind, 0, is_pale=True)
            )
            self.add_boxes(f"waits-{kind}", left, wait_end, top, self._message, pale)
            fill = _fill(kind, 0, is_pale=False)
            self.add_boxes(f"messages-{kind}", wait_end, right, top, self._message, fill, is_lined=True)
            ends.append((left if kind == "send" else right, top + self._message / 2))
        if transfers.height <= _MOST_ARROWS:
            self._draw_arrows(transfers, *ends)

    def _draw_arrows(
        self, transfers: pl.DataFrame, begin: tuple[_Array, _Array], end: tuple[_Array, _Array]
    ) -> None:
        """Draw an arrow per transfer but those of unknown time, whose clocks cannot be compared.

        The more arrows, the fainter, so that bars remain visible, as on the page.
        """
        (x1, y1), (x2, y2) = begin, end
        bend = np.clip(np.abs(x2 - x1) / 2, 6, 60)
        shown = (
            pl.DataFrame({"a": x1, "b": y1, "c": x1 + bend, "d": x2 - bend, "e": x2, "f": y2})
            .select(pl.all().round(2))
            .select(
                curve=pl.format("M{} {}C{} {} {} {} {} {}", *"abcbdfef"),
                head=pl.format("M{} {}l-4 -2.2v4.4z", "e", "f"),
                direction=transfers["direction"].cast(pl.String),
            )
            .filter(transfers["transfer_ns"].is_not_null())
        )
        alpha = 0.6 * min(1.0, max(0.3, 500 / max(len(shown), 1)))
        self._shapes.append(f'<g id="arrows" opacity="{alpha:.4g}" stroke-width="0.9">')
        for (direction,), own in shown.partition_by("direction", as_dict=True, maintain_order=True).items():
            color = color_of(direction) if direction in ("forward", "backward") else _MUTED
            lines, heads = (own[name].str.join().item() for name in ("curve", "head"))
            self._shapes.append(
                f'<path fill="none" stroke="{color}" d="{lines}"/><path fill="{color}" d="{heads}"/>'
            )
        self._shapes.append("</g>")

    def add_boxes(
        self,
        name: str,
        left: _Array | float,
        right: _Array | float,
        top: _Array | float,
        height: _Array | float,
        fill: _Array | str,
        *,
        is_lined: bool = False,
    ) -> None:
        """Add boxes in a group of this name, one path per color.

        `is_lined`: wide ones have a white outline.
        """
        sides = np.broadcast_arrays(*np.atleast_1d(left, top, np.subtract(right, left), height, fill))
        paths = (
            pl.DataFrame(dict(zip("xywhf", sides, strict=True)))
            .with_columns(line=pl.lit(is_lined) & (pl.col("w") > _LEAST_LINED))
            .with_columns(pl.col("x", "y", "w", "h").round(2))
            .group_by("f", "line", maintain_order=True)
            .agg(d=pl.format("M{} {}h{}v{}h{}z", "x", "y", "w", "h", -pl.col("w")).str.join())
        )
        stroke = ' stroke="#fff" stroke-width="0.6"'
        shapes = [f'<path fill="{fill}"{stroke * line} d="{d}"/>' for fill, line, d in paths.iter_rows()]
        self._shapes += [f'<g id="{name}">', *shapes, "</g>"] if name else shapes

    def write(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float,
        color: str = _TEXT,
        room: float = float("inf"),
        is_bold: bool = False,
        anchor: str = "start",
    ) -> None:
        """Write a text on one line, centered vertically at y; a text longer than the room ends with "…"."""
        line = _shorten(text, size, room)
        weight = ' font-weight="bold"' * is_bold
        if line:
            self._texts.append(
                f'<text x="{x:.2f}" y="{y + 0.36 * size:.2f}" font-size="{size:.2f}" fill="{color}"'
                f' text-anchor="{anchor}"{weight}>{escape(line)}</text>'
            )

    def finish(self) -> str:
        """Return the SVG."""
        patterns = "".join(
            f'<pattern id="hatch-{key}" width="{HATCH_PX}" height="{HATCH_PX}" patternUnits="userSpaceOnUse">'
            f'<rect width="{HATCH_PX}" height="{HATCH_PX}" fill="{_tint(key)}"/>'
            f'<path d="{path}" fill="none" stroke="{color_of(key)}" stroke-width="0.9"/></pattern>'
            for key, path in HATCHES.items()
        )
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{self.height_px}"'
            f' viewBox="0 0 {WIDTH} {self.height_px}" font-family="{_FONTS}">',
            f"<defs>{patterns}</defs>",
            f'<rect width="{WIDTH}" height="{self.height_px}" fill="#fff"/>',
            *self._shapes,
            *self._texts,
            "</svg>\n",
        ]
        return "\n".join(lines)

    def _find_x(self, time_ns: pl.Series) -> _Array:
        """Return the x of times; the start is subtracted as an integer, since doubles lose nanoseconds."""
        share = (time_ns - self._start_ns).to_numpy() / (self._end_ns - self._start_ns)
        return np.asarray(LEFT + share * (WIDTH - LEFT - MARGIN), np.float64)

    def _label(
        self,
        texts: Sequence[str | None],
        left: _Array,
        right: _Array,
        top: _Array | float,
        height: _Array | float,
        colors: Iterable[str],
    ) -> None:
        sides = np.broadcast_arrays((left + right) / 2, right - left - 4, top, height)
        for text, color, x, room, y, own in zip(texts, colors, *sides, strict=True):
            size = min(11.0, own * 0.72)
            if text and size >= 7 and _measure(text, size) <= room:
                self.write(x, y + own / 2, text, size=size, color=color, anchor="middle")


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


def _measure(text: str, size: float) -> float:
    # an estimate from above, in pixels
    return size * sum(map(_measure_character, text))


def _measure_character(character: str) -> float:
    return 1.0 if unicodedata.east_asian_width(character) in "WF" else 0.6


def _shorten(text: str, size: float, room: float) -> str:
    line = " ".join(clean(text).split())
    if _measure(line, size) <= room:
        return line
    widths = accumulate(map(_measure_character, line), initial=0.6)
    return line[: sum(size * width <= room for width in widths) - 1] + "…"


def _fill(kind: str, shade: int, *, is_pale: bool) -> str:
    color = shade_of(kind, shade)
    return mix(WHITE, color, 0.35) if is_pale else color


def _fill_bubble(cause: str) -> str:
    return f"url(#hatch-{cause})" if cause in HATCHES else _tint(cause)


def _tint(cause: str) -> str:
    return mix(WHITE, color_of(cause), 0.42)

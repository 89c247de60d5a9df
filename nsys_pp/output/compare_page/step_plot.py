"""Lengths of steps of both runs, as points on one scale."""

from __future__ import annotations

from html import escape

import polars as pl

from nsys_pp.output.compare_page.source import ComparisonSource
from nsys_pp.units import format_duration

_HEIGHT, _MARGIN = 150, 26
_MOST_POINTS = 2_000


def draw_steps(source: ComparisonSource) -> str:
    """Draw the steps of A and B side by side; "" if a run has no lengths."""
    runs = [samples["steps"].filter(subject="step").sort("step") for samples in source.samples]
    if any(run.is_empty() for run in runs):
        return ""
    values = pl.concat([run["value"] for run in runs])
    low, high = float(values.min() or 0), float(values.max() or 0)  # type: ignore[arg-type]  # numbers
    middle = (low + high) / 2
    half = max((high - low) / 2, 0.02 * middle)  # noise of equal steps does not fill the height
    drawn = [
        _draw_run(run, letter, low=middle - half, high=middle + half)
        for run, letter in zip(runs, "AB", strict=True)
    ]
    return f'<div class="steps">{"".join(drawn)}</div>'


def _draw_run(run: pl.DataFrame, letter: str, *, low: float, high: float) -> str:
    count, median = len(run), float(run["value"].median() or 0)  # type: ignore[arg-type]  # a number
    stride = -(-count // _MOST_POINTS)
    shapes = []
    for value, gap in ((low, 16), (high, -8)):  # labels outside of the points
        y = _height_of(value, low, high)
        shapes.append(f'<line class="grid" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>')
        shapes.append(f'<text x="4" y="{y + gap:.1f}">{escape(format_duration(round(value)))}</text>')
    y = _height_of(median, low, high)
    name = letter.lower()
    shapes.append(f'<line class="{name}" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}" stroke-dasharray="4 3"/>')
    for at, (step, value) in enumerate(run.select("step", "value").gather_every(stride).iter_rows()):
        x = 100 * (at * stride + 0.5) / count
        title = escape(f"step {step}: {format_duration(round(value))}")
        shapes.append(
            f'<circle class="{name}" cx="{x:.2f}%" cy="{_height_of(value, low, high):.1f}" r="4"><title>{title}</title></circle>'
        )
    first, last = run["step"][0], run["step"][-1]
    caption = f"{letter}: median {format_duration(round(median))}, steps {first} to {last}"
    if stride > 1:
        caption += f", every {stride}th is drawn"
    label = f"{caption}; shortest {format_duration(round(float(run['value'].min())))}, longest {format_duration(round(float(run['value'].max())))}"  # type: ignore[arg-type]
    return f'<figure><figcaption>{escape(caption)}</figcaption><svg role="img" aria-label="{escape(label)}">{"".join(shapes)}</svg></figure>'


def _height_of(value: float, low: float, high: float) -> float:
    """Return the distance of a value from the top, in pixels."""
    return _MARGIN + (_HEIGHT - 2 * _MARGIN) * (high - value) / (high - low if high > low else 1)

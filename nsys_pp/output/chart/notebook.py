"""Chart of a small run as an SVG, to be shown in a notebook."""

from __future__ import annotations

from importlib.util import find_spec
from io import BytesIO

from nsys_pp.frames.training import Training

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

"""Charts of a pipeline: an interactive page, and pictures for papers and chat.

Each lane has a row of jobs, drawn as bars over the bubbles (colored by cause), and below it a row of sends
and a row of receives. The bar of a job spans its compute interval if known, otherwise all its operations;
tooltips show both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nsys_pp.output.chart.page import write_html
from nsys_pp.output.chart.picture import write_png, write_svg

# Writers by format: `(training, path or binary stream, *, title)`.
CHARTS: Mapping[str, Callable[..., None]] = {"html": write_html, "svg": write_svg, "png": write_png}

__all__ = ["CHARTS", "write_html", "write_png", "write_svg"]

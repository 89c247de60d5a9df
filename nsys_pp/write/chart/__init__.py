"""Charts of a pipeline: an interactive page, and pictures for papers and chat.

Each lane shows its jobs as bars, with bubbles shaded by cause behind them, and below its sends and receives.
Bars of jobs show the compute interval if known, else all operations; tooltips show both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nsys_pp.write.chart.html import write_html
from nsys_pp.write.chart.picture import write_png, write_svg

CHARTS: Mapping[str, Callable[..., None]] = {"html": write_html, "svg": write_svg, "png": write_png}
"""Writers by format: `(training, path or binary stream, *, title)`."""

__all__ = ["CHARTS", "write_html", "write_png", "write_svg"]

"""Charts of a pipeline: a page to move about in, and pictures for papers and chat.

A lane per GPU process: above, its jobs as bars, with bubbles shaded by cause behind them; below, what
it sends and receives. Bars of jobs show the compute interval where one is known, else all operations;
tooltips give both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nsys_pp.write.chart.html import write_html
from nsys_pp.write.chart.picture import write_png, write_svg

CHARTS: Mapping[str, Callable[..., None]] = {"html": write_html, "svg": write_svg, "png": write_png}
"""What writes each format: `(training, path or binary stream, *, title)`."""

__all__ = ["CHARTS", "write_html", "write_png", "write_svg"]

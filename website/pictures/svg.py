"""A timeline as SVG: rows of bars over a common axis of time, readable on light and dark pages.

Written by hand because plotting libraries change the bytes of their files from version to version, and these are compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

WIDTH, LEFT, TOP, ROW, GAP = 760, 150, 10, 20, 6
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#333}.bar{fill:#fff}.axis{stroke:#999}.link{stroke:#666;fill:none}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.bar{fill:#fff}.link{stroke:#bbb}}"
)


@dataclass
class Timeline:
    """A picture in the making.

    Attributes:
        start_ns: Time at the left edge.
        end_ns: Time at the right edge.
    """

    start_ns: int
    end_ns: int
    _parts: list[str] = field(default_factory=list)
    _top: int = TOP

    def place(self, time_ns: float) -> float:
        """Return the horizontal place of a time, inside the picture."""
        share = (time_ns - self.start_ns) / (self.end_ns - self.start_ns)
        return round(LEFT + min(max(share, 0), 1) * (WIDTH - LEFT - 10), 1)

    def add_row(self, label: str, height: int = ROW) -> int:
        """Add a row below the others, and return its top."""
        top = self._top
        self._parts.append(f'<text x="4" y="{top + height - 6}">{escape(label)}</text>')
        self._top += height + GAP
        return top

    def add_space(self, height: int) -> int:
        """Leave space below the rows, and return its top."""
        self._top += height
        return self._top - height

    def add_bar(
        self, top: int, start_ns: int, end_ns: int, color: str, text: str = "", height: int = ROW
    ) -> None:
        """Add a bar to the row at `top`; its text is drawn where it fits."""
        left, right = self.place(start_ns), self.place(end_ns)
        if right <= left and not self.start_ns <= start_ns <= self.end_ns:
            return
        width = max(round(right - left, 1), 0.6)
        self._parts.append(
            f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="2" fill="{color}"/>'
        )
        if text and width > 6.6 * len(text):
            middle = round(left + width / 2, 1)
            self._parts.append(
                f'<text class="bar" x="{middle}" y="{top + height - 6}" text-anchor="middle">{escape(text)}</text>'
            )

    def add_text(self, x: float, y: float, text: str, anchor: str = "start") -> None:
        """Add text at a point of the picture."""
        self._parts.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>')

    def add_mark(self, x: float, y: float, text: str) -> None:
        """Add a number in a circle."""
        self._parts.append(
            f'<circle cx="{x}" cy="{y}" r="9" fill="#333"/>'
            f'<text class="bar" x="{x}" y="{y + 4}" text-anchor="middle">{escape(text)}</text>'
        )

    def add_dot(self, x: float, y: float, color: str) -> None:
        """Add a point."""
        self._parts.append(f'<circle cx="{x}" cy="{y}" r="2.5" fill="{color}"/>')

    def add_square(self, x: float, y: float, color: str) -> None:
        """Add a square of a legend."""
        self._parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{color}"/>')

    def add_link(self, points: Iterable[tuple[float, float]]) -> None:
        """Add a thin line through some points."""
        path = " ".join(f"{x},{y}" for x, y in points)
        self._parts.append(f'<polyline class="link" points="{path}"/>')

    def add_axis(self, unit_ns: int, unit: str) -> None:
        """Add an axis with five to ten marks below the rows; times count from the left edge."""
        span = self.end_ns - self.start_ns
        step = next(
            (
                step
                for step in (10**power * digit for power in range(12) for digit in (1, 2, 5))
                if span / step <= 9
            ),
            span,
        )
        top = self.add_space(26)
        self._parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - 10}" y1="{top}" y2="{top}"/>')
        for time_ns in range(0, span, step):
            x = self.place(self.start_ns + time_ns)
            label = f"{time_ns / unit_ns:g}" + (f" {unit}" if time_ns == 0 else "")
            self._parts.append(f'<line class="axis" x1="{x}" x2="{x}" y1="{top}" y2="{top + 4}"/>')
            self.add_text(x, top + 17, label, "start" if time_ns == 0 else "middle")

    def format(self) -> str:
        """Format the picture."""
        size = f'width="{WIDTH}" height="{self._top}" viewBox="0 0 {WIDTH} {self._top}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
                f"<style>{_STYLE}</style>",
                *self._parts,
                "</svg>",
                "",
            ]
        )

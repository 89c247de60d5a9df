"""Tables as HTML, read back by a parser."""

from __future__ import annotations

from html.parser import HTMLParser

import polars as pl

from nsys_pp.frames.table import Column, FilledTable, Table, View
from nsys_pp.output.tables.formats import format_html

NASTY = "<script>alert(1)</script> & \"x\" 'y'"


class Cells(HTMLParser):
    """Texts of the cells, by row; tags that are not those of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()
        self.is_cell = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.is_cell = True

    def handle_endtag(self, tag: str) -> None:
        self.is_cell = self.is_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.is_cell:
            self.rows[-1][-1] += data


def filled(frame: pl.DataFrame, **more: object) -> FilledTable:
    columns = tuple(Column(name, dtype, "") for name, dtype in frame.schema.items())
    table = Table(
        name="t",
        title=f"Title {NASTY}",
        columns=columns,
        caption="how",
        build=lambda: frame,
        **more,  # type: ignore[arg-type]
    )
    return FilledTable(table=table, frame=frame)


def read(text: str) -> Cells:
    cells = Cells()
    cells.feed(text)
    return cells


def test_rows_come_back_and_no_text_is_a_tag() -> None:
    frame = pl.DataFrame({"total_ns": [1_500_000, 2_000_000], "name": [NASTY, "  nested"]})
    cells = read(format_html([filled(frame)]))
    assert cells.rows[0] == ["Total (ms)", "Name"]
    assert [row[1].strip("\xa0 ") for row in cells.rows[1:]] == [NASTY, "nested"]
    assert cells.rows[2][1].startswith("\xa0\xa0")
    assert "script" not in cells.tags


def test_a_limit_hides_rows_and_notes_it() -> None:
    text = format_html([filled(pl.DataFrame({"name": [str(at) for at in range(9)]}), sort="")], limit=3)
    assert "6 more rows" in text
    assert len(read(text).rows) == 5


def test_a_table_without_rows_has_its_reason() -> None:
    text = format_html(
        [filled(pl.DataFrame({"name": []}, schema={"name": pl.String}), empty="nothing <here>")]
    )
    assert "nothing &lt;here&gt;" in text
    assert "<table>" not in text


def test_columns_are_those_of_the_view() -> None:
    frame = pl.DataFrame({"a": [1], "b": [2]})
    assert read(format_html([filled(frame, view=View(columns=("b",)))])).rows == [["B"], ["2"]]

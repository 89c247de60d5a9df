"""Pages as tests read them: sections, tables, data."""

from __future__ import annotations

import base64
import io
import json
import re
import zlib
from html import unescape
from typing import Any

import numpy as np

from nsys_pp.output.pages.report import PageSource, write_report

_TYPES = {"u8": "u1", "i8": "i1", "u16": "<u2", "i16": "<i2", "u32": "<u4", "i32": "<i4", "f64": "<f8"}


def write_page(source: PageSource) -> str:
    stream = io.BytesIO()
    write_report(source, stream)
    return stream.getvalue().decode()


def read_data(page: str) -> dict[str, Any]:
    """Read the data of the page's scripts, by section."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    data: dict[str, Any] = json.loads(text)
    return data


def inflate(packed: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def read_heat_map(page: str) -> dict[str, Any]:
    """Read the heat map, its columns as lists with None for absent values."""
    heat: dict[str, Any] = inflate(read_data(page)["steps"]["packed"])
    columns = {}
    for name, column in heat["grid"]["columns"].items():
        values = np.frombuffer(base64.b64decode(column["data"]), _TYPES[column["type"]])
        columns[name] = [None if value == column.get("missing") else value.item() for value in values]
    return {**heat, "columns": columns}


def read_sections(page: str) -> dict[str, str]:
    """Read the HTML of each section, by name."""
    parts = re.split(r'<section id="([a-z]+)"', page[page.index("<main>") : page.index("</main>")])
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def read_table(page: str, name: str) -> tuple[list[str], list[list[str]]]:
    """Read the headings and the cells of a folded table, the first one of this name."""
    found = re.search(rf'<details class="table" data-table="{name}">(.*?)</details>', page, re.DOTALL)
    assert found is not None, name
    rows = [
        [
            read_text(cell).replace("\u00a0", " ")
            for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
        ]
        for row in re.findall(r"<tr>(.*?)</tr>", found[1], re.DOTALL)
    ]
    return rows[0], rows[1:]


def read_text(html: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", html))

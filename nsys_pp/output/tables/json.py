"""Tables as JSON: a list of objects for a single table, an object of such lists for several tables."""

from __future__ import annotations

import json
from pathlib import Path

from nsys_pp.output.files import open_output
from nsys_pp.output.tables.format import Content, Format, select_data, select_frame


def format_json(content: Content) -> str:
    """Format tables as JSON."""
    if content.is_single:
        return select_frame(content).write_json() + "\n"
    members = [f"{json.dumps(name)}: {frame.write_json()}" for name, frame in select_data(content).items()]
    return "{" + ",\n".join(members) + "}\n"


def write_json(content: Content, path: Path) -> None:
    """Write tables as JSON."""
    with open_output(path) as stream:
        if content.is_single:
            select_frame(content).write_json(stream)
        else:
            stream.write(format_json(content).encode())


FORMAT = Format(name="json", suffixes=(".json",), holds_many=True, write=write_json, text=format_json)

"""Notebooks of `examples/`, made from the scripts beside them: cells begin with `# %%`.

    python -m tests.examples.convert

writes them anew. A cell `[script]` is in the script alone, and `display(value)` at the end of a cell becomes `value`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
_CELL = re.compile(r"^# %%(?: \[(markdown|script)\])?\n", re.MULTILINE)
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def list_scripts() -> list[Path]:
    """Return the scripts that have a notebook."""
    return sorted(EXAMPLES.glob("*.py"))


def convert_script(script: str) -> str:
    """Return the notebook of a script, without outputs."""
    cells: list[dict[str, object]] = [
        {
            "cell_type": kind,
            "id": f"cell-{number}",
            "metadata": {},
            **({"execution_count": None, "outputs": []} if kind == "code" else {}),
            "source": source.splitlines(keepends=True),
        }
        for number, (kind, source) in enumerate(_list_cells(script))
    ]
    notebook = {"cells": cells, "metadata": _METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _list_cells(script: str) -> Iterator[tuple[str, str]]:
    _, *parts = _CELL.split(script)
    for kind, source in zip(parts[::2], parts[1::2], strict=True):
        if kind == "markdown":
            yield (
                "markdown",
                "\n".join(line.removeprefix("#").removeprefix(" ") for line in source.strip().split("\n")),
            )
        elif kind is None:
            yield "code", _show_last(source.strip())


def _show_last(source: str) -> str:
    """Replace `display(value)` at the end by `value`."""
    last = ast.parse(source).body[-1]
    if not (isinstance(last, ast.Expr) and isinstance(last.value, ast.Call)):
        return source
    call = last.value
    if not (isinstance(call.func, ast.Name) and call.func.id == "display"):
        return source
    lines = source.splitlines()
    shown = ast.get_source_segment(source, call.args[0])
    assert shown is not None
    kept = "\n".join(lines[: last.lineno - 1])
    inner = shown.split("\n")
    if len(inner) == 1:
        return f"{kept}\n{shown}".lstrip("\n")
    # A chain of methods over several lines needs brackets of its own.
    text = (
        "\n".join(line.removeprefix("    ") for line in inner)
        if shown.startswith("nsys_pp.")
        else f"(\n    {shown}\n)"
    )
    return f"{kept}\n{text}".lstrip("\n")


if __name__ == "__main__":
    for path in list_scripts():
        path.with_suffix(".ipynb").write_text(
            convert_script(path.read_text(encoding="utf-8")), encoding="utf-8"
        )

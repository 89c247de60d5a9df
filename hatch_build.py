"""Compiles each `nsys_pp/**/x.c` to `libx.so` beside it, and makes the README's links absolute for PyPI.

The C compiler of the machine compiles, or `ziglang` from PyPI where there is none. Where neither works, the build fails.

`NSYS_PP_ADDRESS=https://HOST/OWNER/PROJECT` is the public address of the repository: with it, images and links of the
README point to files of the version's tag there, and the metadata has project URLs. Without it, links stay relative,
and there are no URLs.

`NSYS_PP_WHEEL=manylinux_2_17_x86_64` builds a wheel for this platform (one of `TARGETS`) on any machine, by `ziglang`. A wheel without it is for
machines like this one: PyPI doesn't take its tag.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

OPTIONS = ["-O3", "-shared", "-fPIC", "-fvisibility=hidden", "-std=c11", "-ffp-contract=off", "-g0", "-s"]
ZIG = "ziglang>=0.13"
# Platforms of wheels, by tags that PyPI takes, and zig's names of them. The libraries know no Python, so one wheel is for all.
TARGETS = {
    "manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
    "macosx_11_0_x86_64": "x86_64-macos.11.0",
    "macosx_11_0_arm64": "aarch64-macos.11.0",
}

LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<path>(?!https?:|#)[^)]+)\)")


class ReadmeMetadataHook(MetadataHookInterface):
    """Sets the README and the URLs of the project."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add `readme` and `urls` to the metadata of pyproject.toml."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        address = os.environ.get("NSYS_PP_ADDRESS", "").rstrip("/")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": make_links_absolute(text, address, f"v{metadata['version']}") if address else text,
        }
        metadata["urls"] = (
            {
                "Source": address,
                "Documentation": f"{address}/blob/v{metadata['version']}/docs/index.md",
                "Changes": f"{address}/blob/v{metadata['version']}/CHANGELOG.md",
                "Issues": f"{address}/issues",
            }
            if address
            else {}
        )


def make_links_absolute(text: str, address: str, tag: str) -> str:
    """Make links to files of the repository absolute, as forges have them: images `/raw/TAG/`, others `/blob/TAG/`.

    >>> make_links_absolute("![a](docs/a.png) [b](docs/b.md#c) [d](https://d.org)", "https://h.org/o/p", "v1")
    '![a](https://h.org/o/p/raw/v1/docs/a.png) [b](https://h.org/o/p/blob/v1/docs/b.md#c) [d](https://d.org)'
    """
    return LINK.sub(
        lambda link: (
            f"{link['image']}[{link['text']}]"
            f"({address}/{'raw' if link['image'] else 'blob'}/{tag}/{link['path']})"
        ),
        text,
    )


class CoreBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles the library into the tree, and adds it to the wheel."""

    def dependencies(self) -> list[str]:
        """Return what the build needs from PyPI."""
        return [ZIG] if self.target_name == "wheel" and (_chosen() or not _find_compiler()) else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the wheel is packed; `version` is "standard" or "editable".

        Raises:
            RuntimeError: A source cannot be compiled.
        """
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        for source in sorted(root.glob("nsys_pp/**/*.c")):
            library = source.with_name(f"lib{source.stem}.so")
            # an editable install loads the library of the tree, so that of another machine lies elsewhere
            built = root / "build" / _chosen() / library.name if _chosen() else library
            if problem := _compile(source, built):
                raise RuntimeError(
                    f"nsys-pp needs a C compiler, and `{source.name}` cannot be compiled: {problem}"
                )
            build_data["force_include"][str(built)] = library.relative_to(root).as_posix()
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform_tag()}"


def _chosen() -> str:
    return os.environ.get("NSYS_PP_WHEEL", "")


def _find_compiler() -> list[str]:
    name = os.environ.get("CC") or next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), "")
    return name.split()


def _compile(source: Path, library: Path) -> str:
    """Compile the library; return why it cannot be, in words, or nothing."""
    tag = _chosen()
    zig = [sys.executable, "-m", "ziglang", "cc"]
    compiler = [*zig, "-target", TARGETS[tag]] if tag else _find_compiler() or zig
    library.parent.mkdir(parents=True, exist_ok=True)
    built = library.with_name(f".{library.name}.{os.getpid()}")
    try:
        done = subprocess.run(
            [*compiler, *OPTIONS, str(source), "-o", str(built), "-lm"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "the compiler failed"
        built.replace(library)
    except OSError as error:
        return str(error)
    finally:
        built.unlink(missing_ok=True)
    return ""


def _platform_tag() -> str:
    own = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return _chosen() or own or f"linux_{platform.machine()}"

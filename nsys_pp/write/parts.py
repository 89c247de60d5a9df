"""A part as a file: a plain zip of `part.json`, frames as Parquet, and the encoded blocks.

Nothing in it is compressed twice, and it holds no time of day: the same report and options give
the same bytes. Format of the container: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import polars as pl

from nsys_pp.frames.part import BLOCKS_MEMBER, FACTS_MEMBER, FORMAT, FRAME_ENDING, Part
from nsys_pp.write.files import replace_file
from nsys_pp.write.perfetto.trace import Sink

_READABLE = 0o644 << 16  # the mode of members where a person unpacks them


def write_part(path: Path, make: Callable[[Sink], Part], *, force: bool) -> Part:
    """Write a part whole or not at all.

    Args:
        path: The file; replaced only with `force`.
        make: Makes the part, and writes its blocks to the sink that it is given.
        force: Replace what is there.

    Raises:
        OutputError: It cannot be written.
    """
    with replace_file(path, force=force) as target, ZipFile(target, "w", ZIP_STORED) as archive:
        with archive.open(_member(BLOCKS_MEMBER), "w", force_zip64=True) as blocks:
            part = make(blocks)
        for name, frame in part.frames.items():
            archive.writestr(_member(name + FRAME_ENDING), _write_frame(frame))
        archive.writestr(_member(FACTS_MEMBER), _write_facts(part))
    return part


def _member(name: str) -> ZipInfo:
    member = ZipInfo(name)  # dated 1980, as early as the format goes
    member.external_attr, member.create_system = _READABLE, 3  # Unix, wherever it is written
    return member


def _write_frame(frame: pl.DataFrame) -> bytes:
    """Write a frame with plain strings; its reader knows which are categories."""
    data = BytesIO()
    plain = frame.with_columns(
        pl.selectors.categorical().cast(pl.String), pl.selectors.enum().cast(pl.String)
    )
    plain.write_parquet(data, compression="zstd", statistics=False)
    return data.getvalue()


def _write_facts(part: Part) -> str:
    facts = {
        "format": FORMAT,
        "made_by": part.made_by,
        "source": str(part.source),
        "options": asdict(part.options),
        "facts": dict(part.facts),
        "encoded": asdict(part.encoded),
    }
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":"))

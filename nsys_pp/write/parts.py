"""Writer of part files: a zip with `part.json`, the frames as Parquet, and the encoded blocks.

The zip does not compress its members, since Parquet and blocks are compressed already. It holds no timestamp: the same
report and options make the same bytes. Format: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import msgspec
import polars as pl

from nsys_pp.frames.part import BLOCKS_MEMBER, FACTS_MEMBER, FORMAT, FRAME_ENDING, Part, PartRecord
from nsys_pp.write.files import replace_file
from nsys_pp.write.perfetto.trace import Sink

_READABLE = 0o644 << 16  # file mode of the members when unpacked


def write_part(path: Path, build: Callable[[Sink], Part], *, force: bool) -> Part:
    """Write a part atomically.

    Args:
        path: The file.
        build: Builds the part, and writes its blocks to the sink that it is called with.
        force: Replace an existing file.

    Returns:
        The part that `build` returned.

    Raises:
        OutputError: The file exists and `force` is not set, or it cannot be written.
    """
    with replace_file(path, force=force) as target, ZipFile(target, "w", ZIP_STORED) as archive:
        with archive.open(_member(BLOCKS_MEMBER), "w", force_zip64=True) as blocks:
            part = build(blocks)
        for name, frame in part.frames.items():
            archive.writestr(_member(name + FRAME_ENDING), _write_frame(frame))
        archive.writestr(_member(FACTS_MEMBER), _write_facts(part))
    return part


def _member(name: str) -> ZipInfo:
    member = ZipInfo(name)  # dated 1980, the earliest date of the format
    member.external_attr, member.create_system = _READABLE, 3  # Unix, on all systems
    return member


def _write_frame(frame: pl.DataFrame) -> bytes:
    """Encode a frame as Parquet, with categories as plain strings; the reader casts them back by the schema."""
    data = BytesIO()
    plain = frame.with_columns(
        pl.selectors.categorical().cast(pl.String), pl.selectors.enum().cast(pl.String)
    )
    plain.write_parquet(data, compression="zstd", statistics=False)
    return data.getvalue()


def _write_facts(part: Part) -> bytes:
    record = PartRecord(
        format=FORMAT,
        made_by=part.made_by,
        source=str(part.source),
        options=part.options,
        facts=part.facts,
        encoded=part.encoded,
    )
    return msgspec.json.encode(record)

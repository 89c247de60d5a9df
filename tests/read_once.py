"""What many tests compute of the same files is computed once in a process of tests."""

from __future__ import annotations

import hashlib
import inspect
import pickle
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from nsys_pp.frames.raw import RawReport
from nsys_pp.model import build_report
from nsys_pp.read import read_part, read_report
from nsys_pp.run.clocks import Clocks, align_inputs
from nsys_pp.run.inputs import Input
from nsys_pp.run.report import extract_report, survey_report
from nsys_pp.run.run_training import Captures, NumberedSteps, find_training

_SIDECARS = ("-journal", "-wal", "-shm")  # of SQLite: such a report is not its file alone
_MOST_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a call returned, wrote and warned of; and its arguments, whose identities are the key."""

    arguments: Any
    result: Any
    written: list[bytes]
    warned: list[Warning | str]


class _Sink(list[bytes]):
    """Receiver of the blocks of a trace."""

    def write(self, data: bytes, /) -> None:
        self.append(bytes(data))


class _Once:
    """A pure function whose results are kept; warnings are emitted again, and blocks written again.

    The key of a file is its path and its bytes, that of other arguments their content. What cannot be a key (a folder, a file
    beside a journal, a store of blocks) is computed anew.
    """

    def __init__(self, function: Callable[..., Any], *, most: int) -> None:
        self._function = function
        self._signature = inspect.signature(function)
        self._most = most
        self._kept: OrderedDict[Any, _Kept] = OrderedDict()

    def __call__(self, *args: Any, **options: Any) -> Any:
        bound = self._signature.bind(*args, **options)
        sink: Any = bound.arguments.get("sink")
        try:
            key = tuple((name, _key(value)) for name, value in bound.arguments.items() if name != "sink")
        except _NoKeyError:
            return self._function(*args, **options)
        if key not in self._kept:
            self._kept[key] = self._compute(bound, None if sink is None else _Sink())
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        kept = self._kept[key]
        for data in kept.written:
            sink.write(data)
        for warning in kept.warned:
            warnings.warn(warning, stacklevel=2)
        return kept.result

    def _compute(self, bound: inspect.BoundArguments, sink: _Sink | None) -> _Kept:
        arguments = {**bound.arguments} if sink is None else {**bound.arguments, "sink": sink}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = self._function(**arguments)
        return _Kept(arguments, result, sink or [], [warning.message for warning in caught])


class _NoKeyError(Exception):
    """An argument has no key."""


def _key(value: Any) -> Any:
    if isinstance(value, Path):
        return _file_key(value)
    if isinstance(value, pl.DataFrame):  # a roster
        return tuple(value.schema.items()), tuple(value.rows())
    if isinstance(value, RawReport):
        return id(value)  # kept with the result
    if isinstance(value, Input):
        return str(value.path), _digest(value.part)
    if isinstance(value, Clocks | Captures | NumberedSteps):
        return _digest(value)
    if isinstance(value, Mapping):
        return tuple((name, _key(one)) for name, one in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(map(_key, value))
    return value


def _digest(value: Any) -> bytes:
    return hashlib.blake2b(pickle.dumps(value)).digest()


def _file_key(path: Path) -> Any:
    if not path.is_file() or any(Path(f"{path}{ending}").exists() for ending in _SIDECARS):
        raise _NoKeyError
    if path.stat().st_size > _MOST_BYTES:
        raise _NoKeyError
    return str(path), str(Path.cwd()), hashlib.blake2b(path.read_bytes()).digest()


_ONCE = {
    function: _Once(function, most=most)
    for function, most in (
        (read_report, 64),
        (build_report, 64),
        (survey_report, 64),
        (read_part, 64),
        (extract_report, 64),
        (align_inputs, 24),
        (find_training, 24),
    )
}
_CALLERS = [
    import_module(f"nsys_pp.{name}")
    for name in (
        "commands.info",
        "commands.pipeline",
        "commands.project",
        "run.inputs",
        "run.parts",
        "run.report",
        "run.run",
        "run.trace",
    )
]


@pytest.fixture
def reports_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what is computed of files for other tests: for tests of tables, charts, traces, gates, options and messages.

    Each stage still computes every file with every set of options once; it is pure, so it would compute the same again.
    Not for tests that replace a part of a stage, and for those of what a second call might do otherwise.
    """
    for function, once in _ONCE.items():
        for module in _CALLERS:
            if getattr(module, function.__name__, None) is function:
                monkeypatch.setattr(module, function.__name__, once)

"""Marks steps and jobs of a training program, for programs whose framework marks nothing.

    from nsys_pp import capture

    capture.profile_steps(10, 13)  # record steps 10, 11 and 12
    for n in range(1000):
        with capture.step(n):
            for m in range(8):
                with capture.job("forward", microbatch=m):
                    ...

Ranges have the names that nsys-pp reads by itself (its preset `plain`). They are NVTX ranges, pushed by PyTorch
where the program has imported it, else by the package `nvtx`. Without a profiler nothing is
imported and nothing is pushed: a range then costs some tenths of a microsecond.

This module stands alone: it imports nothing but Python's own library before a profiler is there.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Push = Callable[[str], Any]
_Pop = Callable[[], Any]

IS_PROFILED = bool(os.environ.get("NVTX_INJECTION64_PATH"))  # how profilers tell NVTX where they are
CAPTURE_RANGE = "capture"
"""Range that lasts as long as the recorded steps: `nsys profile --capture-range=nvtx --nvtx-capture=capture`."""
_NUMBERED = (
    *("forward", "backward", "weight", "recompute"),
    *("send_forward", "recv_forward", "send_backward", "recv_backward"),
)
KINDS = (
    *_NUMBERED,
    *("optimizer", "next_batch", "zero_grad"),
    *("allreduce_gradients", "reduce_scatter_gradients", "all_gather_parameters"),
)
"""Kinds of jobs; the first ones have micro-batches."""


class _Off:
    """A range that is not recorded."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        return None


@dataclass(slots=True)
class _On:
    """A range that is."""

    name: str

    def __enter__(self) -> None:
        _push(self.name)

    def __exit__(self, *error: object) -> None:
        _pop()


@dataclass(slots=True)
class _Step:
    """A step; it opens and closes what `profile_steps` asked for."""

    number: int

    def __enter__(self) -> None:
        _state.counts.clear()
        if _state.plan is not None:
            _state.plan.begin(self.number)
        _push(f"step_{self.number}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _pop()
        if _state.plan is not None:
            _state.plan.end(self.number, has_failed=error is not None)


@dataclass(slots=True)
class _State:
    """What is going on in this process."""

    plan: _Plan | None = None
    counts: dict[tuple[str, int | None], int] = field(
        default_factory=dict
    )  # micro-batches of the step, by kind and chunk


@dataclass(slots=True)
class _Plan:
    """Which steps are recorded, and whether that is going on."""

    start: int
    stop: int
    exit_after: bool
    is_open: bool = False

    def begin(self, number: int) -> None:
        if self.is_open and number >= self.stop:  # the last step was left out
            self.end(number, has_failed=False)
        if not self.is_open and self.start <= number < self.stop:
            self.is_open = True
            _call_profiler("Start")
            _push(CAPTURE_RANGE)

    def end(self, number: int, *, has_failed: bool) -> None:
        if not self.is_open or (number < self.stop - 1 and not has_failed):
            return
        self.is_open = False
        _pop()
        _call_profiler("Stop")
        if self.exit_after and not has_failed:
            sys.exit(0)


def step(number: int) -> _Step | _Off:
    """Make a range around a step, for a `with` statement.

    Micro-batches that are counted (`forward_step`, `backward_step`) begin with 0 again.
    """
    return _Step(number) if IS_PROFILED else _OFF


def job(
    kind: str, microbatch: int | None = None, chunk: int | None = None, *, backward: tuple[int, ...] = ()
) -> _On | _Off:
    """Make a range around a job, for a `with` statement.

    Args:
        kind: One of `KINDS`.
        microbatch: Number of the micro-batch within its step; None: it has none, or it is not known.
        chunk: Number of the part of the model, among those of this stage; needs a micro-batch.
        backward: Of a "forward" that overlaps with a backward: that one's micro-batch, and maybe its chunk.

    Raises:
        ValueError: There is no such kind, or it has no micro-batches; or a chunk stands without a micro-batch.
    """
    _check(kind, microbatch, chunk, backward)
    return _On(_name(kind, microbatch, chunk, backward)) if IS_PROFILED else _OFF


def name_job(
    kind: str, microbatch: int | None = None, chunk: int | None = None, *, backward: tuple[int, ...] = ()
) -> str:
    """Name a job; arguments and errors are those of `job`.

    >>> name_job("forward", 3, 1), name_job("optimizer"), name_job("forward", 4, backward=(1,))
    ('forward_3_chunk_1', 'optimizer', 'forward_4_backward_1')
    """
    _check(kind, microbatch, chunk, backward)
    return _name(kind, microbatch, chunk, backward)


def forward_step(function: Callable[_P, _R], *, chunk: Callable[_P, int] | None = None) -> Callable[_P, _R]:
    """Mark each call as the forward of the next micro-batch of its step, as Megatron-LM's `forward_step` is.

        schedules.forward_step = capture.forward_step(schedules.forward_step)

    Args:
        function: What is called once a micro-batch.
        chunk: Says from the arguments which part of the model it works on; each is counted by itself.
    """
    return _count_calls("forward", function, chunk)


def backward_step(function: Callable[_P, _R], *, chunk: Callable[_P, int] | None = None) -> Callable[_P, _R]:
    """Mark each call as the backward of the next micro-batch of its step; like `forward_step`."""
    return _count_calls("backward", function, chunk)


def profile_steps(start: int, stop: int, *, exit_after: bool = False) -> None:
    """Record the steps [start, stop): open the profiler's capture range before the first, close it after the last.

    `cudaProfilerStart` and `cudaProfilerStop` are called in the CUDA runtime that the program has loaded, if it has; and
    the range `CAPTURE_RANGE` is pushed, for programs without CUDA. `nsys profile` waits for
    either with `--capture-range`. Without a profiler nothing happens. A step that fails ends the capture.

    Args:
        start: First step.
        stop: Step after the last.
        exit_after: End the program after the last step, as `sys.exit(0)` does.

    Raises:
        ValueError: No step is in it.
    """
    if start >= stop:
        raise ValueError(f"no step is in [{start}, {stop})")
    _state.plan = _Plan(start, stop, exit_after)


def _check(kind: str, microbatch: int | None, chunk: int | None, backward: tuple[int, ...]) -> None:
    """Refuse what cannot be named, with a profiler or without: a wrong word must not end a recording alone."""
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is no kind of job: kinds are {', '.join(KINDS)}")
    if microbatch is None:
        if chunk is not None:
            raise ValueError("a chunk needs a micro-batch")
    elif kind not in _NUMBERED:
        raise ValueError(f"{kind!r} has no micro-batches")
    elif microbatch < 0 or (chunk is not None and chunk < 0):
        raise ValueError(f"micro-batches and chunks are counted from 0: {microbatch}, {chunk}")
    if backward:
        if kind != "forward":
            raise ValueError("only a forward overlaps with a backward")
        _check("backward", *_pair(backward), ())


def _name(kind: str, microbatch: int | None, chunk: int | None, backward: tuple[int, ...]) -> str:
    name = kind
    if microbatch is not None:
        name += f"_{microbatch:d}"
    if chunk is not None:
        name += f"_chunk_{chunk:d}"
    if backward:
        name += f"_{_name('backward', *_pair(backward), ())}"
    return name


def _pair(backward: tuple[int, ...]) -> tuple[int, int | None]:
    microbatch, chunk = (*backward, None)[:2]
    return microbatch, chunk  # type: ignore[return-value]


def _count_calls(kind: str, function: Callable[_P, _R], chunk: Callable[_P, int] | None) -> Callable[_P, _R]:
    @wraps(function)
    def marked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if not IS_PROFILED:
            return function(*args, **kwargs)
        part = None if chunk is None else chunk(*args, **kwargs)
        number = _state.counts.get((kind, part), 0)
        _state.counts[kind, part] = number + 1
        with job(kind, number, part):
            return function(*args, **kwargs)

    return marked


def _push(name: str) -> None:
    if (found := _find_ranges()) is not None:
        found[0](name)


def _pop() -> None:
    if (found := _find_ranges()) is not None:
        found[1]()


@cache
def _find_ranges() -> tuple[_Push, _Pop] | None:
    """Find what pushes ranges and pops them, when the first one is pushed: by then programs have imported PyTorch."""
    if "torch" in sys.modules:
        try:
            of_torch = importlib.import_module("torch.cuda.nvtx")
            of_torch.range_push("nsys_pp.capture")
            of_torch.range_pop()
            return of_torch.range_push, of_torch.range_pop
        except (ImportError, RuntimeError):  # a PyTorch without CUDA has no NVTX
            pass
    try:
        package = importlib.import_module("nvtx")
    except ImportError:
        warnings.warn(
            "nsys_pp.capture: a profiler is there, but neither PyTorch nor the package `nvtx`: no range is recorded"
            " (`pip install nvtx`; import torch first)",
            stacklevel=2,
        )
        return None
    if type(package.get_domain("nsys_pp.capture")).__name__ == "DummyDomain":
        warnings.warn(
            "nsys_pp.capture: this `nvtx` records nothing under this version of nsys (`pip install nvtx==0.2.11` does)",
            stacklevel=2,
        )
    return package.push_range, package.pop_range


def _call_profiler(verb: str) -> None:
    """Call cudaProfilerStart or cudaProfilerStop in the CUDA runtime that is loaded, if any."""
    library = _find_loaded(r"libcudart[-.\w]*\.so[.\d]*")
    if library is not None:
        getattr(ctypes.CDLL(library), f"cudaProfiler{verb}")()


def _find_loaded(pattern: str) -> str | None:
    """Find the file of a shared library that this process has loaded (proc(5), maps)."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    paths = (line.split(maxsplit=5)[5:] for line in maps.read_text().splitlines())
    found = (
        path[0].strip() for path in paths if path and re.fullmatch(pattern, path[0].strip().rsplit("/")[-1])
    )
    return next(found, None)


_OFF = _Off()
_state = _State()

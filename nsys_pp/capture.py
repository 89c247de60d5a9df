"""Marks of steps and jobs for training programs, if their framework has none.

    from nsys_pp import capture

    capture.profile_steps(10, 13)  # record steps 10, 11 and 12
    for n in range(1000):
        with capture.step(n):
            for m in range(8):
                with capture.job("forward", microbatch=m):
                    ...

Ranges have the names of the preset `plain`, which nsys-pp detects. They are NVTX ranges, pushed by PyTorch
if the program has imported it, else by the package `nvtx`. Without a profiler nothing is
imported and nothing is pushed: a range costs some tenths of a microsecond.

This module is independent: it imports only the standard library, unless a profiler is active.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

IS_PROFILED = bool(os.environ.get("NVTX_INJECTION64_PATH"))  # set by profilers for NVTX
# Range around the recorded steps: `nsys profile --capture-range=nvtx --nvtx-capture=capture`.
CAPTURE_RANGE = "capture"
_NUMBERED = (
    *("forward", "backward", "weight", "recompute"),
    *("send_forward", "recv_forward", "send_backward", "recv_backward"),
)
# Kinds of jobs; the kinds in `_NUMBERED` have micro-batches.
KINDS = (
    *_NUMBERED,
    *("optimizer", "next_batch", "zero_grad"),
    *("allreduce_gradients", "reduce_scatter_gradients", "all_gather_parameters"),
)


@dataclass(slots=True)
class _Range:
    name: str

    def __enter__(self) -> None:
        _push(self.name)

    def __exit__(self, *error: object) -> None:
        _pop()


@dataclass(slots=True)
class _Step:
    """Range of a step; also starts and stops the capture of `profile_steps`."""

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
    # of this process
    plan: _Plan | None = None
    counts: dict[tuple[str, int | None], int] = field(
        default_factory=dict
    )  # micro-batches of the step, by kind and chunk


@dataclass(slots=True)
class _Plan:
    start: int
    stop: int
    exit_after: bool
    is_open: bool = False

    def begin(self, number: int) -> None:
        if self.is_open and number >= self.stop:  # the last step did not run
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


def step(number: int) -> _Step | nullcontext[None]:
    """Return a range around a step, for a `with` statement.

    Restarts the counts of micro-batches (`forward_step`, `backward_step`) at 0.
    """
    return _Step(number) if IS_PROFILED else _INACTIVE


def job(
    kind: str, microbatch: int | None = None, chunk: int | None = None, *, backward: tuple[int, ...] = ()
) -> _Range | nullcontext[None]:
    """Return a range around a job, for a `with` statement.

    Args:
        kind: One of `KINDS`.
        microbatch: Number of the micro-batch within its step; None if it has none or is unknown.
        chunk: Number of the model chunk within this stage; needs a micro-batch.
        backward: For a "forward" that overlaps with a backward: micro-batch, and optionally chunk, of the
            backward.

    Raises:
        ValueError: The kind is invalid or has no micro-batches; or a chunk has no micro-batch.
    """
    _check(kind, microbatch, chunk, backward)
    return _Range(_name(kind, microbatch, chunk, backward)) if IS_PROFILED else _INACTIVE


def name_job(
    kind: str, microbatch: int | None = None, chunk: int | None = None, *, backward: tuple[int, ...] = ()
) -> str:
    """Format the name of a job; arguments and errors as in `job`.

    >>> name_job("forward", 3, 1), name_job("optimizer"), name_job("forward", 4, backward=(1,))
    ('forward_3_chunk_1', 'optimizer', 'forward_4_backward_1')
    """
    _check(kind, microbatch, chunk, backward)
    return _name(kind, microbatch, chunk, backward)


def forward_step(function: Callable[_P, _R], *, chunk: Callable[_P, int] | None = None) -> Callable[_P, _R]:
    """Mark each call as the forward of the next micro-batch of its step, as for Megatron-LM's `forward_step`.

        schedules.forward_step = capture.forward_step(schedules.forward_step)

    Args:
        function: Function that is called once per micro-batch.
        chunk: Function of the arguments that returns the model chunk; each chunk is counted separately.
    """
    return _count_calls("forward", function, chunk)


def backward_step(function: Callable[_P, _R], *, chunk: Callable[_P, int] | None = None) -> Callable[_P, _R]:
    """Mark each call as the backward of the next micro-batch of its step; like `forward_step`."""
    return _count_calls("backward", function, chunk)


def profile_steps(start: int, stop: int, *, exit_after: bool = False) -> None:
    """Record the steps [start, stop): open the capture range before the first, close it after the last.

    `cudaProfilerStart` and `cudaProfilerStop` are called in the CUDA runtime of the program if it has one;
    and the range `CAPTURE_RANGE` is pushed, for programs without CUDA. `nsys profile --capture-range` waits
    for either. Without a profiler nothing happens. A failed step ends the capture.

    Args:
        start: First step.
        stop: Step after the last.
        exit_after: End the program after the last step, as `sys.exit(0)` does.

    Raises:
        ValueError: The interval is empty.
    """
    if start >= stop:
        raise ValueError(f"empty interval of steps [{start}, {stop}); expected start < stop")
    _state.plan = _Plan(start, stop, exit_after)


def _check(kind: str, microbatch: int | None, chunk: int | None, backward: tuple[int, ...]) -> None:
    """Refuse invalid arguments, also without a profiler: an error must not appear only during a recording."""
    if kind not in KINDS:
        raise ValueError(f"invalid kind of job {kind!r}; expected one of {', '.join(KINDS)}")
    if microbatch is None:
        if chunk is not None:
            raise ValueError("a chunk needs a micro-batch")
    elif kind not in _NUMBERED:
        raise ValueError(f"{kind!r} has no micro-batches")
    elif microbatch < 0 or (chunk is not None and chunk < 0):
        raise ValueError(f"micro-batches and chunks are numbered from 0: {microbatch}, {chunk}")
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
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if not IS_PROFILED:
            return function(*args, **kwargs)
        part = None if chunk is None else chunk(*args, **kwargs)
        number = _state.counts.get((kind, part), 0)
        _state.counts[kind, part] = number + 1
        with job(kind, number, part):
            return function(*args, **kwargs)

    return wrapper


def _push(name: str) -> None:
    if (functions := _find_functions()) is not None:
        functions[0](name)


def _pop() -> None:
    if (functions := _find_functions()) is not None:
        functions[1]()


@cache
def _find_functions() -> tuple[Callable[[str], Any], Callable[[], Any]] | None:
    """Find the functions that push and pop ranges, at the first range.

    By then programs have imported PyTorch.
    """
    if "torch" in sys.modules:
        try:
            torch_nvtx = importlib.import_module("torch.cuda.nvtx")
            torch_nvtx.range_push("nsys_pp.capture")
            torch_nvtx.range_pop()
            return torch_nvtx.range_push, torch_nvtx.range_pop
        except (ImportError, RuntimeError):  # a PyTorch without CUDA has no NVTX
            pass
    try:
        package = importlib.import_module("nvtx")
    except ImportError:
        warnings.warn(
            "nsys_pp.capture: a profiler is active, but neither PyTorch nor the package `nvtx` is available: "
            "no range is recorded"
            " (`pip install nvtx`; import torch first)",
            stacklevel=2,
        )
        return None
    if type(package.get_domain("nsys_pp.capture")).__name__ == "DummyDomain":
        warnings.warn(
            "nsys_pp.capture: this `nvtx` records nothing under this version of nsys (`pip install "
            "nvtx==0.2.11` does)",
            stacklevel=2,
        )
    return package.push_range, package.pop_range


def _call_profiler(verb: str) -> None:
    """Call cudaProfilerStart or cudaProfilerStop in the loaded CUDA runtime, if any (proc(5), maps)."""
    maps = Path("/proc/self/maps")
    for line in maps.read_text().splitlines() if maps.exists() else ():
        *_, path = line.split(maxsplit=5)
        if re.fullmatch(r"libcudart[-.\w]*\.so[.\d]*", path.strip().rsplit("/")[-1]):
            getattr(ctypes.CDLL(path.strip()), f"cudaProfiler{verb}")()
            return


_INACTIVE = nullcontext()  # range without a profiler
_state = _State()

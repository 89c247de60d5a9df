"""Inputs that show a defect of nsys-pp in work on all of them: each is found by work on halves, and named.

Only an input that fails alone is blamed. A defect that needs several inputs at once is of none of them, and its error is raised.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TypeVar

from nsys_pp.compose.unforeseen import is_about_outputs
from nsys_pp.errors import NsysPPError
from nsys_pp.executors.executor import as_exception

T = TypeVar("T")
_MOST_ODD = 8  # each costs the work on all inputs about twice


def leave_out_odd(
    inputs: Sequence[T], work: Callable[[Sequence[T]], object], skip: Callable[[T, Exception], None]
) -> list[T]:
    """Leave out the inputs on which some work fails unforeseen, each alone.

    Args:
        inputs: The inputs.
        work: The work, on any of the inputs; its warnings are emitted once, for the inputs that are left.
        skip: Receives each input that is left out, and its error; may raise an error instead.

    Returns:
        The other inputs.

    Raises:
        Exception: Raised by the work, where no input alone is the cause; foreseen errors (`NsysPPError`) always.
    """
    left = list(inputs)
    for _ in range(_MOST_ODD):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            error = _try(work, left)
        if error is None or len(left) < 2:
            break
        odd = _find_odd(left, work)
        if odd is None:
            raise error
        skip(*odd)
        left = [one for one in left if one is not odd[0]]
    for record in caught:
        warnings.warn(record.message, stacklevel=5)
    if error is not None:
        raise error
    return left


def _find_odd(inputs: Sequence[T], work: Callable[[Sequence[T]], object]) -> tuple[T, Exception] | None:
    """Find an input that fails alone, in halves; None if both halves of some inputs succeed."""
    suspects, error = inputs, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while len(suspects) > 1:
            middle = len(suspects) // 2
            for half in (suspects[:middle], suspects[middle:]):
                error = _try(work, half, is_trial=True)
                if error is not None:
                    suspects = half
                    break
            else:
                return None
    return None if error is None else (suspects[0], error)


def _try(
    work: Callable[[Sequence[T]], object], inputs: Sequence[T], *, is_trial: bool = False
) -> Exception | None:
    """Return the unforeseen error of some work; None if it succeeds, or is refused in a trial."""
    try:
        work(inputs)
    except NsysPPError:
        if not is_trial:
            raise
    except BaseException as raised:
        error = as_exception(raised)
        if is_about_outputs(error) or isinstance(error, MemoryError):
            raise
        return error
    return None

"""Names of compared runs: inputs with steps, as in `runs/7:10:14`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from glob import glob
from pathlib import Path

from msgspec import Struct

from nsys_pp.errors import OptionError
from nsys_pp.run.options import Inputs, StepWindow, parse_steps

_WITH_STEPS = re.compile(r"(?P<path>.+):(?P<steps>\d{1,30}:\d{0,30}|:\d{1,30})", re.DOTALL)
_WITH_STEP = re.compile(r"(?P<path>.+):(?P<step>\d{1,30})", re.DOTALL)


class RunName(Struct, frozen=True, kw_only=True):
    """A run to compare.

    Attributes:
        inputs: Its reports.
        window: Its steps; None: those of all runs.
    """

    inputs: str | Path | tuple[str | Path, ...]
    window: StepWindow | None = None


def parse_run_name(run: Inputs, *, steps: StepWindow | str | None, option: str) -> RunName:
    """Parse the name of a run.

    A text that is a file, a folder or a pattern with matches is that path, with all its colons; otherwise a
    `:FIRST:LAST` at its end is its steps.

    Args:
        run: Reports, with steps at the end of a text.
        steps: Steps of the run, apart from its name; None: those at the end of the name.
        option: Keyword of `steps`, for errors.

    Raises:
        OptionError: The steps are invalid, or given twice.
    """
    window = parse_steps_of(steps, option)
    if not isinstance(run, str):
        inputs: Sequence[str | Path] = [run] if isinstance(run, Path) else list(run)
        return RunName(inputs=tuple(inputs), window=window)
    path, own = split_steps(run)
    if own is not None and window is not None:
        raise OptionError(option, f"steps of `{path}` are given twice: in `{run}` and by `{option}`")
    window = window if own is None else parse_steps_of(own, option)
    return RunName(inputs=path, window=window)


def split_steps(text: str) -> tuple[str, str | None]:
    """Split the name of a run into path and steps; None: without steps.

    Raises:
        OptionError: The name ends in a single step.

    >>> split_steps("runs/7:10:14"), split_steps("a:b"), split_steps("a::14")
    (('runs/7', '10:14'), ('a:b', None), ('a', ':14'))
    """
    if _is_path(text):
        return text, None
    match = _WITH_STEPS.fullmatch(text)
    if match is not None:
        return match["path"], match["steps"]
    single = _WITH_STEP.fullmatch(text)
    if single is not None and _is_path(single["path"]):
        step = int(single["step"])
        raise OptionError(
            "steps",
            f"`{text}` does not exist; for step {step} of `{single['path']}`, use "
            f"`{single['path']}:{step}:{step + 1}`",
        )
    return text, None


def parse_steps_of(steps: StepWindow | str | None, option: str) -> StepWindow | None:
    """Parse steps; errors are about the keyword `option`."""
    try:
        return parse_steps(steps)
    except OptionError as error:
        raise OptionError(option, error.message, error.hint) from None


def _is_path(text: str) -> bool:
    try:
        return Path(text).exists() or bool(glob(text, recursive=True))
    except (OSError, ValueError):
        return False

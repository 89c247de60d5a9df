"""Errors of traces without an event."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nsys_pp.errors import MissingDataError
from nsys_pp.read import is_part
from nsys_pp.registry import import_on_call

_nothing_to_draw = import_on_call("nsys_pp.compose.report:nothing_to_draw_error")  # all stages of a report


def nothing_drawn_error(paths: Sequence[Path], *, is_cut: bool, detail: str) -> MissingDataError:
    """Return the error of a run without an event to draw.

    Args:
        paths: The inputs.
        is_cut: Whether a part of the run was asked for.
        detail: Level of detail of the trace, or of its parts.
    """
    subject = f"`{paths[0]}` has nothing to draw"
    if len(paths) > 1:
        subject = f"none of the {len(paths)} reports has anything to draw"
    if is_cut:
        return MissingDataError(
            f"{subject} within what was asked for",
            "check `--device`, `--start` and `--end`: times count from the start of the earliest report,"
            " and `nsys-pp info` lists the GPUs",
        )
    if detail == "jobs" and any(map(is_part, paths)):
        return MissingDataError(
            f"{subject}: parts of `--detail jobs` have no ranges and kernels", "merge parts of more detail"
        )
    error: MissingDataError = _nothing_to_draw(subject)
    return error

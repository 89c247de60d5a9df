"""What a summary takes of a report, whoever made it."""

from __future__ import annotations

from typing import Protocol

import polars as pl


class Facts(Protocol):
    """What is told of a recording."""

    @property
    def nsys_version(self) -> str | None: ...  # noqa: D102
    @property
    def machine_source(self) -> str: ...  # noqa: D102
    @property
    def utc_epoch_ns(self) -> int | None: ...  # noqa: D102
    @property
    def time_shift_ns(self) -> int: ...  # noqa: D102
    @property
    def capture_end_ns(self) -> int | None: ...  # noqa: D102
    @property
    def graph_mode(self) -> str | None: ...  # noqa: D102


class Frames(Protocol):
    """The frames of a report, with the schemas of `nsys_pp.frames.report`; absent ones are empty."""

    @property
    def session(self) -> Facts: ...  # noqa: D102
    @property
    def recorded(self) -> dict[str, int]: ...  # noqa: D102
    @property
    def processes(self) -> pl.DataFrame: ...  # noqa: D102
    @property
    def threads(self) -> pl.DataFrame: ...  # noqa: D102
    @property
    def devices(self) -> pl.DataFrame: ...  # noqa: D102
    @property
    def ranges(self) -> pl.DataFrame: ...  # noqa: D102
    @property
    def marks(self) -> pl.DataFrame: ...  # noqa: D102
    @property
    def api_calls(self) -> pl.DataFrame: ...  # noqa: D102
    @property
    def gpu_ops(self) -> pl.DataFrame: ...  # noqa: D102

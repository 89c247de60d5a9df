"""Frames that are sent from process to process, and kept by their receiver."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping

import polars as pl

from nsys_pp.write.deflate import deflate_quickly, inflate


class SentFrames(Mapping[str, pl.DataFrame]):
    """Compressed frames, each unpacked when it is used and not kept: a run of many reports needs them once.

    The frames of a part file (`nsys_pp.read.parts.PackedFrames`) are smaller still, and take twenty times as long to make.

    Args:
        frames: The frames by name.
    """

    def __init__(self, frames: Mapping[str, pl.DataFrame]) -> None:
        self._packed = {name: deflate_quickly(pickle.dumps(frames[name])) for name in frames}

    def __getitem__(self, name: str) -> pl.DataFrame:
        """Unpack a frame.

        Raises:
            KeyError: There is no such frame.
        """
        frame: pl.DataFrame = pickle.loads(inflate(self._packed[name]))
        return frame

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._packed)

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self._packed)

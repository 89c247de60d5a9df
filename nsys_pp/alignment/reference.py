"""Operations of a timeline, for comparison with events of another clock."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from nsys_pp.alignment.events import Events
from nsys_pp.arrays.core import load_core
from nsys_pp.arrays.insertion import insert_rows
from nsys_pp.arrays.members import list_members
from nsys_pp.arrays.records import select_rows
from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Bools, Floats, Int64s


class Reference(Struct, frozen=True, kw_only=True):
    """Operations of a timeline, in order of key and time; arrays as in `Events`."""

    key: Int64s
    times: Floats  # ends, on the timeline's clock, ns since the events' origin
    gap_before: Floats
    kind: Int64s
    channels: Int64s  # of the timeline
    instances: Int64s

    def __len__(self) -> int:
        return len(self.times)

    def select(self, rows: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> Reference:
        """Return the operations of these rows."""
        return select_rows(self, rows)

    def keep_keys(self, keys: Int64s) -> Reference:
        """Return the operations with these keys."""
        kept = list_members(keys)
        first, stop = self.key.searchsorted(kept), self.key.searchsorted(kept, side="right")
        return self if (stop - first).sum() == len(self) else self.select(expand_windows(first, stop))

    def of_key(self, key: int) -> tuple[int, int]:
        """Return the half-open rows of a key."""
        first, stop = np.searchsorted(self.key, (key, key + 1))
        return int(first), int(stop)

    def insert(self, other: Reference) -> Reference:
        """Return the operations of both, in order."""
        if not len(other):
            return self
        at = np.empty(len(other), dtype=np.int64)
        for key in list_members(other.key).tolist():
            (first, stop), (low, high) = self.of_key(key), other.of_key(key)
            at[low:high] = first + np.searchsorted(self.times[first:stop], other.times[low:high])
        names = self.__struct_fields__
        own, added = ([getattr(one, name) for name in names] for one in (self, other))
        return Reference(**dict(zip(names, insert_rows(load_core(), own, at, added), strict=True)))


def build_reference(
    events: Events, times: Floats, channels: Int64s, instances: Int64s, *, is_kept: Bools | None = None
) -> Reference:
    """Build a reference from events.

    Args:
        events: The events.
        times: Their ends on the timeline's clock.
        channels: Their channels of the timeline.
        instances: Their operations.
        is_kept: Mask of the events that are operations; None: all are.
    """
    rows = np.arange(len(events)) if is_kept is None else np.flatnonzero(is_kept)
    order = rows[np.lexsort((times[rows], events.key[rows]))]
    return Reference(
        key=events.key[order],
        times=times[order],
        gap_before=events.gap_before[order],
        kind=events.kind[order],
        channels=channels[order],
        instances=instances[order],
    )

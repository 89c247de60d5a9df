"""Keys of processes and threads, ids of GPUs and folders of machines: the forms that all stages agree on.

Keys of processes and threads have the bits that nsys gives its global ids of host, virtual machine, process
and thread. Only this module knows them; everywhere else a key is opaque.

    bits  63..56  55..48  47..24  23..0
          host    vm      pid     tid        a process has tid 0

Keys are signed 64-bit numbers, so those of hosts from 128 on are negative: bits are masked, and only
the result of a mask is ever divided.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

_TID_MASK = 0xFF_FFFF
_PROCESS_BITS = pl.Series([~_TID_MASK])  # polars builds this column for each number
_PID_MASK = 0xFF_FFFF << 24
_HOST_BITS, _VM_BITS, _PID_BITS = 56, 48, 24

Keys = TypeVar("Keys", pl.Expr, pl.Series, npt.NDArray[np.int64], int)


def process_key(thread_key: Keys) -> Keys:
    """Return the process of a thread (or of a process: itself).

    >>> pl.select(process_key(pl.lit(281_546_145_665_171))).item()
    281546145660928
    """
    return thread_key & (_PROCESS_BITS if isinstance(thread_key, pl.Series) else ~_TID_MASK)


def pid(key: Keys) -> Keys:
    """Return the process id in a thread's or process's key.

    >>> pl.select(pid(pl.lit(281_546_145_660_928))).item()
    4242
    """
    if not isinstance(key, pl.Expr):
        return (key & _PID_MASK) // (1 << _PID_BITS)
    return (key & pl.lit(_PID_MASK, dtype=pl.Int64)) // pl.lit(1 << _PID_BITS, dtype=pl.Int64)


def tid(thread_key: Keys) -> Keys:
    """Return the thread id in a thread's key.

    >>> pl.select(tid(pl.lit(-1))).item()
    16777215
    """
    return thread_key & _TID_MASK


def list_process_keys(parts: pl.DataFrame) -> pl.Series:
    """Build the keys of processes of a raw frame; the default host is 0, the default virtual machine 1.

    Args:
        parts: Columns `host`, `vm` and `pid`.

    Returns:
        Column `process_key`, null without a pid.

    >>> frame = pl.DataFrame({"host": [255, None], "vm": [1, None], "pid": [137893, 137893]})
    >>> list_process_keys(frame).to_list()
    [-71773805600571392, 283788437356544]
    """
    host, vm, pid = (
        (column.fill_null(absent) if column.null_count() else column).to_numpy()
        for column, absent in ((parts["host"], 0), (parts["vm"], 1), (parts["pid"], 0))
    )
    signed_host = np.where(host >= 128, host - 256, host)  # the sign bit is that of hosts from 128 on
    keys = (signed_host << _HOST_BITS) + (vm << _VM_BITS) + (pid << _PID_BITS)
    key = pl.Series("process_key", keys.tolist(), dtype=pl.Int64)  # of few rows
    return key.set(parts["pid"].is_null(), None) if parts["pid"].null_count() else key


def strip_uuid(text: str) -> str:
    """Convert an id of a device to the form of `uuid` in `GPUS`.

    >>> strip_uuid("GPU-8932F937-d72c-4106-c12f-20bd9faed9f6")
    '8932f937-d72c-4106-c12f-20bd9faed9f6'
    """
    return text.rpartition("GPU-")[2].removeprefix("MIG-").lower()


def find_machine_folder(path: Path) -> str | None:
    """Find the innermost folder `machine*` around a report; None without one.

    >>> find_machine_folder(Path("/runs/machine3/traces/rank0.sqlite"))
    'machine3'
    """
    folders = (folder.name for folder in path.absolute().parents)
    return next((name for name in folders if name.lower().startswith("machine")), None)

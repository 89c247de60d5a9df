"""Take the identifiers apart that nsys makes of host, virtual machine, process and thread.

    bits  63..56  55..48  47..24  23..0
          host    vm      pid     tid        a process has tid 0

They come as signed 64-bit numbers, so hosts from 128 on are negative: bits are masked, and only
what a mask has made positive is ever divided.
"""

from __future__ import annotations

import polars as pl

_TID_MASK = 0xFF_FFFF
_PID_MASK = 0xFF_FFFF << 24
_HOST_BITS, _VM_BITS, _PID_BITS = 56, 48, 24


def process_key(thread_key: pl.Expr) -> pl.Expr:
    """Give the process of a thread (or of a process: itself).

    >>> pl.select(process_key(pl.lit(281_546_145_665_171))).item()
    281546145660928
    """
    return thread_key & ~_TID_MASK


def pid(key: pl.Expr) -> pl.Expr:
    """Give the process id in a thread's or process's key.

    >>> pl.select(pid(pl.lit(281_546_145_660_928))).item()
    4242
    """
    return (key & pl.lit(_PID_MASK, dtype=pl.Int64)) // pl.lit(1 << _PID_BITS, dtype=pl.Int64)


def tid(thread_key: pl.Expr) -> pl.Expr:
    """Give the thread id in a thread's key.

    >>> pl.select(tid(pl.lit(-1))).item()
    16777215
    """
    return thread_key & _TID_MASK


def join_process_key(host: pl.Expr, vm: pl.Expr, pid: pl.Expr) -> pl.Expr:
    """Make a process's key of its parts, where a table has them apart.

    >>> pl.select(join_process_key(pl.lit(0), pl.lit(1), pl.lit(137893))).item()
    283788437356544
    """
    # polars has no shift; hosts from 128 on are subtracted from the sign bit that they set
    signed_host = pl.when(host >= 128).then(host - 256).otherwise(host)
    return signed_host * (1 << _HOST_BITS) + vm * (1 << _VM_BITS) + pid * (1 << _PID_BITS)

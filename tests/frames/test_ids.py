"""Keys of processes and threads, built and decoded."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.frames.ids import build_process_key, build_thread_key, pid, process_key, tid


@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, (1 << 24) - 1), st.integers(0, (1 << 24) - 1))
def test_keys_contain_what_they_are_built_of(host: int, vm: int, process_id: int, thread_id: int) -> None:
    process = build_process_key(pl.lit(host), pl.lit(vm), pl.lit(process_id))
    thread = build_thread_key(process, pl.lit(thread_id))
    expected = (host << 56 | vm << 48 | process_id << 24 | thread_id).to_bytes(8, "big")
    row = pl.select(
        process=process, thread=thread, owner=process_key(thread), pid=pid(thread), tid=tid(thread)
    ).row(0, named=True)
    assert row["thread"] == int.from_bytes(expected, "big", signed=True)
    assert row["owner"] == row["process"]
    assert (row["pid"], row["tid"]) == (process_id, thread_id)

"""Stores of blocks: what is read is what was written, in memory or in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.output import spool
from nsys_pp.output.spool import OpenBlocks, Spool

REPORTS = st.lists(st.lists(st.binary(min_size=1, max_size=9), max_size=5), min_size=1, max_size=4)


def read(open_blocks: OpenBlocks, size: int, piece: int) -> bytes:
    """Read the first bytes of blocks, in pieces of at most some size."""
    data = b""
    with open_blocks() as source:
        while len(data) < size:
            wanted = min(piece, size - len(data))
            block = source.read(wanted)
            assert 0 < len(block) <= wanted
            data += block
    return data


@given(reports=REPORTS, most=st.sampled_from([0, 3, 20, 1_000]), piece=st.integers(1, 12), data=st.data())
def test_reports_are_read_as_they_were_written(
    reports: list[list[bytes]], most: int, piece: int, data: st.DataObject
) -> None:
    failing = data.draw(st.sets(st.integers(0, len(reports) - 1)))
    with pytest.MonkeyPatch.context() as patch, Spool(Path("run.pftrace")) as store:
        patch.setattr(spool, "_MAX_IN_MEMORY", most)
        added = {}
        for number, blocks in enumerate(reports):
            try:
                with store.add() as (sink, open_blocks):
                    for block in blocks:
                        sink.write(block)
                    if number in failing:
                        raise InterruptedError
            except InterruptedError:
                continue
            added[b"".join(blocks)] = open_blocks
        for whole, open_blocks in added.items():
            assert read(open_blocks, len(whole), piece) == whole

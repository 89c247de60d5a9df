"""Where work beside other work is done."""

from __future__ import annotations

import threading

import pytest

from nsys_pp.arrays.threads import open_executor


@pytest.mark.parametrize(("row_count", "is_same"), [(0, True), (10_000_000, False)])
def test_few_rows_are_worked_on_at_once_and_many_on_threads(row_count: int, is_same: bool) -> None:
    with open_executor(row_count) as beside:
        thread = beside.submit(threading.get_ident).result()
        assert beside.submit(divmod, 7, 3).result() == (2, 1)
    assert (thread == threading.get_ident()) == is_same


@pytest.mark.parametrize("row_count", [0, 10_000_000])
def test_what_goes_wrong_is_told(row_count: int) -> None:
    with open_executor(row_count) as beside, pytest.raises(ZeroDivisionError):
        beside.submit(divmod, 7, 0).result()

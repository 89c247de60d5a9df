"""Names behind ids of strings: the same as by a plain dict, however the strings are numbered."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.conform import NAME
from nsys_pp.frames.raw import SCHEMAS
from nsys_pp.model.names import resolve

_IDS = st.integers(-3, 9) | st.sampled_from([-(1 << 31), (1 << 31) - 1])
_ROWS = st.lists(st.tuples(st.none() | _IDS, st.none() | st.sampled_from("abc")), max_size=8)
_COUNTED = st.integers(0, 6).map(lambda count: [(number, f"name {number}") for number in range(count)])


@settings(deadline=None, max_examples=100)
@given(
    rows=_ROWS | _COUNTED,
    ids=st.lists(st.none() | _IDS, max_size=12),
    dtype=st.sampled_from([NAME, pl.String()]),
)
def test_a_name_is_that_of_the_first_string_with_its_id(
    rows: list[tuple[int | None, str | None]], ids: list[int | None], dtype: pl.DataType
) -> None:
    strings = pl.DataFrame(rows, schema=SCHEMAS["strings"], orient="row")
    first: dict[int | None, str | None] = {}
    for number, text in rows:
        first.setdefault(number, text)
    first[None] = None
    named = resolve(pl.Series("ids", ids, dtype=pl.Int32), strings, dtype=dtype)
    assert named.name == "ids"
    assert named.dtype == dtype
    assert named.cast(pl.String).to_list() == [first.get(number) for number in ids]


def test_a_suffix_is_taken_off_names() -> None:
    strings = pl.DataFrame({"id": [0, 1], "text": ["call_v7000", "call"]}, schema=SCHEMAS["strings"])
    named = resolve(pl.Series([1, 0, None], dtype=pl.Int32), strings, strip=r"_v\d+$")
    assert named.to_list() == ["call", "call", None]

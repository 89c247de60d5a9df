"""Frames of columns are those that polars builds."""

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nsys_pp.frames import columns as module
from nsys_pp.frames.columns import build_frame, filter_rows, select_columns


@pytest.fixture(params=[True, False])
def constructor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave polars' own constructor out of half of the cases."""
    if not request.param:
        monkeypatch.setattr(module, "_find_constructor", lambda: None)


def test_polars_has_its_own_constructor() -> None:
    assert module._find_constructor() is not None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from("abcd"), min_size=1, unique=True),
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from([True, False, None]))),
)
@pytest.mark.usefixtures("constructor")
def test_frames_of_columns_are_those_of_polars(names: list[str], rows: list[tuple[int, bool | None]]) -> None:
    columns = [pl.Series(name, [value for value, _ in rows], dtype=pl.Int64) for name in "abcd"]
    frame = build_frame(columns)
    assert frame.equals(pl.DataFrame(columns))
    assert frame.columns == [*"abcd"]
    selected = select_columns(frame, names)
    assert selected.equals(frame[names])
    assert selected.columns == names
    passes = pl.Series([passes for _, passes in rows], dtype=pl.Boolean)
    assert filter_rows(frame, passes).equals(frame.filter(passes))


@pytest.mark.usefixtures("constructor")
def test_columns_have_one_length_and_different_names() -> None:
    for second in (pl.Series("b", [1]), pl.Series("a", [1, 2])):
        with pytest.raises(pl.exceptions.PolarsError):
            build_frame([pl.Series("a", [1, 2]), second])
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        select_columns(pl.DataFrame({"a": [1]}), ["b"])

"""Names in the cells of a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from nsys_pp.output.tables.text import clean, shorten_symbol

NAME = "void at::native::elementwise_kernel<(int)128, (int)2, at::Impl<float>::lambda(int)>(int, T3)"


@pytest.mark.parametrize(
    ("cells", "short"),
    [
        (200, NAME),
        (90, "at::native::elementwise_kernel<(int)128, (int)2, at::Impl<float>::lambda(int)>(…)"),
        (60, "at::native::elementwise_kernel<(int)128, (int)2, at::Im…>(…)"),
        (45, "at::native::elementwise_kernel<(int)128,…>(…)"),
        (10, "at::native::elementwise_kernel<(int)128…>(…)"),
    ],
)
def test_a_function_keeps_its_name_and_the_start_of_its_template_arguments(cells: int, short: str) -> None:
    found = shorten_symbol(NAME, cells)
    assert found.startswith("void at::" if cells > 100 else "at::native::elementwise_kernel<(int)12")
    assert cell_len(found) <= max(cells, 45)
    assert found == short


@pytest.mark.parametrize(
    "name", ["ampere_sgemm_128x64_tn" * 3, "a -> b" * 9, "x < y", "f(", ")", "<", "a>b<c", ""]
)
def test_a_name_without_arguments_stays_as_it_is(name: str) -> None:
    assert shorten_symbol(name, 5) == name


@given(st.text(alphabet="ab<>(), 前", max_size=40), st.integers(1, 40))
def test_a_short_name_ends_and_is_never_longer(name: str, cells: int) -> None:
    short = shorten_symbol(name, cells)
    assert cell_len(short) <= cell_len(name) or name.endswith("()")
    if cell_len(name) <= cells:
        assert short == name


@given(st.text())
def test_clean_text_has_as_many_characters_and_all_are_printable(text: str) -> None:
    assert len(clean(text)) == len(text)
    assert clean(text).isprintable()

"""Arrays that compiled functions accept."""

import ctypes

import numpy as np
import pytest

from nsys_pp.arrays.core_arguments import ArrayArgument, find_address


def test_an_array_is_passed_as_its_address() -> None:
    values = np.arange(5)
    address = ArrayArgument(np.int64).from_param(values).value
    assert address is not None
    assert (ctypes.c_int64 * 5).from_address(address)[:] == values.tolist()


@pytest.mark.parametrize(
    "values", [np.arange(4, dtype=np.int32), np.arange(4)[::2], np.zeros((2, 2), np.int64), np.zeros(2)]
)
def test_arrays_of_another_type_or_form_are_refused(values: np.ndarray) -> None:
    with pytest.raises(TypeError, match="expected a contiguous array of int64"):
        ArrayArgument(np.int64).from_param(values)


def test_results_are_written_to_arrays_that_can_be_written() -> None:
    values = np.arange(3)
    values.flags.writeable = False
    ArrayArgument(np.int64).from_param(values)
    with pytest.raises(TypeError):
        ArrayArgument(np.int64, is_written=True).from_param(values)


def test_addresses_are_those_of_numpy() -> None:
    fixed = np.arange(3)
    fixed.flags.writeable = False
    for values in (
        np.arange(3),
        fixed,
        np.zeros(0),
        np.arange(6)[::2],
        np.zeros((2, 3)),
        np.arange(3, dtype=">u4"),
    ):
        assert find_address(values) == values.ctypes.data

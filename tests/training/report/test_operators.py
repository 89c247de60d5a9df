"""Operators are told by what frameworks call them, and by nothing that programs call their own functions."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from nsys_pp.frames.aggregates import NAMED_OPERATORS
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import RANGES
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from nsys_pp.training.names import name_operators

NAMES = {
    # name of a range -> the operator, and whether it is communication
    "aten::addmm, seq = 12, op_id = 34": ("aten::addmm", False),
    "aten::relu_": ("aten::relu_", False),
    "AddmmBackward0, seq = 5, op_id = 9": ("AddmmBackward0", False),
    "autograd::engine::evaluate_function: AddmmBackward0, op_id = 3": (
        "autograd::engine::evaluate_function: AddmmBackward0",
        False,
    ),
    "c10d::allreduce_, seq = 1, op_id = 2, sizes = [[4, 4], []]": ("c10d::allreduce_", True),
    "nccl:all_reduce": ("nccl:all_reduce", True),
    "matmul dygraph": ("matmul dygraph", False),
    "c_allreduce_sum compute": ("c_allreduce_sum compute", True),
    "MatmulGradNode grad_node": ("MatmulGradNode grad_node", False),
    "MatmulGradNode": ("MatmulGradNode", False),
    "GradNodeAccumulation": ("GradNodeAccumulation", False),
    "pd_op.layer_norm_grad": ("pd_op.layer_norm_grad", False),
    "matmul_v2": ("matmul_v2", False),
    "elementwise_add_grad": ("elementwise_add_grad", False),
    "c_allreduce_sum": ("c_allreduce_sum", True),
    "send_v2": ("send_v2", True),
    "pd_op.all_reduce": ("pd_op.all_reduce", True),
    "c_identity": ("c_identity", False),
    "Thunk:#name=jit(f)/add,hlo_op=loop_add_fusion.12#": ("loop_add_fusion", False),
    "TSL:Thunk:#hlo_op=all-reduce-start.3.1#": ("all-reduce-start", True),
    "ncclAllGather": (None, True),
}
NO_OPERATORS = [
    "ExpressionEvaluator::evaluate",
    "forward 3",
    "step_2",
    "relu",
    "model_v2",
    "aten",
    "ncclx",
    "broadcast weights",
    None,
]


def ranges_of(names: list[str | None], domain: str | None = None) -> pl.DataFrame:
    columns = {name: [None] * len(names) for name in RANGES}
    found = {"range_id": [*range(7, 7 + len(names))], "name": names, "domain": [domain] * len(names)}
    return conform(pl.DataFrame(columns | found), RANGES)


def test_operators_are_named_without_what_tells_only_calls_apart() -> None:
    found = name_operators(ranges_of([*NAMES]))
    assert found.schema == NAMED_OPERATORS
    assert dict(zip(NAMES, found.select("name", "is_communication").rows(), strict=True)) == NAMES
    assert found["range_id"].to_list() == [*range(7, 7 + len(NAMES))]


def test_other_ranges_are_no_operators() -> None:
    assert name_operators(ranges_of(NO_OPERATORS)).is_empty()
    assert name_operators(ranges_of([])).schema == NAMED_OPERATORS


def test_whatever_stands_in_the_domain_of_nccl_is_communication() -> None:
    found = name_operators(ranges_of(["anything", None], domain="NCCL"))
    assert found.rows() == [(7, None, True)]
    assert name_operators(ranges_of(["anything"], domain="NCCL2")).is_empty()


@pytest.mark.parametrize(
    ("report", "operators", "names"),
    [("GindaChen__mfu_2gpu_before", 18656, 200), ("MohanadOdema__nsys_profile", 67, 40)],
)
def test_real_recordings_of_pytorch_have_few_names_of_operators(
    report: str, operators: int, names: int, shared_reports: list[Path]
) -> None:
    (path,) = [one for one in shared_reports if one.name.startswith(report)]
    ranges = build_report(read_report(path, need=frozenset({"ranges"}), nsys=None)).ranges
    found = name_operators(ranges)
    assert found["name"].count() == operators
    assert not found["name"].cast(pl.String).str.contains(r"seq = |op_id = ").any()
    assert found["name"].n_unique() < names

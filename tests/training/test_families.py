"""Families of kernels: a table of names from reports, published profiles and sources."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from nsys_pp.families.classify import (
    classify_kernels,
    classify_operations,
    extract_functions,
    fold_names,
    read_rules,
)
from nsys_pp.frames.aggregates import FAMILIES, KERNEL_FAMILIES
from nsys_pp.frames.conform import NAME
from nsys_pp.frames.report import OP_KIND

TABLE = Path(__file__).with_name("kernels.tsv")


def _read() -> pl.DataFrame:
    """Read the table of names; `tensor_cores` is "yes", "no" or "-" (the name does not show it)."""
    return pl.read_csv(TABLE, separator="\t", quote_char=None, infer_schema=False)


def test_every_name_has_the_family_library_and_use_of_tensor_cores_of_its_row() -> None:
    table = _read()
    classified = classify_kernels(table["name"]).select(
        pl.col("name").cast(pl.String),
        pl.col("family").cast(pl.String),
        "library",
        tensor_cores=pl.when("tensor_cores")
        .then(pl.lit("yes"))
        .when(~pl.col("tensor_cores"))
        .then(pl.lit("no"))
        .otherwise(pl.lit("-")),
    )
    assert classified.rows() == table.select(classified.columns).rows()


def test_the_table_is_large_and_names_its_sources() -> None:
    rows = _read()
    assert len(rows) >= 150
    assert rows["name"].is_unique().all()
    assert rows["source"].null_count() == 0
    assert set(rows["family"]) <= set(FAMILIES)


def test_each_rule_reads_at_least_one_word() -> None:
    """A rule that matches the empty name would match every name."""
    assert classify_kernels(pl.Series(["", "_", "kernel"]))["family"].to_list() == ["unknown"] * 3
    assert all(rule.pattern for rule in read_rules())


def test_no_names() -> None:
    assert classify_kernels(pl.Series([], dtype=NAME)).equals(KERNEL_FAMILIES.to_frame())


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("void a::b<c<d>(e)::[lambda(int) (instance 1)]>(T1 *)", "a::b"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int>(T)", "internal::gemvx::kernel"),
        ("void at::native::<unnamed>::f<(int)4>(T1)", "at::native::f"),
        ("void (anonymous namespace)::f<4>(float*)", "f"),
        ("void f<g<(in", "f"),  # cut by a table
        ("kernel [clone .kd]", "kernel"),
        ("plain_name", "plain_name"),
        ("", ""),
    ],
)
def test_functions(name: str, function: str) -> None:
    assert extract_functions(pl.Series([name])).to_list() == [function]


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["nvjet_tst_128x24_64x11_2x1_v_bz_TNT", "nvjet_tst_64x8_64x16_4x1_v_bz_TNT"], "nvjet_tst_v_bz_TNT"),
        (["ampere_sgemm_128x64_tn", "ampere_sgemm_32x32_sliced1x4_tn"], "ampere_sgemm_tn"),
        (["triton_poi_fused_add_mul_3", "triton_poi_fused_add_mul_12"], "triton_poi_fused_add_mul"),
        (["jit_kernel_1f0e9a2bc3_4", "jit_kernel_8a77b0c2de"], "jit_kernel"),
        (
            [
                f"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_{size}_nn_align8>(P)"
                for size in ("128x64_64x3", "256x128_32x3")
            ],
            "cutlass_tensorop_bf16_s16816gemm_bf16_nn",
        ),
        (
            [
                "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(T)",
                "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::Half>>(T)",
            ],
            "vectorized_elementwise_kernel CUDAFunctor_add",
        ),
    ],
)
def test_kernels_of_other_sizes_have_one_name(names: list[str], folded: str) -> None:
    text = pl.Series(names)
    assert set(fold_names(text, extract_functions(text))) == {folded}


def test_other_operations_have_families_of_their_own() -> None:
    ops = pl.DataFrame(
        {
            "kind": ["memcpy", "memset", "graph", "kernel", "kernel"],
            "name": ["Memcpy HtoD", "Memset", "CUDA graph 7", "my_exchange", "ampere_sgemm_128x64_tn"],
            "is_communication": [False, False, False, True, False],
        },
        schema={"kind": OP_KIND, "name": NAME, "is_communication": pl.Boolean},
    )
    families = classify_operations(ops)
    assert families["family"].to_list() == ["copy", "copy", "graph", "communication", "GEMM"]
    assert families["folded_name"].to_list() == [
        "Memcpy HtoD",
        "Memset",
        "CUDA graph",
        "my_exchange",
        "ampere_sgemm_tn",
    ]

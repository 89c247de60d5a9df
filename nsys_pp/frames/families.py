"""Families of GPU operations, and the frame that assigns one to each name of a kernel."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.report import NAME

FAMILIES = (
    "GEMM",  # products of matrices, also with vectors, and their parts (split-K)
    "attention",  # fused attention, and the masked softmax of attention that is not fused
    "convolution",
    "normalisation",
    "elementwise",  # activations, casts, dropout, rotary embeddings, random numbers
    "reduction",  # sums, maxima, softmax, losses
    "MoE routing",  # gates and permutations of mixtures of experts; their products are GEMMs
    "embedding",
    "optimizer",
    "communication",
    "copy",  # copies and sets; transposes, concatenations, gathers and scatters by kernels
    "graph",  # CUDA graphs that were traced as a whole
    "other",  # recognised, but none of these: sorts, scans, sampling, pooling, quantisation, FFT
    "unknown",  # no rule matches the name
)
FAMILY = pl.Enum(FAMILIES)
MATRIX_FAMILIES = ("GEMM", "attention", "convolution")
"""Families with kernels that can use tensor cores."""

KERNEL_FAMILIES = build_schema(
    {  # one row per name of a kernel, in the order of the names
        "name": NAME,
        "family": FAMILY,
        "library": pl.String,  # null where the name does not show it
        "tensor_cores": pl.Boolean,  # whether it uses tensor cores; null where the name does not show it
        "folded_name": NAME,  # without namespaces, template arguments, sizes and hashes
    },
    name="KERNEL_FAMILIES",
)

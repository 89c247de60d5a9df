"""Peaks of GPUs and FLOPs of models, compared with published numbers."""

from __future__ import annotations

import pytest

from nsys_pp.hardware import ModelShape, count_flops, find_peak, parse_model, read_peaks
from nsys_pp.options import DATA_TYPES


@pytest.mark.parametrize(
    ("gpu", "data_type", "tflops"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", 989.4),
        ("NVIDIA H100 PCIe", "bf16", 756),
        ("NVIDIA H100 NVL", "bf16", 835.5),
        ("NVIDIA H200", "fp8", 1979),
        ("NVIDIA GH200 480GB", "bf16", 989.5),
        ("NVIDIA B200", "bf16", 2250),
        ("NVIDIA GB200", "bf16", 2500),
        ("NVIDIA A100-SXM4-40GB", "bf16", 312),
        ("NVIDIA A100 80GB PCIe", "tf32", 156),
        ("NVIDIA L40S", "bf16", 362.05),
        ("NVIDIA L40", "bf16", 181.05),
        ("NVIDIA L4", "fp16", 121),
        ("Tesla V100-SXM2-16GB", "fp16", 125),
        ("Tesla T4", "fp16", 65),
        ("NVIDIA GeForce RTX 4090", "bf16", 165.2),
    ],
)
def test_peaks_are_dense(gpu: str, data_type: str, tflops: float) -> None:
    peak = find_peak(gpu)
    assert peak is not None
    assert peak.flops_per_s[data_type] == pytest.approx(tflops * 1e12)


@pytest.mark.parametrize(
    "gpu",
    [
        "NVIDIA A10G",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA TITAN X",
        "",
        None,
    ],
)
def test_gpus_without_an_entry_are_unknown(gpu: str | None) -> None:
    assert find_peak(gpu) is None


def test_each_peak_names_its_source() -> None:
    for peak in read_peaks():
        assert peak.source
        assert set(peak.flops_per_s) <= set(DATA_TYPES)


@pytest.mark.parametrize(
    ("layers", "hidden", "sequence", "batch", "vocabulary"),
    [(24, 2304, 2048, 512, 51200), (96, 12288, 2048, 1536, 51200), (2, 64, 32, 1, 0)],
)
def test_flops_equal_equation_3_of_narayanan_without_recomputation(
    layers: int, hidden: int, sequence: int, batch: int, vocabulary: int
) -> None:
    shape = ModelShape(layers=layers, hidden=hidden, sequence=sequence, batch=batch, vocabulary=vocabulary)
    dense = 72 * batch * sequence * layers * hidden**2
    expected = dense * (1 + sequence / (6 * hidden) + vocabulary / (12 * layers * hidden))
    assert count_flops(shape) == pytest.approx(expected)


def test_flops_of_a_model_with_grouped_heads_and_gates() -> None:
    """Llama 3 8B has 7.5e9 weights in products: 8.03e9 without the embedding (128,256 x 4,096)."""
    shape = parse_model(
        "layers=32,hidden=4096,sequence=1,batch=1,vocabulary=128256,feed_forward=14336,gated=1,heads=32,kv_heads=8"
    )
    assert (count_flops(shape) - 12 * 32 * 4096) / 6 == pytest.approx(7.504e9, rel=1e-3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "layers=2",
        "layers=2,hidden=x,sequence=1,batch=1",
        "layers=1,hidden=1,sequence=1,batch=1,width=2",
        "layers=1,layers=1,hidden=1,sequence=1,batch=1",
        "layers=1,hidden=1,sequence=1,batch=1,kv_heads=2",
    ],
)
def test_an_invalid_model_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"model|kv_heads"):
        parse_model(text)

"""What utilisation is measured against: peak rates of GPUs, and FLOPs of a training step of a transformer.

    FLOPs per token = 6 * N + 12 * layers * hidden * sequence

N is the number of weights in products: 2 * N FLOPs forward and 4 * N backward. The second term is the
attention: the products of queries with keys and of weights with values, over the whole sequence, as in PaLM
(Chowdhery et al. 2022, arXiv 2204.02311, appendix B), whose definition of model FLOPs utilisation this is:
recomputed activations and the causal mask do not count. With 4 * hidden in the feed-forward layer it equals
equation 3 of Narayanan et al. 2021 (arXiv 2104.04473) without the recomputation of activations.

    N = layers * (2 * hidden^2 + 2 * hidden^2 * kv_heads / heads + (2 or, gated, 3) * hidden * feed_forward) +
    hidden * vocabulary
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct

FORMULA = "6 N + 12 layers hidden sequence per token, N: weights in products (arXiv 2204.02311, appendix B)"
_EXAMPLE = "layers=32,hidden=4096,sequence=4096,batch=512,vocabulary=32000"

_TERA = 1e12


class Peak(Struct, frozen=True, kw_only=True):
    """Peak rates of one model of GPU.

    Attributes:
        pattern: Regular expression, searched in the name of the GPU.
        flops_per_s: By data type, dense.
        source: Publication of these numbers.
    """

    pattern: str
    flops_per_s: Mapping[str, float]
    source: str


@cache
def read_peaks() -> tuple[Peak, ...]:
    """Read the peaks of all GPUs, in the order in which their patterns apply."""
    text = (Path(__file__).parent / "peaks.toml").read_text(encoding="utf-8")
    return tuple(
        Peak(
            pattern=entry["pattern"],
            flops_per_s={name: value * _TERA for name, value in entry["tflops"].items()},
            source=entry["source"],
        )
        for entry in tomllib.loads(text)["gpu"]
    )


def find_peak(gpu: str | None) -> Peak | None:
    """Find the peak of a GPU by its name; None for GPUs without an entry, and without a name.

    >>> peak = find_peak("NVIDIA A100-SXM4-80GB")
    >>> peak.flops_per_s["bf16"] / 1e12 if peak else None
    312.0
    >>> find_peak("NVIDIA TITAN X") is None
    True
    """
    return next((peak for peak in read_peaks() if gpu and re.search(peak.pattern, gpu)), None)


class ModelShape(Struct, frozen=True, kw_only=True):
    """Shape of a transformer, and the batch of one step.

    Attributes:
        layers: Number of layers.
        hidden: Width of the model.
        sequence: Tokens of a sequence.
        batch: Sequences of a step, over all ranks.
        vocabulary: Rows of the output layer; 0: it does not count.
        feed_forward: Width of the feed-forward layers; 0: four times hidden.
        gated: 1 if feed-forward layers have three matrices (SwiGLU), 0 if two.
        heads: Attention heads; counts only together with kv_heads.
        kv_heads: Heads of keys and values; 0: as many as heads.
    """

    layers: int
    hidden: int
    sequence: int
    batch: int
    vocabulary: int = 0
    feed_forward: int = 0
    gated: int = 0
    heads: int = 0
    kv_heads: int = 0


def parse_model(text: str) -> ModelShape:
    """Parse the shape of a model.

    Raises:
        ValueError: It is invalid; the message contains an example.

    >>> parse_model("layers=2,hidden=8,sequence=4,batch=3").batch
    3
    """
    names = ModelShape.__struct_fields__
    values: dict[str, int] = {}
    for entry in text.split(","):
        name, _, value = (part.strip() for part in entry.partition("="))
        if name not in names or name in values or not re.fullmatch(r"\d{1,12}", value):
            raise ValueError(f"invalid part of a model `{entry.strip()}`; expected for example {_EXAMPLE}")
        values[name] = int(value)
    lacks = [name for name in ("layers", "hidden", "sequence", "batch") if not values.get(name)]
    if lacks:
        raise ValueError(f"a model needs {', '.join(lacks)}; for example {_EXAMPLE}")
    if values.get("kv_heads") and not values.get("heads"):
        raise ValueError("`kv_heads` needs `heads`")
    return ModelShape(**values)


def count_flops(shape: ModelShape) -> float:
    """Count the FLOPs of one step: forward and backward of all its tokens.

    >>> count_flops(ModelShape(layers=1, hidden=2, sequence=3, batch=1, vocabulary=5))
    1260.0
    """
    width = shape.feed_forward or 4 * shape.hidden
    kv_share = shape.kv_heads / shape.heads if shape.kv_heads else 1.0
    attention = 2 * shape.hidden**2 * (1 + kv_share)
    feed_forward = (3 if shape.gated else 2) * shape.hidden * width
    weights = shape.layers * (attention + feed_forward) + shape.hidden * shape.vocabulary
    per_token = 6 * weights + 12 * shape.layers * shape.hidden * shape.sequence
    return per_token * shape.batch * shape.sequence

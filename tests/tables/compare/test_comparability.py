from __future__ import annotations

import polars as pl
import pytest
from msgspec.structs import replace

from nsys_pp.frames.aggregates import RunFacts
from nsys_pp.options import ASPECTS
from nsys_pp.tables.compare_verdict import ComparisonError, compare_facts, describe_comparability

FACTS = RunFacts(
    steps=(10, 11, 12),
    step_source="range",
    gpus={"NVIDIA H100": 8},
    drivers=("550.90.07",),
    nsys=("2023.4.4.54",),
    lane_count=8,
    stage_count=4,
    micro_batch_count=8,
    has_passes=True,
    recorded=("NVTX ranges", "kernels"),
    options="--ops kernel --scope auto",
    bound_ns=1_000,
)


def differing(b: RunFacts, **options: list[str]) -> dict[str, tuple[str | None, str | None, str]]:
    table = compare_facts(FACTS, b, allowed=options.get("allowed", ()))
    rows = table.filter(pl.col("effect") != "same")
    assert rows["meaning"].null_count() == 0, "each difference has its reason"
    return {
        fact: (a, b, effect) for fact, a, b, effect in rows.select("fact", "a", "b", "effect").iter_rows()
    }


def test_equal_facts_are_the_same() -> None:
    assert differing(replace(FACTS, bound_ns=2_000, steps=(1, 2, 3, 4))) == {}
    assert describe_comparability(compare_facts(FACTS, FACTS)).startswith("the runs are alike")


def test_differences_are_named_with_their_effect() -> None:
    other = replace(
        FACTS,
        gpus={"NVIDIA A100": 4, "NVIDIA H100": 4},
        drivers=("535.1",),
        nsys=(),
        micro_batch_count=16,
        recorded=("NVTX ranges", "kernels", "OS calls"),
    )
    found = differing(other)
    assert found["GPUs"] == ("8 x NVIDIA H100", "4 x NVIDIA A100, 4 x NVIDIA H100", "large")
    assert found["micro-batches of a step"] == ("8", "16", "large")
    assert found["GPU driver"] == ("550.90.07", "535.1", "noted")
    assert found["nsys"] == ("2023.4.4.54", None, "unknown")
    assert found["what was recorded"] == ("less", "also OS calls", "noted")
    assert describe_comparability(compare_facts(FACTS, other)) == (
        "the runs differ in micro-batches of a step and GPUs, so compare with care"
    )


@pytest.mark.parametrize(
    ("changes", "aspect"),
    [
        ({"step_source": "capture"}, "steps"),
        ({"stage_count": 2}, "stages"),
        ({"has_passes": False}, "jobs"),
        ({"options": "--ops kernel,memcpy --scope auto"}, "operations"),
    ],
)
def test_refusals_name_the_option_that_overrides(changes: dict[str, object], aspect: str) -> None:
    other = replace(FACTS, **changes)
    with pytest.raises(ComparisonError, match="A and B cannot be compared") as caught:
        compare_facts(FACTS, other)
    assert f"--allow-different {aspect}" in str(caught.value.hint)
    assert [effect for _, _, effect in differing(other, allowed=[aspect]).values()] == ["excluded"]
    with pytest.raises(ComparisonError):
        compare_facts(FACTS, other, allowed=[name for name in ASPECTS if name != aspect])


def test_a_run_without_steps_is_refused() -> None:
    with pytest.raises(ComparisonError, match="run B has no complete step in 90:91"):
        compare_facts(FACTS, replace(FACTS, steps=(), window="90:91"))


def test_one_recording_is_named() -> None:
    a = replace(FACTS, recordings=("x",))
    table = compare_facts(a, replace(a, steps=(20, 21, 22)))
    assert (
        table.filter(fact="recordings")["meaning"].item()
        == "one recording: steps differ, all else is the same"
    )
    assert "compared with itself" in compare_facts(a, a).filter(fact="recordings")["meaning"].item()

from __future__ import annotations

import polars as pl
import pytest

from nsys_pp.errors import NsysPPError
from nsys_pp.tables.compare import COMPARISON, check_gates, parse_gate

MS = 1_000_000


def row(
    subject: str,
    a: float | None,
    b: float | None,
    *,
    unit: str = "ns",
    stage: int | None = None,
    noise: float | None = 0.01,
) -> dict[str, object]:
    change = None if a is None or b is None else b - a if unit == "fraction" else b / a - 1 if a else None
    return {
        "stage": stage,
        "subject": subject,
        "unit": unit,
        "a": a,
        "b": b,
        "change_fraction": change,
        "noise_fraction": noise,
    }


def comparison(*rows: dict[str, object]) -> dict[str, pl.DataFrame]:
    empty = COMPARISON.to_frame()
    return {
        "steps": pl.DataFrame(list(rows), schema=COMPARISON),
        **dict.fromkeys(("bubbles", "stages", "kinds", "kernels"), empty),
    }


RUNS = comparison(
    row("step", 100.0 * MS, 104.0 * MS),
    row("bubble", 0.20, 0.26, unit="fraction"),
    row("bubble", 20.0 * MS, 27.0 * MS),
    row("bubble", 0.10, 0.13, unit="fraction", stage=2),
    row("data", 0.0, 5.0 * MS, noise=None),
    row("data", 0.0, 0.05, unit="fraction"),
    row("forward", 10.0 * MS, 9.0 * MS),
    row("weight_gradient", None, 9.0 * MS),
)


def fails(text: str, runs: dict[str, pl.DataFrame] = RUNS) -> bool:
    return bool(check_gates(runs, [parse_gate(text)]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("step>3%", True),
        ("step>5%", False),
        ("step>3ms", True),
        ("step>3999us", True),
        ("step>4001us", False),
        ("step > .003s", True),
        ("bubble>5%", True),  # percentage points
        ("bubble>7%", False),
        ("bubble>6ms", True),
        ("bubble>8ms", False),
        ("bubble_b>25%", True),
        ("bubble_b>27%", False),
        ("bubble_b>=27ms", True),
        ("bubble_b<30%", True),
        ("step_b>103ms", True),
        ("stage 2 bubble>2%", True),
        ("stage 2 bubble>4%", False),
        ("stage  2  bubble_b > 12.5 %", True),
        ("data>1%", True),
        ("data>1ms", True),
        ("forward<-5%", True),
        ("forward>1%", False),
        ("weight_gradient_b>8ms", True),
    ],
)
def test_gates_mean_what_they_say(text: str, expected: bool) -> None:
    assert fails(text) is expected


@pytest.mark.parametrize("text", ["step>1%", "step>0%", "step>=1ms", "step<5%"])
def test_a_change_within_noise_passes_every_gate(text: str) -> None:
    noisy = comparison(row("step", 100.0 * MS, 104.0 * MS, noise=0.05))
    assert not fails(text, noisy)
    assert fails(text, comparison(row("step", 100.0 * MS, 104.0 * MS, noise=0.01)))


def test_where_noise_is_unknown_the_change_counts_and_the_sentence_says_so() -> None:
    single = comparison(row("step", 100.0 * MS, 104.0 * MS, noise=None))
    (sentence,) = check_gates(single, [parse_gate("step>3%")])
    assert sentence == (
        "`step>3%`: step went from 100.000 ms to 104.000 ms; its noise is unknown: a run has a single step"
    )


def test_every_gate_that_fails_gets_its_sentence_in_order() -> None:
    gates = [parse_gate(text) for text in ("stage 2 bubble>2%", "step>5%", "bubble_b>25%")]
    assert check_gates(RUNS, gates) == [
        "`stage 2 bubble>2%`: bubble of stage 2 went from 10.0% of the step to 13.0% of the step",
        "`bubble_b>25%`: bubble is 26.0% of the step",
    ]


@pytest.mark.parametrize(
    "text", ["", "bubble", "bubble>5", "bubble=5%", "5%>bubble", "bubble>5%%", "stage bubble>5%"]
)
def test_an_invalid_gate_is_refused(text: str) -> None:
    with pytest.raises(NsysPPError, match="invalid gate"):
        parse_gate(text)


def test_the_hint_of_an_unknown_metric_lists_the_metrics() -> None:
    with pytest.raises(NsysPPError, match="unknown metric `buble`") as caught:
        parse_gate("buble>5%")
    assert "`bubble`" in (caught.value.hint or "")


@pytest.mark.parametrize("text", ["optimizer>5%", "stage 7 bubble>5%", "weight_gradient>5%", "step_b>5%"])
def test_a_metric_that_the_runs_lack_is_an_error(text: str) -> None:
    with pytest.raises(NsysPPError) as caught:
        fails(text)
    assert text in caught.value.message
    assert caught.value.hint


def test_the_metrics_of_an_error_are_those_of_the_runs() -> None:
    with pytest.raises(NsysPPError) as caught:
        fails("optimizer>5%")
    assert caught.value.hint == "available: `step`, `bubble`, `data`, `forward`"

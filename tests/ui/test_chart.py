"""The chart's page in a real browser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from nsys_pp.frames.training import IDEAL, RUN_JOBS, Training, span_steps
from nsys_pp.frames.verdict import NO_VERDICT, Finding, Verdict
from nsys_pp.output.chart.content import build_bars
from nsys_pp.output.chart.page import write_html
from nsys_pp.output.tables.text import clean
from tests.output.large_training import make_large_training
from tests.training.expected_training import expected_training
from tests.ui.browser import STATE, Step, Visit, visit

NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"'\\ 😀 \u202egnirts\nnext"
SPAN_NOW, SPAN_BEFORE = "(now.end - now.start)", "(before.end - before.start)"
SHOW_TOOLTIP = "document.getElementById('tooltip').innerText"


FIT: Step = ["evaluate", "document.getElementById('fit').click()"]  # else one step is in view


def write_page(training: Training, folder: Path, title: str = "a run", verdict: Verdict = NO_VERDICT) -> Path:
    page = folder / "chart.html"
    with page.open("wb") as stream:
        write_html(training, stream, title=title, verdict=verdict)
    return page


def open_page(
    training: Training, folder: Path, steps: list[Step], *, title: str = "a run", **options: Any
) -> Visit:
    found = visit(write_page(training, folder, title), [FIT, *steps], **options)
    assert (found.errors, found.requests) == ([], [])
    return replace(found, values=found.values[1:])


@pytest.mark.parametrize("step", [None, 2])
def test_a_page_opens_on_the_step_of_the_verdict_or_a_typical_one(tmp_path: Path, step: int | None) -> None:
    slow = Finding(
        kind="straggler", text="rank 3 is slow", confidence="certain", subject="rank", since_step=step
    )
    verdict = Verdict(findings=(slow,)) if step else NO_VERDICT
    training = make_large_training(lanes=4, steps=5, micro_batches=2)
    (state,) = visit(write_page(training, tmp_path, "a run", verdict), [STATE]).values
    spans = span_steps(training.steps).sort(pl.col("end_ns") - pl.col("start_ns"))
    shown = (
        spans.row(len(spans) // 2, named=True)
        if step is None
        else spans.row(by_predicate=pl.col("step") == step, named=True)
    )
    length = shown["end_ns"] - shown["start_ns"]
    assert state["end"] - state["start"] == pytest.approx(1.06 * length, rel=0.01)
    assert state["start"] <= shown["start_ns"] - training.zero_ns <= state["end"]


def test_a_search_goes_to_what_it_finds_in_another_step(tmp_path: Path) -> None:
    made = make_large_training(lanes=4, steps=5, micro_batches=2)
    is_rare = pl.col("job") == made.jobs.filter(step=pl.col("step").max())["job"][-1]
    name = pl.when(is_rare).then(pl.lit("rare")).otherwise(pl.col("name").cast(pl.String))
    training = replace(made, jobs=made.jobs.with_columns(name.cast(RUN_JOBS["name"]).alias("name")))
    job = training.jobs.filter(is_rare).row(0, named=True)
    slow = Finding(kind="straggler", text="rank 3", confidence="certain", subject="rank", since_step=1)
    page = write_page(training, tmp_path, "a run", Verdict(findings=(slow,)))
    before, after = filter(None, visit(page, [STATE, ["type", "#search", "rare"], STATE]).values)
    middle = pytest.approx((job["start_ns"] + job["end_ns"]) / 2 - training.zero_ns)
    assert before["end"] < (after["start"] + after["end"]) / 2 == middle


def test_the_ideal_schedule_has_a_row_of_its_own(tmp_path: Path) -> None:
    known = replace(made := expected_training(), ideal=made.jobs.select(IDEAL.names()))
    steps: list[Step] = [STATE, click_on("ideal schedule"), STATE]
    before, after = filter(None, open_page(known, tmp_path, steps).values)
    assert (before["ideal"], after["ideal"] > 0, after["bars"]) == (0, True, before["bars"])
    layout = after["layout"]
    bar, ideal, send = (layout[name][1] for name in ("bars", "ideals", "sends"))
    assert bar + layout["barHeight"] < ideal < ideal + layout["idealHeight"] < send


def click_on(words: str) -> Step:
    find = "[...document.querySelectorAll('.switch')].find((one) => one.textContent === %r).click()"
    return ["evaluate", find % words]


def test_a_page_shows_everything_and_its_labels_fit(tmp_path: Path) -> None:
    known = expected_training()
    span = "(() => { const s = nsysChart.state(); nsysChart.view(s.start + (s.end - s.start) * %f, s.start + (s.end - s.start) * %f); })()"
    steps: list[Step] = [STATE]
    for window in [(0.0, 0.5), (0.13, 0.31), (0.4, 0.43), (0.0, 1.0)]:
        steps += [["evaluate", span % window], STATE]
    states = [value for value in open_page(known, tmp_path, steps).values if value]
    counts = {
        "bars": len(build_bars(known)),
        "arrows": known.transfers.height,
        "lanes": known.lanes.height,
        "ideal": 0,
    }
    assert {name: states[0][name] for name in counts} == counts
    assert sum(len(state["labels"]) for state in states) > 200
    for state in states:
        for label in state["labels"]:
            assert label["width"] <= label["right"] - label["left"]
            assert label["x"] - label["width"] / 2 >= label["left"] >= state["frame"]["left"]
            assert label["x"] + label["width"] / 2 <= label["right"]
            assert label["size"] <= label["bottom"] - label["top"]


def test_keys_wheel_and_drag_move_the_view(tmp_path: Path) -> None:
    many = make_large_training(lanes=64, steps=2, micro_batches=4, per_stage=1)
    found = open_page(
        many,
        tmp_path,
        [
            ["move", 900, 400], STATE,
            ["hold", "w", f"{SPAN_NOW} < 0.6 * {SPAN_BEFORE}"], STATE,
            ["hold", "d", "now.start > before.start"], STATE,
            ["hold", "a", "now.start < before.start"], STATE,
            ["hold", "s", f"{SPAN_NOW} > {SPAN_BEFORE}"], STATE,
            ["wheel", 0, -120, "Control"], STATE,
            ["wheel", 0, 300, None], STATE,
            ["drag", 900, 400, 700, 300], STATE,
            ["press", "f"], STATE,
            ["wheel", 0, -240, "Control"], ["doubleclick", 900, 400], STATE,
        ],
    )  # fmt: skip
    whole, w, d, a, s, zoomed, scrolled, dragged, fit, clicked = (value for value in found.values if value)
    span = {id(state): state["end"] - state["start"] for state in (whole, w, d, a, s, zoomed, dragged)}

    def time_at(state: dict[str, Any], x: float) -> float:
        share = (x - state["frame"]["left"]) / state["frame"]["width"]
        return float(state["start"] + share * (state["end"] - state["start"]))

    assert span[id(w)] < 0.7 * span[id(whole)]
    assert time_at(w, 900) == pytest.approx(time_at(whole, 900), rel=1e-6)
    assert d["start"] > w["start"]
    assert span[id(d)] == pytest.approx(span[id(w)])
    assert a["start"] < d["start"]
    assert span[id(s)] > span[id(a)]
    assert span[id(zoomed)] < span[id(s)]
    assert (scrolled["scroll"], scrolled["start"]) == (zoomed["scroll"] + 300, pytest.approx(zoomed["start"]))
    assert dragged["start"] - scrolled["start"] == pytest.approx(
        200 * span[id(zoomed)] / whole["frame"]["width"], rel=0.01
    )
    assert dragged["scroll"] == scrolled["scroll"] + 100
    for state in (fit, clicked):
        assert (state["start"], state["end"]) == pytest.approx((whole["start"], whole["end"]))


def test_tooltips_say_what_lies_under_the_mouse(tmp_path: Path) -> None:
    known = expected_training()
    known = replace(known, jobs=known.jobs.with_columns(role=pl.lit("actor")))
    first = open_page(known, tmp_path, [STATE]).values[0]

    def at(lane: int, time_ns: float, offset: float) -> Step:
        share = (time_ns - known.zero_ns - first["start"]) / (first["end"] - first["start"])
        x = first["frame"]["left"] + share * first["frame"]["width"]
        top = "document.getElementById('plot').getBoundingClientRect().top"
        place = f"clientX: {x}, clientY: {top} + {first['laneTops'][lane] + offset}"
        event = f"new PointerEvent('pointermove', {{ {place}, bubbles: true }})"
        return ["evaluate", f"document.getElementById('plot').dispatchEvent({event}); {SHOW_TOOLTIP}"]

    job = known.jobs.filter(pl.col("kind") == "backward").row(5, named=True)
    bubble = (
        known.lane_states.filter(pl.col("cause") == "message_wait")
        .sort(pl.col("end_ns") - pl.col("start_ns"))
        .row(-1, named=True)
    )
    arrow = known.transfers.sort("receive_wait_ns").row(-1, named=True)
    layout = first["layout"]
    receive = (
        layout["receives"][arrow["receiver"]]
        - layout["tops"][arrow["receiver"]]
        + layout["messageHeight"] / 2
    )
    texts = open_page(
        known,
        tmp_path,
        [
            at(job["lane"], (job["start_ns"] + job["end_ns"]) / 2, 12),
            at(bubble["lane"], (bubble["start_ns"] + bubble["end_ns"]) / 2, 12),
            at(arrow["receiver"], (arrow["receive_start_ns"] + arrow["receive_end_ns"]) / 2, receive),
        ],
    ).values
    words = [" ".join(text.split()) for text in texts]
    assert words[0].startswith(
        f"backward_{job['micro_batch']} kind backward role actor micro-batch {job['micro_batch']} chunk"
    )
    assert "node" in words[0]
    assert "busy 100.0 %" in words[0]
    assert words[1].startswith("message wait start")
    assert f"sender {known.lanes['label'][arrow['sender']]}" in words[2]
    assert "receiver waits" in words[2]
    assert "uncertain by ± 0 ns" in words[2]


def test_names_neither_break_nor_run(tmp_path: Path) -> None:
    known = expected_training()
    jobs = known.jobs.with_columns(name=pl.lit(NASTY).cast(RUN_JOBS["name"]), label=pl.lit(NASTY))
    lanes = known.lanes.with_columns(label=pl.lit(NASTY), machine=pl.lit(NASTY))
    nasty = replace(known, jobs=jobs, lanes=lanes, notes=[NASTY])
    texts = "[document.title, ...['title', 'notes-list', 'tooltip'].map((id) => document.getElementById(id).textContent)]"
    steps: list[Step] = [
        ["move", 245, 200],
        ["evaluate", texts],
        ["move", 120, 200],
        ["evaluate", texts],
    ]
    steps += [["evaluate", "[document.images.length, document.scripts.length]"]]
    found = open_page(nasty, tmp_path, steps, title=NASTY)
    for title, heading, notes, tooltip in (found.values[1], found.values[3]):
        assert title.split() == clean(NASTY).split()  # browsers join the white space of titles
        assert (heading, notes) == (NASTY, NASTY)
        assert tooltip.startswith(NASTY)
    assert found.values[4] == [0, 3]


def test_the_scheme_of_the_system_is_followed(tmp_path: Path) -> None:
    found = open_page(expected_training(), tmp_path, [STATE, ["scheme", "dark"], STATE]).values
    assert [found[0]["theme"], found[2]["theme"]] == ["light", "dark"]


@pytest.mark.parametrize("with_lanes", [False, True])
def test_an_empty_training_says_what_is_missing(tmp_path: Path, with_lanes: bool) -> None:
    names = ("jobs", "transfers", "lane_states", "steps", "ideal", *(["lanes"] if not with_lanes else []))
    known = expected_training()
    bare = replace(known, **{name: getattr(known, name).clear() for name in names})
    found = open_page(
        bare, tmp_path, [["evaluate", "document.getElementById('missing').innerText"], STATE]
    ).values
    assert "nothing to draw" in found[0]
    assert found[1]["bars"] == 0


@pytest.mark.parametrize("lanes", [1, 128])
def test_few_and_many_lanes(tmp_path: Path, lanes: int) -> None:
    training = make_large_training(lanes=lanes, steps=1, micro_batches=4, per_stage=1)
    state = open_page(training, tmp_path, [STATE]).values[0]
    assert (state["lanes"], state["maxScroll"] > 0) == (lanes, lanes == 128)


def test_many_ranks_are_folded_by_stage_and_unfold(tmp_path: Path) -> None:
    training = make_large_training(lanes=128, steps=2, micro_batches=8, per_stage=16)
    found = open_page(
        training,
        tmp_path,
        [
            STATE,
            ["picture", str(tmp_path / "folded.png")],
            [
                "evaluate",
                "(() => { const s = nsysChart.state(); const top = document.getElementById('plot').getBoundingClientRect().top; return [40, top + s.laneTops[16] + s.laneHeight / 2]; })()",
            ],
        ],
    )
    state, at = found.values[0], found.values[2]
    assert (state["lanes"], state["shownLanes"], len(state["folded"])) == (128, 8, 8)
    assert state["maxScroll"] == 0, "all stages are in view"
    assert state["laneHeight"] >= 60
    assert state["arrows"] > 0
    steps: list[Step] = [
        ["move", *at],
        ["drag", at[0], at[1], at[0], at[1]],
        STATE,
        click_on("all ranks"),
        STATE,
    ]
    steps += [click_on("all ranks"), STATE, ["type", "#search", "rank 77"], ["press", "Enter"], STATE]
    unfolded, everything, again, revealed = (
        value for value in open_page(training, tmp_path, steps).values if value
    )
    assert (unfolded["shownLanes"], unfolded["folded"]) == (8 + 15, [0, 2, 3, 4, 5, 6, 7])
    assert (everything["shownLanes"], again["shownLanes"]) == (128, 8)
    assert (revealed["folded"], revealed["matches"]["count"]) == ([0, 1, 2, 3, 5, 6, 7], 32)

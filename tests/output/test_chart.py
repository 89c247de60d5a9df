"""Charts: what the page is told, what pictures show, and that neither is harmed by names."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nsys_pp
from nsys_pp.errors import NsysPPError
from nsys_pp.frames.training import LANES, RUN_JOBS, Training
from nsys_pp.output.chart.content import build_bars
from nsys_pp.output.chart.page import pack_column, write_html
from nsys_pp.output.chart.picture import LEFT, MARGIN, WIDTH, write_png, write_svg
from nsys_pp.output.colors import HATCHES
from nsys_pp.units import NS_PER_DAY
from tests.output.large_training import make_large_training
from tests.sql import edit
from tests.training.expected_training import PIPELINE, expected_training, leave_out_events

CHARTS = {"html": write_html, "svg": write_svg, "png": write_png}

SVG = "{http://www.w3.org/2000/svg}"


NASTY = "</script><script>alert(1)</script> <b> \"'\\ \u2028 😀 \u202egnirts\nnext $x^2$ {{library}}"


CODES = {"u8": "u1", "i8": "i1", "u16": "<u2", "i16": "<i2", "u32": "<u4", "i32": "<i4", "f64": "<f8"}


@pytest.fixture(scope="module")
def known() -> Training:
    return expected_training()


def unpack(column: dict[str, Any]) -> list[Any]:
    values = np.frombuffer(base64.b64decode(column["data"]), CODES[column["type"]]).tolist()
    return [None if value == column.get("missing", "none") else int(value) for value in values]


def data_of(page: bytes) -> Any:
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.decode())
    assert len(found) == 1
    return json.loads(found[0])


def as_bytes(write: Any, training: Training, **options: Any) -> bytes:
    stream = io.BytesIO()
    write(training, stream, **{"title": "a run", **options})
    return stream.getvalue()


@settings(deadline=None, max_examples=100)
@given(st.lists(st.one_of(st.none(), st.integers(-(2**53) + 2, 2**53 - 1))))
def test_columns_are_exact(values: list[int | None]) -> None:
    assert unpack(pack_column(pl.Series(values, dtype=pl.Int64))) == values


def test_a_number_that_a_page_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="too large"):
        pack_column(pl.Series([2**53 + 1]))


def test_the_page_holds_every_job_exactly(known: Training) -> None:
    data = data_of(as_bytes(write_html, known))
    table = {
        name: unpack(column)
        for name, column in data["tables"]["jobs"]["columns"].items()
        if name != "confidence"
    }
    jobs = known.jobs
    others = build_bars(known).filter(pl.col("name") == "compute")  # the truth has no jobs of optimizers
    assert len(others) == 24
    assert sorted(table["job"]) == [*jobs["job"].to_list(), *sorted(others["job"])]
    by_job = jobs.select("job", "kind", "start_ns", "end_ns", "micro_batch", "lane", "label").rows_by_key(
        "job"
    )
    for row, job in enumerate(table["job"]):
        if job not in by_job:
            continue
        kind, start, end, micro_batch, lane, label = by_job[job][0]
        assert data["kinds"][table["kind"][row]] == kind
        assert table["start"][row] + known.zero_ns == start
        assert table["duration"][row] == end - start
        assert (table["micro_batch"][row], table["lane"][row]) == (micro_batch, lane)
        assert data["labels"][table["label"][row]] == label
    bubbles = known.lane_states.filter(~pl.col("cause").cast(pl.String).is_in(["compute", "pause"]))
    assert data["tables"]["bubbles"]["length"] == bubbles.height
    assert data["tables"]["transfers"]["length"] == known.transfers.height
    assert [lane["label"] for lane in data["lanes"]] == known.lanes["label"].to_list()


def test_roles_of_jobs_are_in_the_page_where_there_are_any(known: Training) -> None:
    assert "role" not in data_of(as_bytes(write_html, known))["tables"]["jobs"]["columns"]
    jobs = known.jobs.with_columns(role=pl.when(pl.col("micro_batch") % 2 == 0).then(pl.lit("actor")))
    page = data_of(as_bytes(write_html, replace(known, jobs=jobs)))
    columns = page["tables"]["jobs"]["columns"]
    found = {
        job: page["roles"][code]
        for job, code in zip(*map(unpack, (columns["job"], columns["role"])), strict=True)
    }
    roles = dict(jobs.select("job", pl.col("role").fill_null("")).rows())
    assert {job: found[job] for job in roles} == roles


def test_the_page_needs_no_network(known: Training) -> None:
    page = as_bytes(write_html, known).decode()
    assert not re.search(r"<(script|link|img|iframe)[^>]*\s(src|href)=", page)
    assert "default-src 'none'" in page


def test_names_cannot_leave_their_place(known: Training) -> None:
    jobs = known.jobs.with_columns(name=pl.lit(NASTY).cast(RUN_JOBS["name"]), label=pl.lit(NASTY))
    nasty = replace(known, jobs=jobs, lanes=known.lanes.with_columns(machine=pl.lit(NASTY)), notes=[NASTY])
    page = as_bytes(write_html, nasty, title=NASTY)
    data = data_of(page)
    assert (data["names"], data["title"], data["notes"]) == ([NASTY, "compute"], NASTY, [NASTY])
    plain = as_bytes(write_html, known).lower()
    for tag in (b"<script", b"</script"):
        assert page.lower().count(tag) == plain.count(tag)


def test_a_title_that_is_no_unicode_is_written(known: Training) -> None:
    assert b"<title>a b</title>" in as_bytes(write_html, known, title="a\udcffb")


def list_boxes(picture: bytes, group: str) -> list[tuple[float, float]]:
    """List the left and right sides of the boxes in a group."""
    return [
        (float(x), float(x) + float(width))
        for element in ElementTree.fromstring(picture).iter(f"{SVG}g")
        if element.get("id") == group
        for path in element.iter(f"{SVG}path")
        for x, width in re.findall(r"M([-\d.]+) [-\d.]+h([-\d.]+)", path.get("d") or "")
    ]


@pytest.mark.parametrize("kind", ["forward", "backward"])
def test_an_svg_has_every_job_where_it_ran(known: Training, kind: str) -> None:
    drawn = sorted(list_boxes(as_bytes(write_svg, known), f"jobs-{kind}"))
    jobs = known.jobs.filter(pl.col("kind") == kind)
    first, last = known.steps["start_ns"].min(), known.steps["end_ns"].max()
    assert isinstance(first, int)
    assert isinstance(last, int)
    margin = (last - first) // 200
    per_ns = (WIDTH - LEFT - MARGIN) / (last - first + 2 * margin)
    wanted = sorted(
        (LEFT + (start - first + margin) * per_ns, LEFT + (end - first + margin) * per_ns)
        for start, end in jobs.select("start_ns", "end_ns").iter_rows()
    )
    assert len(drawn) == len(wanted) > 50
    np.testing.assert_allclose(drawn, wanted, atol=0.02)


def test_an_svg_has_bubbles_steps_and_arrows(known: Training) -> None:
    picture = as_bytes(write_svg, known)
    for cause in set(known.lane_states["cause"]) - {"compute", "pause"}:
        count = known.lane_states.filter(pl.col("cause") == cause).height
        assert len(list_boxes(picture, f"bubbles-{cause}")) == count
        assert (f"url(#hatch-{cause})".encode() in picture) == (cause in HATCHES)
    assert len(set(HATCHES.values())) == len(HATCHES) - 2, "sends, receives and waits for messages share one"
    assert len(list_boxes(picture, "steps")) == known.steps["step"].n_unique()
    assert len(re.findall(rb"C[\d.]+ ", picture)) == known.transfers["transfer_ns"].is_not_null().sum()


@pytest.mark.parametrize("format", CHARTS)
def test_equal_trainings_give_equal_bytes(known: Training, format: str) -> None:
    assert as_bytes(CHARTS[format], known) == as_bytes(CHARTS[format], known)


@pytest.mark.parametrize("format", CHARTS)
@pytest.mark.parametrize("with_lanes", [False, True])
def test_an_empty_training_says_what_is_missing(known: Training, format: str, with_lanes: bool) -> None:
    lanes = known.lanes if with_lanes else LANES.to_frame()
    content = as_bytes(CHARTS[format], replace(leave_out_events(known), lanes=lanes))
    assert content
    if format == "html":
        assert ("no kernel" if with_lanes else "no GPU process") in data_of(content)["missing"]


def test_a_png_has_two_pixels_for_one(known: Training) -> None:
    width, height = struct.unpack(">II", as_bytes(write_png, known)[16:24])
    root = ElementTree.fromstring(as_bytes(write_svg, known))
    assert [width, height] == [2 * int(root.get(side) or 0) for side in ("width", "height")]


@pytest.mark.parametrize("lanes", [1, 48])
def test_few_and_many_lanes_are_drawn(lanes: int) -> None:
    training = make_large_training(lanes=lanes, steps=1, micro_batches=1, per_stage=1)
    for write in CHARTS.values():
        assert as_bytes(write, training)


def test_events_of_one_lane_that_are_months_apart_are_refused_in_words(tmp_path: Path) -> None:
    report = edit(
        Path(shutil.copy(PIPELINE / "node2" / "rank0.sqlite", tmp_path)),
        f'UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = "end" + {200 * NS_PER_DAY}'
        ' WHERE "end" = (SELECT max("end") FROM CUPTI_ACTIVITY_KIND_KERNEL)',
    )
    with pytest.raises(NsysPPError, match="events are 200 days apart"):
        nsys_pp.chart([report], tmp_path / "run.html")

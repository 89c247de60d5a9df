"""Chrome JSON: as JSON, as Perfetto's importer reads it, and as catapult does."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.clock import Clock
from nsys_pp.output.chrome import encode_texts, write_chrome
from nsys_pp.output.colors import COLORS
from tests.importer import Importer, assert_no_errors
from tests.output.drawings import (
    TEXTS,
    UTC,
    PlacedDrawings,
    PlacedSubtrack,
    counter_subtrack,
    draw_slices,
    drawing,
    expected_slices,
    mark_subtrack,
    random_drawing,
    slice_subtrack,
    slices,
)
from tests.ui.browser import Shot, catapult_screenshot

SLICES = """
SELECT process.name || '/' || thread.name AS path, ts, dur, slice.name AS name
FROM slice JOIN thread_track ON thread_track.id = track_id JOIN thread USING (utid) JOIN process USING (upid)
"""


def parse(drawn: PlacedDrawings) -> Any:
    return json.loads(b"".join(write_chrome(drawn)), parse_float=Decimal)


def nanoseconds(value: Decimal, base: int = 0) -> int:
    exact = value * 1000
    assert exact == int(exact)
    return int(exact) + base


def read_slices(found: Any) -> list[tuple[Any, ...]]:
    """Return (path, ts, dur, name, args) of the X events, sorted."""
    base = int(found["otherData"]["base_ns"])
    names = {
        (event["name"], event["pid"], event.get("tid")): event["args"]["name"]
        for event in found["traceEvents"]
        if event["ph"] == "M" and event["name"].endswith("_name")
    }
    rows = [
        (
            f"{names['process_name', event['pid'], None]}/{names['thread_name', event['pid'], event['tid']]}",
            nanoseconds(event["ts"], base),
            nanoseconds(event["dur"]),
            event.get("name"),
            {
                key: float(value) if isinstance(value, Decimal) else value
                for key, value in event.get("args", {}).items()
            },
        )
        for event in found["traceEvents"]
        if event["ph"] == "X"
    ]
    return sorted(rows, key=repr)


def expected(drawn: PlacedDrawings) -> list[tuple[Any, ...]]:
    rows = []
    for path, ts, dur, _, name, args in expected_slices(drawn):
        machine, gpu, row = path.split("/")
        rows.append((f"{machine} / {gpu}/{row}", ts, dur, name, args))
    return sorted(rows, key=repr)


def shown_by_perfetto(texts: Sequence[str | None]) -> dict[str, str | None]:
    """Map what v52 shows of names back to the names: it leaves most escapes of JSON as they are."""
    known = [text for text in texts if text is not None]
    escaped = encode_texts(pl.Series(known)).str.slice(1).str.head(-1)
    return {"[No name]": None, **dict(zip(escaped, known, strict=True)), **{text: text for text in known}}


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_slice_is_there(seed: int) -> None:
    drawn = random_drawing(seed)
    assert read_slices(parse(drawn)) == expected(drawn)


@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_perfetto_reads_every_slice(importer: Importer, seed: int) -> None:
    drawn = random_drawing(seed)
    found = importer.query(b"".join(write_chrome(drawn)), SLICES)
    assert_no_errors(importer)
    base = int(parse(drawn)["otherData"]["base_ns"])
    back = shown_by_perfetto([*TEXTS, None])
    shown = [(path, ts + base, dur, back[name]) for path, ts, dur, name in found.rows()]
    assert sorted(shown, key=repr) == [row[:4] for row in expected(drawn)]


def test_rows_are_named_and_sorted() -> None:
    rows = slices([(0, 1, 0, "x")])
    drawn = drawing(
        slice_subtrack("node10/GPU 0/s", rows),
        slice_subtrack("node2/GPU 0/s", rows),
        slice_subtrack("node2/GPU 0/s", rows, number=1),
        slice_subtrack("node2/CPU/python/main", rows),
        mark_subtrack("node2/CPU/python/main", [(0, "m", None)]),
        slice_subtrack("m/alone", rows),
    )
    found = [event for event in parse(drawn)["traceEvents"] if event["ph"] == "M"]
    named = [(e["pid"], e.get("tid"), e["args"]["name"]) for e in found if e["name"].endswith("_name")]
    assert [name for _, tid, name in named if tid is None] == [
        "m",
        "node2 / CPU",
        "node2 / GPU 0",
        "node10 / GPU 0",
    ]
    assert [name for _, tid, name in named if tid] == ["alone", "python / main", "s", "s", "s"]
    order = [(e["pid"], e.get("tid")) for e in found if e["name"].endswith("sort_index")]
    assert [e["args"]["sort_index"] for e in found if e["name"].endswith("sort_index")] == [
        tid or pid for pid, tid in order
    ]
    assert len({tid for _, tid in order if tid} | {pid for pid, _ in order}) == 9


def test_marks_counters_and_colours() -> None:
    drawn = drawing(
        slice_subtrack("m/g/s", slices([(0, 1, 0, "x", "forward"), (1, 2, 0, "y", "mine"), (2, 3, 0)])),
        mark_subtrack("m/g/s", [(1, "mark", "backward")]),
        counter_subtrack("m/g/busy", [(1, 0.5), (2, float("nan"))]),
        unit="%",
    )
    events = [event for event in parse(drawn)["traceEvents"] if event["ph"] != "M"]
    assert [
        (event["name"], event.get("cname")) for event in events if "name" in event and event["ph"] != "C"
    ] == [("x", COLORS["forward"].cname), ("y", None), ("mark", COLORS["backward"].cname)]
    slice_thread = next(event["tid"] for event in events if event["ph"] == "X")
    marks = [event for event in events if event["ph"] == "i"]
    assert [(mark["s"], mark["name"], mark["tid"]) for mark in marks] == [("t", "mark", slice_thread)]
    samples = [(event["name"], event["args"]) for event in events if event["ph"] == "C"]
    assert samples == [("busy", {"%": Decimal("0.5")}), ("busy", {"%": Decimal("0.0")})]


def test_arrows(importer: Importer) -> None:
    big = 2**64 - 1
    drawn = drawing(
        slice_subtrack(
            "m/a", slices([(0, 9, 0, "out", None, big), (0, 4, 1, "child"), (9, 9, 0, "one", None, 5)])
        ),
        slice_subtrack("m/b", slices([(12, 20, 0, "in", None, big), (20, 20, 0, "zero", None, 6)])),
        slice_subtrack("m/c", slices([(30, 40, 0, "last", None, big), (40, 41, 0, "end", None, 6)])),
    )
    found = importer.query(
        b"".join(write_chrome(drawn)),
        "SELECT a.name AS a, b.name AS b FROM flow JOIN slice a ON a.id = slice_out JOIN slice b ON b.id = "
        "slice_in",
    )
    assert sorted(found.rows()) == [("in", "last"), ("out", "in"), ("zero", "end")]
    assert_no_errors(importer)


def test_gzip_is_the_same_and_knows_no_time_of_day() -> None:
    drawn = random_drawing(5)
    packed = b"".join(write_chrome(drawn, compress=True))
    assert gzip.decompress(packed) == b"".join(write_chrome(drawn))
    assert packed == b"".join(write_chrome(random_drawing(5), compress=True))


def test_facts_stand_beside_the_events() -> None:
    subtrack = slice_subtrack("m/a", slices([(1_234_567, 2_000_000, 0, "x")]), clock=Clock.fixed(5))
    found = parse(drawing(subtrack, is_utc=False, facts={"é": '"'}))
    assert found["otherData"] == {"é": '"', "base_ns": "1234000", "clock": "report"}
    assert found["displayTimeUnit"] == "ns"


@pytest.mark.slow
def test_catapult_reads_it(tmp_path: Path) -> None:
    drawn = drawing(
        slice_subtrack(
            "m/g/s", slices([(0, 9_000, 0, "out", "forward", 1), (2_000, 3_000, 1, 'quote "', None)])
        ),
        slice_subtrack("m/g/t", slices([(20_000, 30_001, 0, "in", None, 1)])),
    )
    trace = tmp_path / "t.json"
    trace.write_bytes(b"".join(write_chrome(drawn)))
    found = catapult_screenshot(trace, tmp_path / "t.png", Shot(settle_ms=0))
    assert found["errors"] == []
    value = found["value"]
    assert (value["flows"], value["warnings"]) == (1, [])
    shown = [(t["process"], t["name"], [s[:3] for s in t["slices"]]) for t in value["threads"]]
    assert shown == [
        ("m / g", "s", [["out", 0, pytest.approx(0.009)], ['quote "', 0.002, pytest.approx(0.001)]]),
        ("m / g", "t", [["in", 0.02, pytest.approx(0.010001)]]),
    ]


def test_many_rows_in_bounded_pieces() -> None:
    rows = pl.DataFrame({"start_ns": range(100_000)}).select(
        "start_ns",
        end_ns=pl.col("start_ns") + 1,
        depth=pl.lit(0, pl.Int32),
        name=pl.lit("x").cast(pl.Categorical()),
        color=pl.lit(None, pl.Categorical()),
        flow_id=pl.lit(None, pl.UInt64),
    )
    entry = PlacedSubtrack(machine="m", clock=UTC, subtrack=draw_slices(("a",), rows))
    pieces = list(write_chrome(drawing(entry)))
    assert max(map(len, pieces)) < 4_000_000
    assert sum(piece.count(b'"ph":"X"') for piece in pieces) == 100_000

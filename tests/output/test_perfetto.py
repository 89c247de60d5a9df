"""The trace as Perfetto's importer reads it."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from io import BytesIO
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nsys_pp.frames.clock import Clock
from nsys_pp.frames.part import Row, Track
from nsys_pp.output.colors import COLORS
from nsys_pp.output.perfetto.trace import encode_drawing, write_perfetto
from nsys_pp.output.trace.drawing import (
    Drawing,
    Placement,
)
from tests.importer import Importer, assert_no_errors, read_flows, read_tracks, slices_by_track
from tests.output.drawings import (
    HEADINGS,
    TEXTS,
    UTC,
    UTC_NS,
    PlacedDrawings,
    counter_subtrack,
    draw_subtracks,
    drawing,
    encode,
    expected_slices,
    mark_subtrack,
    random_drawing,
    slice_subtrack,
    slices,
    trace_ns,
)

DEEPEST = 512


A = Track(path=("a",), name="a", rank=0)


def written(drawn: PlacedDrawings) -> bytes:
    return b"".join(write_perfetto(encode(drawn)))


def read_back(importer: Importer, drawn: PlacedDrawings) -> list[tuple[Any, ...]]:
    found = slices_by_track(importer, written(drawn))
    assert_no_errors(importer)
    return sorted(found.select(HEADINGS).rows(), key=repr)


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_slice_comes_back(importer: Importer, seed: int) -> None:
    drawn = random_drawing(seed)
    assert read_back(importer, drawn) == expected_slices(drawn)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([(0, 10, 0), (10, 20, 0), (20, 20, 0), (20, 30, 0)], id="touching"),
        pytest.param([(0, 10, 0), (0, 10, 1), (0, 10, 2)], id="equal"),
        pytest.param([(0, 10, 0), (0, 0, 1), (0, 4, 1), (4, 4, 1), (4, 10, 1)], id="equal start"),
        pytest.param([(5, 5, 0), (5, 5, 0), (5, 5, 1), (5, 5, 2), (5, 5, 0)], id="zero length"),
        pytest.param([(-9, -3, 0), (-9, -9, 1), (7, 8, 0)], id="negative"),
        pytest.param([(2**62, 2**62 + 1, 0)], id="late"),
        pytest.param([(i, 2000 - i, i) for i in range(DEEPEST)], id="deepest"),
        pytest.param([(0, 1, 0)], id="one"),
    ],
)
def test_shapes(importer: Importer, rows: Sequence[tuple[int, int, int]]) -> None:
    drawn = drawing(slice_subtrack("m/a", slices([(*row, f"n{i}") for i, row in enumerate(rows)])))
    assert read_back(importer, drawn) == expected_slices(drawn)


def test_an_empty_drawing_is_a_trace(importer: Importer) -> None:
    drawn = drawing(slice_subtrack("a/b", slices([])), mark_subtrack("c/m", []), counter_subtrack("d/c", []))
    assert read_back(importer, drawn) == []


def test_long_subtracks_of_many_shapes(importer: Importer) -> None:
    """They are written in blocks, of which some end amid slices that are open."""
    count, deep = 40_000, 7
    rows = [
        (100 * (i // deep) + i % deep, 100 * (i // deep) + 90 - i % deep, i % deep, TEXTS[i % len(TEXTS)])
        for i in range(count)
    ]
    drawn = drawing(
        slice_subtrack(
            "m/a",
            slices(
                rows,
                id=pl.Series(range(count)),
                odd=pl.Series([i if i % 2 else None for i in range(count)]),
                third=pl.Series(
                    [TEXTS[i % 5] if i % 3 else None for i in range(count)], dtype=pl.Categorical()
                ),
            ),
        )
    )
    importer.load(written(drawn))
    assert_no_errors(importer)
    found = importer.query(
        None,
        """
        SELECT ts - 1700000000000000000 AS ts, dur, depth, extract_arg(arg_set_id, 'debug.id') AS id,
          extract_arg(arg_set_id, 'debug.odd') AS odd, extract_arg(arg_set_id, 'debug.third') AS third
        FROM slice ORDER BY id
        """,
    )
    assert found.select("ts", "dur", "depth", "id").rows() == [
        (start, end - start, depth, i) for i, (start, end, depth, _) in enumerate(rows)
    ]
    assert found["odd"].count() == count // 2
    assert found["third"].count() == sum(1 for i in range(count) if i % 3)


def test_tracks_stand_in_order(importer: Importer) -> None:
    rows = slices([(0, 1, 0, "x")])
    paths = ["node10/GPU 0/stream 7", "node2/GPU 1/b", "node2/GPU 0/z", "node2/GPU 0/a"]
    tracks = read_tracks(importer, written(drawing(*(slice_subtrack(path, rows) for path in paths))))
    assert ["/".join(path) for path in tracks["path"]] == [
        "node2",
        "node2/GPU 0",
        "node2/GPU 0/z",
        "node2/GPU 0/a",
        "node2/GPU 1",
        "node2/GPU 1/b",
        "node10",
        "node10/GPU 0",
        "node10/GPU 0/stream 7",
    ]


def test_rows_have_the_names_and_places_that_they_are_given(importer: Importer) -> None:
    rows = slices([(0, 1, 0, "x")])
    tracks = [
        Track(path=("GPU 0",), name="GPU 0", rank=0),
        Track(path=("GPU 0", "x"), name="first", rank=-5),
        Track(path=("GPU 0", "a"), name="last", rank=5, description="of a kind"),
        Track(path=("GPU 0", "empty"), name="nothing on it", rank=0),
    ]
    placed = [
        slice_subtrack("m/GPU 0/a", rows),
        slice_subtrack("m/GPU 0/x", rows),
        slice_subtrack("m/GPU 0/left out/y", rows),
    ]
    tracks.append(Track(path=("GPU 0", "left out", "y"), name="y", rank=0))
    placement = Placement(
        machine="m",
        machine_order=0,
        rows={"GPU 0": Row(name="GPU 0 · rank 3", order=0, description="a GPU")},
        clock=UTC,
    )
    drawn = [(draw_subtracks(tracks, [entry.subtrack for entry in placed]), placement)]
    found = read_tracks(importer, written(drawn))
    gpu = ["m", "GPU 0 · rank 3"]
    assert found["path"].to_list() == [
        ["m"],
        gpu,
        [*gpu, "first"],
        [*gpu, "last"],
        [*gpu, "left out"],
        [*gpu, "left out", "y"],
    ]
    assert found["description"].to_list() == [None, "a GPU", None, "of a kind", None, None]
    assert read_back(importer, drawn) == expected_slices(drawn)


def test_subtracks_of_a_track_are_one_row_and_no_other(importer: Importer) -> None:
    rows = slices([(0, 10, 0, "x")])
    same_name = [Track(path=("g", "a"), name="same", rank=0), Track(path=("g", "b"), name="same", rank=1)]
    subtracks = [
        slice_subtrack("m/g/a", rows),
        slice_subtrack("m/g/a", rows, number=1),
        slice_subtrack("m/g/b", rows),
        slice_subtrack("m/g/b", rows, number=1),
    ]
    ((one, placement),) = drawing(*subtracks)
    tracks = read_tracks(importer, written([(replace(one, tracks=same_name), placement)]))
    first, again, second, last = tracks.filter(pl.col("path").list.len() == 3)["track_group_id"]
    assert first == again != second == last


def test_rows_of_two_reports_meet_under_one_name(importer: Importer) -> None:
    """Their slices may overlap, and each has its own clock."""
    rows = slices([(0, 10, 0, "x"), (10, 30, 0, "y")])
    placed = [slice_subtrack("m/GPU 0/s", rows, clock=Clock.fixed(UTC_NS + late)) for late in (0, 5)]
    placed += [counter_subtrack("m/GPU 0/busy", [(0, 1.0)], clock=entry.clock) for entry in placed]
    drawn = drawing(*placed)
    assert len(drawn) == 2
    assert read_back(importer, drawn) == expected_slices(drawn)
    tracks = read_tracks(importer, written(drawn)).filter(pl.col("path").list.len() == 3)
    assert tracks["path"].list.last().to_list() == ["s", "s", "busy", "busy"]
    assert tracks["track_group_id"][:2].n_unique() == 1


def test_a_track_may_hold_subtracks_and_children(importer: Importer) -> None:
    rows = slices([(0, 10, 0, "x")])
    drawn = drawing(
        slice_subtrack("m/a", rows), slice_subtrack("m/a", rows, number=1), slice_subtrack("m/a/b", rows)
    )
    assert read_back(importer, drawn) == expected_slices(drawn)


def test_marks_and_counters(importer: Importer) -> None:
    drawn = drawing(
        mark_subtrack("a/marks", [(5, "one", None), (5, 'two "', "forward"), (9, None, None)]),
        counter_subtrack("a/busy", [(0, 0.5), (0, -1.0), (7, 1e300)]),
        counter_subtrack("b/busy", [(3, 2.0)]),
    )
    assert slices_by_track(importer, written(drawn)).select("path", "ts", "dur", "name").rows() == [
        ("a/marks", UTC_NS + 5, 0, "one"),
        ("a/marks", UTC_NS + 5, 0, 'two "'),
        ("a/marks", UTC_NS + 9, 0, None),
    ]
    assert importer.query(
        None,
        "SELECT name, unit, ts, value FROM counter JOIN counter_track t ON t.id = track_id ORDER BY t.id, ts",
    ).rows() == [
        ("busy", "count", UTC_NS, 0.5),
        ("busy", "count", UTC_NS, -1.0),
        ("busy", "count", UTC_NS + 7, 1e300),
        ("busy", "count", UTC_NS + 3, 2.0),
    ]
    assert_no_errors(importer)


@pytest.mark.parametrize("unit", ["%", "bytes", "ns", "TFLOP/s"])
def test_units_of_counters(importer: Importer, unit: str) -> None:
    drawn = drawing(counter_subtrack("m/a", [(0, 1.0)]), unit=unit)
    assert importer.query(written(drawn), "SELECT unit FROM counter_track").item() == unit


def test_marks_share_the_row_of_their_track(importer: Importer) -> None:
    drawn = drawing(slice_subtrack("m/a", slices([(0, 9, 0, "x")])), mark_subtrack("m/a", [(3, "m", None)]))
    tracks = read_tracks(importer, written(drawn))
    assert tracks.filter(pl.col("path").list.len() == 2)["track_group_id"].n_unique() == 1


def test_arrows_join_the_slices_that_share_an_id(importer: Importer) -> None:
    chance = random.Random(1)
    ids = [*range(1, 40), 2**64 - 1]
    ends = [(flow, side) for flow in ids for side in range(chance.choice([2, 2, 2, 3, 1]))]
    chance.shuffle(ends)
    subtracks = [
        slice_subtrack(
            f"m/t{k}",
            slices(
                [(i * 10 + k, i * 10 + k + 5, 0, f"{k} {i}", None, flow) for i, (flow, _) in enumerate(part)]
            ),
            clock=Clock.fixed(UTC_NS - k),
        )
        for k, part in enumerate([ends[::2], ends[1::2]])
    ]
    found = slices_by_track(importer, written(drawing(*subtracks)))
    names = dict(zip(found["slice_id"], found["name"], strict=True))
    arrows = sorted((names[out], names[into]) for out, into in read_flows(importer))
    starts = sorted(
        (trace_ns(entry.clock, start), k, flow, name)
        for k, entry in enumerate(subtracks)
        for start, flow, name in entry.subtrack.frame.select("start_ns", "flow_id", "name").iter_rows()
    )
    chains = {flow: [name for _, _, other, name in starts if other == flow] for flow in ids}
    assert arrows == sorted(pair for chain in chains.values() for pair in pairwise(chain))
    assert_no_errors(importer)


def test_colours_are_set_by_their_seeds(importer: Importer) -> None:
    kinds = [*COLORS, "a kind of its own", None]
    drawn = drawing(slice_subtrack("m/a", slices([(i, i + 1, 0, "n", kind) for i, kind in enumerate(kinds)])))
    found = slices_by_track(importer, written(drawn))["correlation"].to_list()
    assert found == [*(color.seed for color in COLORS.values()), "a kind of its own", None]


def test_wall_clock_time(importer: Importer) -> None:
    drawn = drawing(slice_subtrack("m/a", slices([(1_234, 2_000, 0, "x")])))
    sql = "SELECT abs_time_str(ts) AS text, to_realtime(ts) AS real FROM slice"
    assert importer.query(written(drawn), sql).rows() == [("2023-11-14T22:13:20.000001234", UTC_NS + 1_234)]


def test_no_wall_clock_time_where_it_is_unknown(importer: Importer) -> None:
    drawn = drawing(slice_subtrack("m/a", slices([(0, 1, 0, "x")]), clock=Clock.fixed(0)), is_utc=False)
    clocks = importer.query(
        written(drawn), "SELECT count(*) FROM clock_snapshot WHERE clock_name = 'REALTIME'"
    )
    assert clocks.item() == 0


def test_a_report_moves_by_its_head_alone() -> None:
    rows = slices([(i, i + 1, 0, "x") for i in range(1000)])
    here = list(write_perfetto(encode(drawing(slice_subtrack("m/a", rows)))))
    there = list(write_perfetto(encode(drawing(slice_subtrack("n/a", rows, clock=Clock.fixed(UTC_NS + 5))))))
    assert [one == other for one, other in zip(here, there, strict=True)] == [False, False, True]
    assert len(here[1]) < 60


def test_bytes_depend_on_the_drawing_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pl.Series(["met", "before", *reversed(TEXTS)], dtype=pl.Categorical())
    by_several = written(random_drawing(7))
    monkeypatch.setattr("nsys_pp.output.perfetto.trace.MAX_THREADS", 1)
    assert written(random_drawing(7)) == by_several


def test_two_reports_never_share_a_sequence() -> None:
    ((one, placement),) = drawing(slice_subtrack("m/a", slices([(0, 1, 0, "x")])))
    with pytest.raises(ValueError, match="same packet sequence"):
        written([(one, placement), (replace(one, report_id=one.report_id ^ 1 << 40), placement)])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        pytest.param([(0, 10, 0), (5, 15, 0)], "overlap", id="overlap"),
        pytest.param([(0, 10, 0), (5, 15, 1)], "overlap", id="child ends late"),
        pytest.param([(5, 10, 0), (1, 7, 1)], "overlap", id="child starts early"),
        pytest.param([(0, 10, 0), (1, 5, 2)], "pre-order", id="depth is skipped"),
        pytest.param([(0, 10, 1)], "pre-order", id="starts deep"),
        pytest.param([(0, 9, i) for i in range(DEEPEST + 1)], "513 deep", id="too deep"),
        pytest.param([(7, 3, 0)], "overlap", id="ends before it starts"),
    ],
)
def test_what_cannot_be_drawn_is_refused(rows: Sequence[tuple[int, int, int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        written(drawing(slice_subtrack("m/a", slices(rows))))


@pytest.mark.parametrize(
    "drawn",
    [
        pytest.param(
            draw_subtracks([A], [mark_subtrack("m/a", [(5, "x", None), (4, "y", None)]).subtrack]), id="marks"
        ),
        pytest.param(
            draw_subtracks([A], [counter_subtrack("m/a", [(5, 1.0), (4, 1.0)]).subtrack]), id="samples"
        ),
        pytest.param(
            draw_subtracks([], [slice_subtrack("m/a", slices([(0, 1, 0)])).subtrack]), id="no such track"
        ),
        pytest.param(draw_subtracks([A, A], []), id="same track twice"),
    ],
)
def test_drawings_that_break_their_rules(drawn: Drawing) -> None:
    with pytest.raises(ValueError, match=r"order|track"):
        encode_drawing(drawn, BytesIO())


@pytest.mark.parametrize(
    ("begins", "offsets", "message"),
    [
        ([], [], "needs pieces"),
        ([0, 1], [5], "needs pieces"),
        ([3, 3], [5, 5], "order"),
        ([0, 1], [5, 4], "decreases"),
    ],
)
def test_clocks_that_break_their_rules(begins: list[int], offsets: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Clock(from_ns=np.array(begins, np.int64), offset_ns=np.array(offsets, np.int64))


@pytest.mark.parametrize("seed", range(20))
def test_a_clock_knows_the_way_back(seed: int) -> None:
    """By its definition: the earliest time that is drawn there or later."""
    chance = random.Random(seed)
    begins = sorted(chance.sample(range(-50, 50), chance.randint(1, 8)))
    offsets = np.cumsum(chance.choices([0, 1, 7], k=len(begins)), dtype=np.int64) + chance.randint(-9, 9)
    clock = Clock(from_ns=np.array(begins), offset_ns=offsets)
    times = list(range(-150, 150))
    assert clock.to_trace(np.array(times)).tolist() == [trace_ns(clock, time) for time in times]
    for drawn_ns in range(-80, 80):
        assert clock.to_report(drawn_ns) == min(t for t in times if trace_ns(clock, t) >= drawn_ns)


schema: Any = pytest.importorskip(
    "perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="no schema: `pip install perfetto`"
)


unknown_fields: Any = pytest.importorskip("google.protobuf.unknown_fields")


@pytest.mark.parametrize("seed", [1, 2])
def test_a_trace_holds_nothing_that_the_schema_does_not_know(seed: int) -> None:
    trace = schema.Trace()
    trace.ParseFromString(b"".join(write_perfetto(encode(random_drawing(seed)))))
    inner = schema.Trace()
    for packet in trace.packet:
        inner.MergeFromString(
            zlib.decompress(packet.compressed_packets) if packet.compressed_packets else b""
        )
    packets = [*trace.packet, *inner.packet]
    assert [list_unknown(packet) for packet in packets] == [[]] * len(packets)
    assert sum(packet.HasField("track_event") for packet in inner.packet) > 100
    assert all(packet.trusted_packet_sequence_id for packet in packets if not packet.compressed_packets)


def list_unknown(message: Any) -> list[Any]:
    """List fields of a message, and of the messages in it, that its schema lacks."""
    unknown = list(unknown_fields.UnknownFieldSet(message))
    for entry, value in message.ListFields():
        if entry.message_type is not None:
            for part in value if entry.is_repeated else [value]:
                unknown += list_unknown(part)
    return unknown

"""Outermost rows of a trace."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.frames.part import Track
from nsys_pp.output.perfetto.header import hoist, order_by_text
from nsys_pp.output.trace.drawing import Node, Path, arrange


def track(*path: str, rank: int = 0, unit: str | None = None) -> Track:
    return Track(path=path, name=path[-1], rank=rank, counter_unit=unit)


NAMES = st.text(st.sampled_from("rank 019·é"), min_size=1, max_size=4).filter(str.strip)


@given(st.lists(NAMES, unique_by=str.lstrip, max_size=30))
def test_text_sorts_names_as_they_were_given(names: list[str]) -> None:
    nodes = [Node(track=Track(path=(str(at),), name=name, rank=0), order=at) for at, name in enumerate(names)]
    found = list(order_by_text(nodes).values())
    assert sorted(found, key=str.encode) == found
    assert [name.lstrip(" ") for name in found] == [name.lstrip(" ") for name in names]
    assert len(set(found)) == len(found)


def test_few_spaces_are_enough_for_many_ranks() -> None:
    names = ["steps", *(f"rank {rank} · stage {rank // 256}" for rank in range(1024)), "node1"]
    nodes = [Node(track=track(name), order=at) for at, name in enumerate(names)]
    assert max(name.count(" ") - name.strip().count(" ") for name in order_by_text(nodes).values()) < 8


def test_rows_move_above_machines_with_all_that_is_below_them() -> None:
    tracks = [
        track("node1", rank=0),
        track("node1", "GPU 0", rank=7),
        track("node1", "GPU 0", "busy", rank=1, unit="%"),
        track("node1", "GPU 0", "jobs", rank=2),
        track("node1", "GPU 0", "stream 7", rank=3),
        track("node1", "CPU: python"),
        track("node1", "CPU: python", "thread"),
        track("run", "steps"),
    ]
    leaves = {
        ("node1", "GPU 0", "busy"): [1],
        ("node1", "GPU 0", "jobs"): [2, 3],
        ("node1", "GPU 0", "stream 7"): [4],
        ("node1", "CPU: python", "thread"): [5],
        ("run", "steps"): [6],
    }
    outermost: dict[Path, str] = {("run", "steps"): "steps", ("node1", "GPU 0"): "rank 0"}
    moved, of_rows = hoist({one.path: one for one in tracks}, leaves, outermost)
    nodes = arrange(moved, of_rows)
    shown = [
        (" " * 2 * (len(node.track.path) - 1) + node.track.name, of_rows.get(node.track.path, []))
        for node in nodes
    ]
    assert shown == [
        ("steps", [6]),
        ("rank 0", [2, 3]),
        ("  busy", [1]),
        ("  stream 7", [4]),
        ("node1", []),
        ("  CPU: python", []),
        ("    thread", [5]),
    ]
    assert nodes[1].track.description == "shows jobs"


def test_a_row_with_events_of_its_own_keeps_them() -> None:
    tracks = [track("run", "steps"), track("run", "steps", "more")]
    leaves = {("run", "steps"): [1], ("run", "steps", "more"): [2]}
    _, of_rows = hoist({one.path: one for one in tracks}, leaves, {("run", "steps"): "steps"})
    assert sorted(of_rows.values()) == [[1], [2]]


def test_a_row_of_counters_alone_shows_the_first() -> None:
    tracks = [
        track("m", "GPU 0"),
        track("m", "GPU 0", "busy", unit="%"),
        track("m", "GPU 0", "x", rank=1, unit="B"),
    ]
    leaves: dict[Path, list[int]] = {("m", "GPU 0", "busy"): [1], ("m", "GPU 0", "x"): [2]}
    moved, of_rows = hoist({one.path: one for one in tracks}, leaves, {("m", "GPU 0"): "GPU 0"})
    (row,) = [path for path in of_rows if len(path) == 1]
    assert of_rows[row] == [1]
    assert (moved[row].name, moved[row].counter_unit) == ("GPU 0", "%")

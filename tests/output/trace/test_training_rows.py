"""The rows of a training, as Perfetto's importer reads them."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from nsys_pp.frames.clock import Clock
from nsys_pp.frames.training import LANE_STATES, RUN_STEPS, TRANSFERS, Training
from nsys_pp.output.colors import COLORS
from nsys_pp.output.perfetto.trace import write_perfetto
from nsys_pp.output.trace.drawing import Placement, Row
from nsys_pp.output.trace.run_tracks import RUN, GpuRow, draw_training
from tests.importer import Importer, assert_no_errors, read_flows, read_tracks, slices_by_track
from tests.output.drawings import PlacedDrawings, encode
from tests.training.expected_training import expected_training

TRAINING = expected_training()
PLACES = {
    row["lane"]: GpuRow(machine=row["machine"], row=row["gpu"])
    for row in TRAINING.lanes.iter_rows(named=True)
}


def place(training: Training) -> PlacedDrawings:
    drawn = []
    for machine, drawing in draw_training(training, PLACES).items():
        rows = {track.path[0]: Row(name=track.path[0], order=track.rank) for track in drawing.tracks}
        placement = Placement(machine=machine, machine_order=0, rows=rows, clock=Clock.fixed(0))
        drawn.append((drawing, placement))
    return drawn


def read(importer: Importer, training: Training) -> pl.DataFrame:
    slices = slices_by_track(importer, b"".join(write_perfetto(encode(place(training)))))
    assert_no_errors(importer)
    return slices


def gpu_path(lane: int) -> str:
    return f"{PLACES[lane].machine}/{PLACES[lane].row}"


def test_jobs_come_back_where_they_computed(importer: Importer) -> None:
    slices = read(importer, TRAINING)
    for lane in PLACES:
        jobs = TRAINING.jobs.filter(lane=lane)
        letters = jobs["kind"].cast(pl.String).str.slice(0, 1).str.to_uppercase()
        found = slices.filter(path=f"{gpu_path(lane)}/jobs").sort("ts")
        assert found["name"].to_list() == (letters + jobs["label"]).to_list()
        assert found["ts"].to_list() == jobs["compute_start_ns"].to_list()
        assert found["dur"].to_list() == (jobs["compute_end_ns"] - jobs["compute_start_ns"]).to_list()
        seeds = [COLORS[kind].seed for kind in jobs["kind"]]
        assert found["correlation"].to_list() == seeds


def test_each_role_has_a_row_of_its_own(importer: Importer) -> None:
    role = pl.Series([(None, "actor", "critic")[number % 3] for number in range(len(TRAINING.jobs))])
    training = replace(TRAINING, jobs=TRAINING.jobs.with_columns(role=role))
    slices = read(importer, training)
    for lane in PLACES:
        jobs = training.jobs.filter(lane=lane)
        for name, own in (("jobs", None), ("jobs of actor", "actor"), ("jobs of critic", "critic")):
            found = slices.filter(path=f"{gpu_path(lane)}/{name}").sort("ts")
            of_role = jobs.filter(pl.col("role").eq_missing(own))
            assert found["ts"].to_list() == of_role["compute_start_ns"].to_list()
    names = [track.name for track in draw_training(training, PLACES)[PLACES[0].machine].tracks]
    assert set(names) >= {"steps", "jobs", "jobs of actor", "jobs of critic"}


def test_steps_of_every_gpu_and_of_the_run_come_back(importer: Importer) -> None:
    slices = read(importer, TRAINING)
    for lane in PLACES:
        steps = TRAINING.steps.filter(lane=lane)
        found = slices.filter(path=f"{gpu_path(lane)}/steps")
        assert (
            found.select("ts", "dur").rows()
            == steps.select("start_ns", pl.col("end_ns") - pl.col("start_ns")).rows()
        )
        assert found["name"].to_list() == [f"step {step}" for step in steps["step"]]
    run = slices.filter(path=f"{RUN}/steps").sort("ts")
    spans = TRAINING.steps.group_by("step").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    assert run.select("ts", end=pl.col("ts") + pl.col("dur")).rows() == spans.sort("step").drop("step").rows()


def test_every_message_has_an_arrow_from_its_send_to_its_way(importer: Importer) -> None:
    slices = read(importer, TRAINING)
    by_id = {row["slice_id"]: row for row in slices.iter_rows(named=True)}
    joined = [(by_id[out], by_id[into]) for out, into in read_flows(importer)]
    expected = [
        (gpu_path(row["sender"]), row["send_start_ns"], gpu_path(row["receiver"]), row["receive_end_ns"])
        for row in TRAINING.transfers.iter_rows(named=True)
    ]
    assert len(expected) == 144
    found = [
        (
            out["path"].removesuffix("/messages"),
            out["ts"],
            into["path"].removesuffix("/messages"),
            into["ts"] + into["dur"],
        )
        for out, into in joined
    ]
    assert sorted(found) == sorted(expected)
    assert all(out["name"].startswith("send ") and into["name"] == "transfer" for out, into in joined)
    assert all(out["ts"] < into["ts"] and into["depth"] == 1 for out, into in joined)


def test_a_message_that_seems_to_arrive_before_it_left_has_no_arrow(importer: Importer) -> None:
    first = TRAINING.transfers.head(1)
    before = first.with_columns(
        receive_start_ns=pl.col("send_start_ns") - 50, receive_end_ns=pl.col("send_start_ns") - 1
    )
    slices = read(importer, replace(TRAINING, transfers=before))
    assert read_flows(importer) == []
    assert len(slices.filter(pl.col("path").str.ends_with("/messages"))) == 2


def test_the_bubble_of_a_stage_counts_its_gpus(importer: Importer) -> None:
    start = TRAINING.zero_ns
    rows = [
        (0, 1, "steady", "compute", start, start + 10, None),
        (0, 1, "steady", "host", start + 10, start + 30, None),
        (0, 1, "steady", "idle", start + 30, start + 40, None),
        (1, 1, "steady", "message_transfer", start, start + 20, None),
        (1, 1, "steady", "compute", start + 20, start + 40, None),
    ]
    lanes = TRAINING.lanes.with_columns(stage=pl.lit(0, pl.Int64))
    lane_states = pl.DataFrame(rows, schema=LANE_STATES, orient="row")
    read(importer, replace(TRAINING, lanes=lanes, lane_states=lane_states))
    samples = importer.query(
        None,
        "SELECT ts, value FROM counter JOIN counter_track t ON t.id = track_id WHERE t.name = 'bubble of "
        "stage 0'",
    )
    assert samples.rows() == [
        (start, 50.0),
        (start + 10, 100.0),
        (start + 20, 50.0),
        (start + 40, 0.0),
    ]


def test_lanes_that_share_a_gpu_have_rows_of_their_own(importer: Importer) -> None:
    places = dict.fromkeys(PLACES, GpuRow(machine="node", row="GPU 0"))
    paths = {track.path for drawing in draw_training(TRAINING, places).values() for track in drawing.tracks}
    assert {("GPU 0", f"jobs of rank {rank}") for rank in range(4)} <= paths
    assert ("GPU 0", "jobs") not in paths


def test_nothing_is_drawn_of_reports_without_jobs_steps_and_messages() -> None:
    nothing = replace(TRAINING, jobs=TRAINING.jobs.clear(), transfers=TRANSFERS.to_frame())
    whole = TRAINING.steps.with_columns(source=pl.lit("capture", RUN_STEPS["source"]))
    assert draw_training(replace(nothing, steps=whole), PLACES) == {}
    names = {track.name for drawing in draw_training(nothing, PLACES).values() for track in drawing.tracks}
    assert names >= {"steps"}
    assert "jobs" not in names


def test_rows_of_the_training_stand_above_what_a_gpu_shows(importer: Importer) -> None:
    tracks = read_tracks(importer, b"".join(write_perfetto(encode(place(TRAINING)))))
    below = [path[-1] for path in tracks["path"].to_list() if len(path) == 3 and path[1] == "GPU 0"]
    assert list(dict.fromkeys(below)) == ["jobs", "steps", "messages"]


@pytest.mark.parametrize("cut", ["jobs", "transfers", "lane_states", "steps"])
def test_any_frame_may_be_empty(importer: Importer, cut: str) -> None:
    read(importer, replace(TRAINING, **{cut: getattr(TRAINING, cut).clear()}))

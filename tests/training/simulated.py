"""Simulated runs as true trainings, without any report: half a second each."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from fixtures import options
from fixtures.recording.assignment import build_recordings
from fixtures.simulate import train
from fixtures.truth.tables import write_truth
from nsys_pp.frames.training import Training
from tests.training.known import known_training
from tests.training.waiting import measure_own_compute, name_the_late


@cache
def simulate_training(text: str = "") -> Training:
    """Simulate a run of four stages of two replicas and return its truth; `text`: options of the simulator."""
    with tempfile.TemporaryDirectory() as folder:
        common = "--pp 4 --dp 2 --micro-batches 4 --layers 2 --steps 4"
        chosen = options.build_parser().parse_args([folder, *common.split(), *text.split()])
        workers = train(options.build_training(chosen), seed=chosen.seed)
        recordings = build_recordings(
            workers,
            chosen.out,
            site=options.build_site(chosen),
            errors=options.build_clock_errors(chosen),
            seed=chosen.seed,
        )
        write_truth(recordings, chosen.out / "truth", is_brief=True)
        training = known_training(Path(folder), schedule=chosen.schedule)
        return measure_own_compute(name_the_late(training, Path(folder)))

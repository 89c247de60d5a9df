"""`nsys-pp whatif`: predictions as tables and data, what they need, and refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import nsys_pp
from fixtures import simulate
from nsys_pp.errors import MissingDataError, OptionError
from nsys_pp.training.paired import pair_runs
from nsys_pp.training.whatif import WhatIf
from tests.cli.calls import call, succeed

OPTIONS = "--pp 2 --dp 2 --steps 4 --micro-batches 4 --layers 1 --names megatron --brief-truth --seed 51"


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which rank 3 computes 30 % longer."""
    folder = tmp_path_factory.mktemp("slow")
    simulate.main([*OPTIONS.split(), "--slow-rank", "3=1.3", str(folder)])
    return folder


def predictions(slow: Path, heal: Sequence[str] = (), scale: Sequence[str] = ()) -> dict[str, float]:
    result = nsys_pp.whatif(slow, layout="pp=2,dp=2", heal=heal, scale=scale)
    return dict(result.predictions.select("change", "gain_fraction").iter_rows())


def test_without_options_what_gains_is_healed_one_by_one_then_all(slow: Path) -> None:
    gains = predictions(slow)
    assert [*gains][-1] == "heal all"
    assert max(gains, key=lambda change: gains[change]) in ("heal rank=3", "heal all")
    *single, _ = gains.values()
    assert single == sorted(single, reverse=True)
    assert gains["heal rank=3"] == pytest.approx(gains["heal all"], rel=0.15)
    assert gains["heal rank=3"] > 0.1


def test_several_changes_are_predicted_alone_and_together(slow: Path) -> None:
    gains = predictions(slow, heal=["rank=3"], scale=["kind=backward:0.5", "stage=1:1.5", "link=all:2"])
    assert [*gains][:4] == [
        *("heal rank=3", "scale kind=backward:0.5", "scale stage=1:1.5", "scale link=all:2"),
    ]
    assert gains["scale stage=1:1.5"] < -0.3
    assert gains["scale link=all:2"] < 0
    assert gains["scale kind=backward:0.5"] > 0.2
    assert gains["all of these"] < gains["heal rank=3"] + gains["scale kind=backward:0.5"]


def test_the_verdict_has_the_same_gain(slow: Path) -> None:
    found = nsys_pp.pipeline(slow, layout="pp=2,dp=2").verdict.findings[0]
    assert (found.kind, found.label) == ("straggler", "rank 3")
    result = nsys_pp.whatif(slow, layout="pp=2,dp=2", heal=["rank=3"])
    assert found.gain_ns == pytest.approx(result.predictions["most_gain_ns"].item(), rel=0.01)


def test_a_comparison_has_the_gain_of_the_replay(slow: Path, tmp_path: Path) -> None:
    simulate.main([*OPTIONS.split(), str(tmp_path)])
    steps, rank = (
        next(finding for finding in nsys_pp.compare(tmp_path, slow).verdict.findings if finding.kind == kind)
        for kind in ("step", "rank")
    )
    assert rank.gain_ns == pytest.approx(steps.gain_ns, rel=0.1)


def test_what_has_no_peers_is_left_out_without_options(tmp_path: Path) -> None:
    """One link alone leads from machine to machine."""
    assert nsys_pp.whatif(Path(simulate.__file__).parent / "pipeline").predictions["change"].to_list() == [
        "heal all"
    ]


def test_lengths_are_evened_out_and_explain_what_no_rank_does(tmp_path: Path) -> None:
    simulate.main([*OPTIONS.split(), "--vary-lengths", "0.5", str(tmp_path)])
    done = nsys_pp.whatif(tmp_path, layout="pp=2,dp=2")
    gains = dict(done.predictions.select("change", "gain_fraction").iter_rows())
    assert gains["heal lengths"] > 2 * gains["heal all"]
    assert any("vary in length" in note for note in done.notes)


def test_a_table_says_how_far_to_trust_it(slow: Path, tmp_path: Path) -> None:
    done = succeed("whatif", slow, "--layout", "pp=2,dp=2", "--heal", "rank=3")
    assert "heal rank=3" in done.stdout
    assert "unchanged, the replay misses the measured step by 0" in done.stderr
    rows = json.loads(succeed("whatif", slow, "--heal", "rank=3", "--json").stdout)["tables"]["whatif"]
    assert [row["change"] for row in rows] == ["heal rank=3"]
    output = tmp_path / "whatif.csv"
    succeed("whatif", slow, "--scale", "host=2:0.5", "-o", output)
    assert output.read_text().splitlines()[0].startswith("step_ns,gain_ns")


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("heal", "rank=9", "no GPU is of rank '9'"),
        ("heal", "pace=9", "invalid change"),
        ("heal", "rank", "invalid change"),
        ("heal", "link=3", "invalid link"),
        ("scale", "rank=3", "invalid change"),
        ("scale", "kind=lunch:2", "unknown kind of job"),
    ],
)
def test_a_change_that_names_nothing_is_refused(slow: Path, option: str, value: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        predictions(slow, *([value] if name == option else () for name in ("heal", "scale")))
    done = call("whatif", slow, f"--{option}", value)
    assert (done.code, done.stdout) == (2, "")
    assert words in done.stderr


def test_a_run_that_cannot_be_replayed_is_refused(slow: Path) -> None:
    with pytest.raises(MissingDataError, match=r"nothing can be predicted: .*may be off") as raised:
        nsys_pp.whatif(slow, clock="utc")
    assert raised.value.hint is not None
    assert "`nsys-pp align` shows the clocks" in raised.value.hint


def test_all_gains_at_least_what_one_does_also_of_machines(tmp_path: Path) -> None:
    options = "--pp 1 --dp 8 --machines 2 --steps 4 --micro-batches 2 --layers 1 --names torch --brief-truth"
    faults = "--machine-factors 1.0,1.2 --host-stall 6,12=9"
    simulate.main([*options.split(), *faults.split(), "--seed", "52", str(tmp_path)])
    gains = predictions_of(tmp_path)
    assert gains["heal machine=node1"] > 0.1
    assert gains["heal all"] >= max(gains.values())


def predictions_of(folder: Path) -> dict[str, float]:
    return dict(nsys_pp.whatif(folder).predictions.select("change", "gain_fraction").iter_rows())


def test_a_rank_that_gains_nothing_is_told_what_its_host_would(tmp_path: Path) -> None:
    simulate.main([*OPTIONS.split(), "--slow-loader", "1=5", str(tmp_path)])
    result = nsys_pp.whatif(tmp_path, heal="rank=1")
    assert any("`--heal data` or `--heal host=RANK`" in note for note in result.notes)


def test_half_of_the_transfers_gain_what_the_verdict_says(tmp_path: Path) -> None:
    simulate.main([*OPTIONS.split(), "--message-bytes", "90000000", "--machines", "2", str(tmp_path)])
    found = {one.kind: one for one in nsys_pp.pipeline(tmp_path, layout="pp=2,dp=2").verdict.findings}
    half = nsys_pp.whatif(tmp_path, layout="pp=2,dp=2", scale="communication:0.5")
    gain = half.predictions["gain_ns"].item()
    assert found["communication"].gain_ns == pytest.approx(gain, rel=0.01)
    assert "with transfers half as long a step is about" in found["communication"].text


def test_a_replay_tells_waits_and_transfers_apart_as_what_was_measured(slow: Path) -> None:
    run = WhatIf(nsys_pp.pipeline(slow, layout="pp=2,dp=2").training)
    states = pair_runs(run, run.unchanged).lane_states.with_columns(
        time_ns=pl.col("end_ns") - pl.col("start_ns"), is_replayed=pl.col("lane") % 2 == 1
    )
    sums = states.group_by("cause").agg(
        measured=pl.col("time_ns").filter(~pl.col("is_replayed")).sum(),
        replayed=pl.col("time_ns").filter("is_replayed").sum(),
    )
    for cause in ("message_wait", "message_transfer", "collective_wait", "compute"):
        measured, replayed = sums.filter(cause=cause)["measured", "replayed"].row(0)
        assert replayed == pytest.approx(measured, rel=0.1), cause


def test_a_picture_draws_the_step_of_the_verdict_and_marks_its_rank(tmp_path: Path) -> None:
    simulate.main([*OPTIONS.split(), "--slow-rank", "3=1.3", "--slow-since", "12", str(tmp_path / "in")])
    options: dict[str, Any] = {"layout": "pp=2,dp=2"}
    chart = nsys_pp.chart(tmp_path / "in", tmp_path / "one.svg", **options)
    text = (tmp_path / "one.svg").read_text()
    assert re.findall(r">(step \d+)<", text) == ["step 12"]
    assert re.findall(r'fill="#d6246e"[^>]*>([^<]*)<', text) == ["rank 3"]
    assert chart.verdict.lines[0] in unescape(text)
    assert (chart.steps, chart.notes[0]) == (1, "only step 12 is drawn; `--steps` names others")
    nsys_pp.chart(tmp_path / "in", tmp_path / "all.svg", steps="10:", **options)
    assert len(re.findall(r">step \d+<", (tmp_path / "all.svg").read_text())) == 4

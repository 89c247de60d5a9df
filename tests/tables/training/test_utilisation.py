"""Model FLOPs utilisation of a simulated training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

import nsys_pp
from nsys_pp.commands.pipeline import PipelineResult
from nsys_pp.errors import OptionError
from nsys_pp.tables.training import UTILISATION_TABLE
from tests.cli.calls import call

PIPELINE = Path(__file__).parents[3] / "fixtures" / "pipeline"


@pytest.fixture(scope="module")
def result() -> PipelineResult:
    return nsys_pp.pipeline([PIPELINE], flops_per_step=1e13)


def test_utilisation_is_flops_over_time_and_peak(result: PipelineResult) -> None:
    table = result.tables(["utilisation"])["utilisation"]
    steps = result.tables(["steps"])["steps"]
    assert table["span_ns"].to_list() == steps["span_ns"].to_list()
    for row in table.rows(named=True):
        rate = 1e13 / (row["span_ns"] / 1e9) / 4
        assert row["tflops_per_gpu_s"] == pytest.approx(rate / 1e12)
        assert row["mfu_fraction"] == pytest.approx(rate / 989.4e12)
    assert any("989.4 TFLOP/s of bf16" in note for note in result.work_notes())


def test_an_unknown_gpu_has_no_utilisation(result: PipelineResult) -> None:
    assert result.work is not None
    work = structs.replace(result.work, gpus=(*result.work.gpus[:-1], "NVIDIA A10G"))
    other = replace(result, work=work)
    table = UTILISATION_TABLE.build(other.training, work)
    assert table["mfu_fraction"].null_count() == len(table)
    assert "the peak of `NVIDIA A10G` for bf16 is unknown: no utilisation" in other.work_notes()


def test_gpus_that_were_not_recorded_count(result: PipelineResult) -> None:
    assert result.work is not None
    work = structs.replace(result.work, gpu_count=8)
    whole, half = (UTILISATION_TABLE.build(result.training, each) for each in (result.work, work))
    assert (half["mfu_fraction"] * 2).to_list() == pytest.approx(whole["mfu_fraction"].to_list())
    assert any("4 of 8 GPUs were recorded" in note for note in replace(result, work=work).work_notes())


def test_options_that_contradict_each_other_are_refused() -> None:
    for options in ({"model": "layers=1"}, {"flops_per_step": -1.0}, {"data_type": "int3"}):
        with pytest.raises(OptionError):
            nsys_pp.pipeline([PIPELINE], **options)
    with pytest.raises(OptionError, match="exclude each other"):
        nsys_pp.pipeline([PIPELINE], flops_per_step=1.0, model="layers=1,hidden=1,sequence=1,batch=1")


def test_the_command_line_shows_the_formula_and_the_peak() -> None:
    done = call(
        "pipeline", PIPELINE, "--table", "steps", "--model", "layers=8,hidden=1024,sequence=1024,batch=8"
    )
    assert done.code == 0, done
    assert "Model FLOPs utilisation" in done.stdout
    assert "2204.02311" in done.stderr
    assert "989.4 TFLOP/s" in done.stderr

"""Names that people write by hand: jobs and steps of training loops, and what is none."""

from __future__ import annotations

import polars as pl
import pytest

from nsys_pp.frames.report import NAME
from nsys_pp.training.report.hand_words import build_pattern, fold_name, parse_hand_name
from nsys_pp.training.report.presets import Rule
from nsys_pp.training.report.rule_choice import choose_rules
from nsys_pp.training.report.vocabulary import Rules, name_jobs, name_steps
from tests.training.report.hand_programs import (
    PROGRAMS,
    UNSEEN,
    UNSEEN_LATER,
    NamedRange,
    build_ranges,
    list_names,
    parse_program,
)


def read_program(program: list[NamedRange]) -> dict[str, str]:
    """Return the meaning that the package finds for each name of a program."""
    ranges = build_ranges(program)
    rules = choose_rules(ranges)
    jobs = name_jobs(ranges, rules).select("name", "kind").rows()
    steps = name_steps(ranges, rules)["name"].to_list()
    return {str(name): str(kind) for name, kind in jobs} | {str(name): "step" for name in steps}


@pytest.mark.parametrize("program", PROGRAMS)
def test_names_of_a_loop_are_read(program: str) -> None:
    ranges = parse_program(PROGRAMS[program])
    read = read_program(ranges)
    assert {name: read.get(name, "none") for name, _ in list_names(ranges)} == dict(list_names(ranges))


@pytest.mark.parametrize(("programs", "least"), [(UNSEEN, 0.87), (UNSEEN_LATER, 0.9)])
def test_most_names_of_other_loops_are_read_and_none_is_misread(
    programs: dict[str, str], least: float
) -> None:
    right: dict[tuple[str, str], bool] = {}  # by program and name without numbers
    for program, text in programs.items():
        ranges = parse_program(text)
        read = read_program(ranges)
        for name, meaning in list_names(ranges):
            assert read.get(name, meaning) == meaning
            right[program, fold_name(name)] = read.get(name, "none") == meaning
    assert sum(right.values()) / len(right) >= least


@pytest.mark.parametrize(
    ("name", "kind", "numbers"),
    [
        ("Forward pass", "forward", ()),
        ("[rank 0] fwd_3", "forward", ("", "micro_batch")),
        ("fprop mb 2 chunk 1", "forward", ("micro_batch", "chunk")),
        ("BackwardPass", "backward", ()),
        ("bprop", "backward", ()),
        ("forward_backward", "forward_backward", ()),
        ("opt.step", "optimizer", ()),
        ("optimizer.step()", "optimizer", ()),
        ("optimizer.zero_grad()", "other", ()),
        ("dataloader", "data", ()),
        ("get_batch", "data", ()),
        ("Iteration: 12/100", "step", ("step", "")),
        ("epoch 3 - batch 17", "step", ("", "step")),
        ("iteration #4", "step", ("step",)),
        ("Linear forward", "part", ()),
        ("layer_3", "part", ()),
        ("pre_forward", "part", ()),
        ("eval_step", "evaluation", ()),
    ],
)
def test_words_say_what_a_name_means(name: str, kind: str, numbers: tuple[str, ...]) -> None:
    meaning = parse_hand_name(fold_name(name))
    assert meaning is not None
    assert (meaning.kind, meaning.numbers) == (kind, numbers) or kind in ("part", "evaluation")
    assert meaning.kind == kind


@pytest.mark.parametrize(
    "name", ["aten::mm", "kernel_name" * 20, "forwarding", "solve the equations", "42", ""]
)
def test_other_names_mean_nothing(name: str) -> None:
    assert parse_hand_name(fold_name(name)) is None


def test_patterns_match_the_names_that_they_are_built_from() -> None:
    pattern = build_pattern(fold_name("fwd[3] (chunk 1)"), ("micro_batch", "chunk"))
    rules = Rules(jobs=(Rule(pattern=pattern, groups=("micro_batch", "chunk"), kind="forward"),))
    ranges = build_ranges([NamedRange(name="fwd[12] (chunk 0), op_id = 3", meaning="", start=0, end=1)])
    assert name_jobs(ranges, rules).select("kind", "micro_batch", "chunk").rows() == [("forward", 12, 0)]


def test_numbers_that_never_repeat_are_no_micro_batches() -> None:
    text = "*4 Iteration {i} = step\n  Fwd_{i} = forward\n  Bwd_{i} = backward\n"
    once = build_ranges(parse_program(text))
    assert name_jobs(once, choose_rules(once))["micro_batch"].null_count() == 8
    again = build_ranges(parse_program(text.replace("wd_{i}", "wd_0")))
    assert name_jobs(again, choose_rules(again))["micro_batch"].to_list() == [0] * 8


def test_a_report_without_training_is_left_alone() -> None:
    for text in ("*9 forward = none", "*9 update = none", "*3 backward = none\n*3 Forward pass = none"):
        assert choose_rules(build_ranges(parse_program(text))) == Rules()


def test_patterns_of_users_stand_alone_without_a_preset() -> None:
    ranges = build_ranges(parse_program("*3 Fwd pass = none\n*3 Bwd pass = none"))
    assert choose_rules(ranges).name == "plain"
    assert choose_rules(ranges, job_patterns=["other=Fwd.*"]).name == ""


def test_names_by_hand_add_what_a_preset_lacks() -> None:
    text = (
        "*3 Iter {i} of 9 = step\n  forward = forward\n  backward = backward\n  Optimizer Step = optimizer\n"
    )
    ranges = build_ranges(parse_program(text))
    rules = choose_rules(ranges)
    assert (rules.name, rules.share) == ("plain", 1)
    assert name_steps(ranges, rules)["step"].to_list() == [0, 1, 2]


def test_ranges_of_libraries_are_no_names_by_hand() -> None:
    ranges = build_ranges(parse_program("*3 Fwd pass = none\n*3 Bwd pass = none\n*2 update = none"))
    libraries = ranges.with_columns(domain=pl.lit("TensorRT").cast(NAME))
    assert choose_rules(libraries) == Rules()
    is_update = pl.col("name").cast(pl.String) == "update"
    mixed = ranges.with_columns(domain=pl.when(is_update).then(pl.lit("NCCL")).cast(NAME))
    assert set(name_jobs(mixed, choose_rules(mixed))["name"].cast(pl.String)) == {"Fwd pass", "Bwd pass"}

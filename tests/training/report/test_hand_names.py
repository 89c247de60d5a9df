"""Names that people write by hand: common forms are read, and nothing is misread."""

from __future__ import annotations

import re

from nsys_pp.training.names import Rules, choose_rules, name_jobs, name_steps
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


def test_most_names_of_other_loops_are_read_and_none_is_misread() -> None:
    right: dict[tuple[str, str], bool] = {}  # by program and name without numbers
    for program, text in {**PROGRAMS, **UNSEEN, **UNSEEN_LATER}.items():
        ranges = parse_program(text)
        read = read_program(ranges)
        for name, meaning in list_names(ranges):
            assert read.get(name, meaning) == meaning, (program, name)
            right[program, re.sub("[0-9]+", "#", name)] = read.get(name, "none") == meaning
    assert sum(right.values()) / len(right) >= 0.8


def test_a_report_without_training_is_left_alone() -> None:
    for text in ("*9 forward = none", "*9 update = none", "*3 backward = none"):
        assert choose_rules(build_ranges(parse_program(text))) == Rules()


def test_patterns_of_users_stand_alone_without_a_preset() -> None:
    ranges = build_ranges(parse_program("*3 Fwd pass = none\n*3 Bwd pass = none"))
    assert choose_rules(ranges).name == "plain"

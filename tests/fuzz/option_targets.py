"""Targets whose inputs are texts: files of rules, values of options, and whole command lines."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import click
from click.testing import CliRunner

import nsys_pp
from nsys_pp import options
from nsys_pp.cli import main
from nsys_pp.commands.pipeline import _count_flops
from nsys_pp.errors import NsysPPError
from nsys_pp.run.options import (
    parse_counted_ops,
    parse_patterns,
    parse_rank_from,
    parse_run_layout,
    parse_steps,
)
from nsys_pp.tables.compare import parse_gate
from nsys_pp.training import rules as presets
from nsys_pp.training.rules import load_preset, parse_job_rule, parse_step_rule
from tests.fuzz import seeds
from tests.fuzz.choices import Choices
from tests.fuzz.promise import Work
from tests.fuzz.values import NUMBERS, TEXTS, change_bytes

_SOUND = (
    *(
        "10:12",
        ":12",
        "10:",
        "pp=4,tp=2,dp=2,order=tp-dp-pp",
        r"rank(\d+)",
        "kernel,memcpy",
        "all",
        "1.5s",
        "-20ms",
    ),
    *(
        "0,1",
        "1.5s:1.7s",
        "8GB",
        "512MiB",
        "10m",
        "auto",
        "4",
        "node1=-1.2ms",
        "bubble>5%",
        "stage 2 forward>3%",
    ),
    *(
        "b step>20ms",
        "layers=2,hidden=8,sequence=4,batch=3,heads=4,kv_heads=2",
        r"forward=fwd(?P<micro_batch>\d+)",
    ),
    *(r"step (\d+)", r"(?P<kind>\w+)_(?P<step>.*)", "SELECT * FROM jobs", "SELECT count(*) FROM gpu_ops"),
)
_PIECES = (
    *(
        ":",
        ",",
        "=",
        ">",
        "<",
        "%",
        "ms",
        "s",
        "(",
        ")",
        "(?P<step>",
        "[",
        "]",
        "*",
        "+",
        "{1000000}",
        "\\d",
        "\\",
    ),
    *(
        "-",
        ".",
        " ",
        "pp",
        "tp",
        "order",
        "stage ",
        "bubble",
        "|",
        "^",
        "$",
        "(?i)",
        "(?=",
        "\\1",
        "kernel",
        "_",
        "/",
    ),
)


def pick_text(choices: Choices) -> str:
    """Choose a value of an option: a sound one with pieces, numbers and odd texts in it."""
    text = choices.pick(_SOUND) if choices.below(3) else ""
    for _ in range(choices.below(6)):
        at = choices.below(len(text) + 1)
        kind = choices.below(6)
        if kind == 0:
            piece = str(choices.pick(NUMBERS))
        elif kind == 1:
            piece = choices.pick(TEXTS)[:6000]
        elif kind == 2:
            piece = choices.take(choices.below(8)).decode("utf-8", "surrogateescape")
        elif kind == 3:
            text, piece = text[:at] + text[at + 1 + choices.below(3) :], ""
        else:
            piece = choices.pick(_PIECES)
        text = text[:at] + piece + text[at:]
    return text


def write_text(choices: Choices, folder: Path) -> None:
    """Write a value of an option."""
    (folder / "value.txt").write_text(
        pick_text(choices), encoding="utf-8", errors="surrogateescape", newline=""
    )


def _refuse(parse: Callable[[str], object]) -> Callable[[str], object]:
    def parse_value(text: str) -> object:
        try:
            return parse(text)
        except ValueError as error:
            raise NsysPPError("refused") from error

    return parse_value


_PARSERS: tuple[Callable[[str], object], ...] = (
    parse_steps,
    parse_run_layout,
    parse_rank_from,
    parse_counted_ops,
    lambda text: parse_patterns("job_patterns", text),
    parse_job_rule,
    parse_step_rule,
    parse_gate,
    lambda text: _count_flops(None, text),
    *map(
        _refuse,
        dict.fromkeys(option.type for option in options.OPTIONS if not isinstance(option.type, type)),
    ),
)


def _parser_work(parse: Callable[[str], object]) -> Work:
    def parse_value(source: Path, output: Path) -> None:
        text = (source / "value.txt").read_bytes().decode("utf-8", "surrogateescape")
        parse(text)

    return parse_value


PARSE_VALUE = tuple(map(_parser_work, _PARSERS))
"""Parse a text by one of the grammars: it is a value, or refused."""


@cache
def _read_presets() -> list[str]:
    return [path.read_text() for path in sorted(presets._FOLDER.glob("*.toml"))]


def write_rules(choices: Choices, folder: Path) -> None:
    """Write a file of rules: a preset with changed lines, or changed bytes."""
    lines = choices.pick(_read_presets()).splitlines()
    for _ in range(1 + choices.below(6)):
        at = choices.below(len(lines))
        key = choices.pick(
            ["pattern", "kind", "direction", "role", "domain", "batch", "title", "suffix", "signs"]
        )
        kind = choices.below(7)
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(
                at, choices.pick(["[[job]]", "[[step]]", "[job]", "job = 1", "[[job.pattern]]", "{", "x ="])
            )
        elif kind == 2:
            lines[at] = f"{key} = {json.dumps(pick_text(choices))}"
        elif kind == 3:
            value = choices.pick(
                ["[]", "{}", "1", "true", "1e999", "[[1]]", "1979-05-27", "nan", "''", "9" * 5000]
            )
            lines.insert(at, f"{key} = {value}")
        elif kind == 4:
            lines[at] = re.sub(
                r"\(\?P<\w+>", f"(?P<{choices.pick(['step', 'kind', 'x', 'role'])}>", lines[at]
            )
        else:
            pattern = pick_text(choices).replace("'", "").replace("\n", "").replace("\0", "")
            lines[at] = f"{key} = '{pattern}'"
        if not lines:
            break
    data = "\n".join(lines).encode("utf-8", "replace")
    if choices.below(3) == 0:
        data = change_bytes(data, choices, block=32, most=4)
    (folder / "rules.toml").write_bytes(data)


def load_rules(source: Path, output: Path) -> None:
    load_preset(str(source / "rules.toml"))


def pipeline_with_rules(source: Path, output: Path) -> None:
    report = output.parent / "sound.sqlite"
    if not report.exists():
        report.write_bytes(seeds.read_seed(0)[0])
    nsys_pp.pipeline(report, preset=source / "rules.toml").tables()


_COMMANDS = ("merge", "pipeline", "chart", "summary", "compare", "project", "info", "align", "sql", "extract")
_LEFT_OUT = {
    "--nsys",
    "--open",
    "--processes",
    "--memory",
    "--dask-scheduler",
    "--wait-for",
    "--wait-timeout",
    "--result",
}
_OUTPUTS = (
    "run.pftrace",
    "run.json",
    "run.json.gz",
    "run.csv",
    "run.md",
    "run.parquet",
    "run.html",
    "run.svg",
    "x",
)


def write_command(choices: Choices, folder: Path) -> None:
    """Write a command line with options of the command, each with a value of any grammar."""
    name = choices.pick(_COMMANDS)
    command = main.get_command(click.Context(main), name)
    assert command is not None
    options = [
        option
        for option in command.params
        if isinstance(option, click.Option) and option.opts[0] not in _LEFT_OUT
    ]
    line = [name]
    if choices.below(2):
        line += ["-o", "OUT/" + choices.pick(_OUTPUTS)]
    for _ in range(choices.below(5)):
        option = choices.pick(options)
        line.append(option.opts[0])
        if option.is_flag:
            continue
        if isinstance(option.type, click.Choice) and choices.below(8):
            value = str(choices.pick(list(option.type.choices)))
        elif option.opts[0] in ("-o", "--steptask"):
            value = "OUT/" + choices.pick(_OUTPUTS)
        else:
            value = pick_text(choices).replace("/", "_")
        line.append(value)
    line += {"compare": ["IN", "IN"], "sql": [pick_text(choices), "IN"]}.get(name, ["IN"])
    (folder / "line.json").write_text(json.dumps(line))


def run_command(source: Path, output: Path) -> None:
    """Run a command line on two sound reports."""
    reports = output.parent / "sound"
    if not reports.exists():
        reports.mkdir()
        for rank, data in enumerate(seeds.read_seed(0)):
            (reports / f"rank{rank}.sqlite").write_bytes(data)
    line = json.loads((source / "line.json").read_text())
    line = [word.replace("OUT/", f"{output}{os.sep}") if word.startswith("OUT/") else word for word in line]
    line = [str(reports) if word == "IN" else word for word in line]
    before = Path.cwd()
    os.chdir(output)
    try:
        done = CliRunner().invoke(main, line, env={"NSYS_PP_LOG_SECONDS": "0"})
    finally:
        os.chdir(before)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    if "unforeseen" in done.stderr or "Traceback" in done.stderr:
        raise AssertionError(f"{line}\n{done.stderr}")
    if done.exit_code not in (0, 1, 2, 3, 4):
        raise AssertionError(f"{line}\nstatus {done.exit_code}")
    if done.exit_code in (1, 2) and not any(output.iterdir()):
        raise NsysPPError("refused")

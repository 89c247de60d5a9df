"""What recipes do, without any nsys."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import polars as pl
import pytest
from nsys_pp_recipe import command, options, work

from nsys_pp.cli import main
from nsys_pp.options import Option
from tests.conftest import REPOSITORY
from tests.recipes.conftest import make_interpreter
from tests.recipes.notebooks import run_cells

# Where results go and what form they have is the recipe's, and who works is what nsys is told by `--mode`;
# the rest needs events, which parts do not have.
OUTPUT = {"--output", "--format", "--force", "--open", "--json", "--title", "--in-place", "--steptask"}
WORKERS = {"--nsys", "--processes", "--memory", "--timeout-per-report", "--dask-scheduler"}
LOGS = {"--log-format", "--debug", "--result", "--explain-rows"}
RECIPES_OWN = {*OUTPUT, *WORKERS, *LOGS, "--wait-for", "--wait-timeout", "--start", "--end"}
NOT_FORWARDED = {
    ("merge", "--steps"),
    ("pipeline", "--device"),
    ("pipeline", "--limit"),
    ("pipeline", "--explain-jobs"),
}
EXAMPLES = {"one": ["1"], "many": ["a", "b"], "none": [""]}


def flags(name: str) -> Iterator[tuple[str, click.Option]]:
    for parameter in main.commands[name].params:
        if isinstance(parameter, click.Option):
            yield next(word for word in parameter.opts if word.startswith("--")), parameter


def _values(option: Option) -> str:
    return "none" if option.type is bool else "many" if option.is_many else "one"


@pytest.mark.parametrize("name", ["extract", "merge", "chart", "pipeline", "summary"])
def test_options_are_those_of_the_commands(name: str) -> None:
    handed = {one.flags: _values(one) for one in options.FORWARDED if options.accepts(name, one)}
    own = RECIPES_OWN | {flag for other, flag in NOT_FORWARDED if other == name}
    if name == "extract":  # what it cannot make a part of is left to the next command
        own.add("--keep-going")
    theirs = {
        flag: "many" if option.multiple else "none" if option.is_flag else "one"
        for flag, option in flags(name)
        if flag not in own
    }
    assert handed == theirs


@pytest.mark.parametrize("main_command", ["merge", "pipeline", "summary"])
def test_what_a_recipe_is_told_each_command_is_told(main_command: str) -> None:
    parser = argparse.ArgumentParser()
    options.add_options(parser.add_argument, main_command)
    handed = [one for one in options.FORWARDED if options.accepts(main_command, one)]
    words = [
        [f"{one.flags}={x}".rstrip("=") for x in one.choices[:1] or EXAMPLES[_values(one)]] for one in handed
    ]
    parsed = parser.parse_args([word for some in words for word in some])
    for name in ("extract", "merge", "chart", "pipeline", "summary"):
        told = [
            word
            for one, some in zip(handed, words, strict=True)
            if options.accepts(name, one)
            for word in some
        ]
        assert options.forward_options(parsed, name) == told
    assert options.forward_options(parser.parse_args([]), "extract") == []


def test_reports_are_in_natural_order_and_fresh_exports_stand_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, changed_s in (("r10.nsys-rep", 2), ("r2.nsys-rep", 2), ("r10.sqlite", 1), ("r2.sqlite", 2)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (changed_s, changed_s))
    (tmp_path / "r10_pqtdir").mkdir()
    monkeypatch.chdir(tmp_path)
    found = work.sort_reports(["r10.nsys-rep", "r2.nsys-rep"])
    assert found == [tmp_path / "r2.sqlite", tmp_path / "r10.nsys-rep"]


def test_an_nsys_pp_that_does_not_run_is_named_with_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho ImportError: half of it is missing >&2\nexit 1\n")
    broken.chmod(0o755)
    for program, words in ((broken, "ImportError: half of it is missing"), (tmp_path / "no", "No such file")):
        monkeypatch.setenv(command.VARIABLE, str(program))
        with pytest.raises(LookupError, match=f"`{program}`: {words}"):
            command.find_nsys_pp(tmp_path)


def test_nsys_pp_is_found_from_another_interpreter(tmp_path: Path) -> None:
    """On PATH, or in the environment that the recipes lie in; a wrong environment of nsys does no harm."""
    python = make_interpreter(tmp_path / "bare")
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "nsys-pp"
    script.write_text(f"#!{sys.executable}\nfrom nsys_pp.cli import main\nmain()\n")
    script.chmod(0o755)
    inside = tmp_path / "lib" / "python" / "nsys_pp" / "recipes" / "nsys_pp_recipe"
    broken = tmp_path / "broken"
    (broken / "polars").mkdir(parents=True)
    (broken / "polars" / "__init__.py").write_text("raise SystemExit(9)")
    program = (
        f"import sys, pathlib; sys.path.append({str(REPOSITORY / 'recipes')!r})\n"
        "from nsys_pp_recipe.command import find_nsys_pp\n"
        "print(find_nsys_pp(pathlib.Path(sys.argv[1])))"
    )

    def find(folder: Path, path: str) -> str:
        environment = {"PATH": path, "PYTHONPATH": str(broken)}
        done = subprocess.run(
            [python, "-c", program, folder],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip() or done.stderr

    expected = str([sys.executable, "-E", "-m", "nsys_pp"])
    assert find(inside, "/usr/bin:/bin") == expected
    assert find(tmp_path / "elsewhere" / "x", f"{script.parent}:/usr/bin:/bin") == expected
    assert "LookupError: no nsys-pp was found" in find(tmp_path / "elsewhere" / "x", "/usr/bin:/bin")


NOTEBOOK = REPOSITORY / "recipes" / "nsys_pp_recipe" / "results.ipynb"


def test_it_is_a_notebook() -> None:
    nbformat = pytest.importorskip("nbformat", reason="no nbformat")
    nbformat.validate(nbformat.read(NOTEBOOK, as_version=4))


@pytest.mark.few(1)
@pytest.mark.parametrize("has_chart", [True, False])
def test_it_shows_what_is_beside_it(tmp_path: Path, has_chart: bool) -> None:
    pytest.importorskip("pandas", reason="no pandas")
    pytest.importorskip("pyarrow", reason="no pyarrow")
    shutil.copy(NOTEBOOK, tmp_path)
    pl.DataFrame({"step": [7, 8], "span_ns": [123456, 5]}).write_parquet(tmp_path / "steps.parquet")
    kinds = {"kind": pl.Series(["forward"], dtype=pl.Enum(["forward"]))}
    pl.DataFrame(kinds).write_parquet(tmp_path / "kinds.parquet")
    if has_chart:
        (tmp_path / "pipeline.html").touch()
    overview, chart, tables = run_cells(tmp_path / NOTEBOOK.name)
    assert "steps" in overview
    assert "step, span_ns" in overview
    assert ("<iframe" in chart) == has_chart
    assert tables.index("<h3>kinds</h3>") < tables.index("<h3>steps</h3>")
    assert "<td>123456</td>" in tables
    assert "<td>forward</td>" in tables

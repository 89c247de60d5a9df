"""The commands of README and guides, and what they print: `python -m tests.test_readme [PAGE ...]` writes the outputs anew."""

from __future__ import annotations

import ast
import contextlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import polars as pl
import pytest
from click.testing import CliRunner

from nsys_pp.cli import main
from nsys_pp.commands.project import PROJECT_COLUMNS
from tests.cli.calls import call

ROOT = Path(__file__).parent.parent


README = ROOT / "README.md"


PAGES = (README, ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").rglob("*.md")))


# A run that a page has simulated: the program, and the folder that commands of all pages may name.
SIMULATED = re.compile(
    r"`python -m (?P<program>fixtures\.(?:serving\.)?simulate) (?P<folder>[\w-]+) (?P<options>[^`]+)`"
)


BLOCK = re.compile(r"```console\n\$ nsys-pp (?P<words>[^\n]*)\n(?P<output>.*?)```", re.DOTALL)


def find_simulations() -> dict[str, tuple[str, list[str]]]:
    """List the simulated runs of all pages: program and options by folder."""
    found: dict[str, tuple[str, list[str]]] = {}
    for page in PAGES:
        for run in SIMULATED.finditer(page.read_text()):
            entry = (run["program"], run["options"].split())
            assert found.setdefault(run["folder"], entry) == entry, f"two runs are named {run['folder']}"
    return found


def simulate(folder: Path, words: str) -> None:
    """Simulate the runs that a command names, where they are not in the folder yet."""
    for name, (program, options) in find_simulations().items():
        if name in shlex.split(words) and not (folder / name).exists():
            subprocess.run(
                [sys.executable, "-m", program, str(folder / name), *options],
                check=True,
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
            )


def run(words: str, folder: Path) -> str:
    """Run a command of a page in a folder with `fixtures` and the runs that it names; both streams, without progress lines."""
    if not (folder / "fixtures").exists():
        (folder / "fixtures").symlink_to(ROOT / "fixtures")
    simulate(folder, words)
    variables = {"COLUMNS": "110", "NO_COLOR": "1", "NSYS_PP_LOG_SECONDS": "0"}
    with contextlib.chdir(folder):
        done = CliRunner().invoke(main, shlex.split(words), env=variables)
    assert done.exit_code == 0, done.output
    return "".join(f"{line.rstrip()}\n" for line in done.output.splitlines())


def update(folder: Path, pages: Iterable[Path] = PAGES) -> None:
    """Write what the commands print today into the pages."""
    for page in pages:
        text = page.read_text()
        page.write_text(
            BLOCK.sub(lambda m: f"```console\n$ nsys-pp {m['words']}\n{run(m['words'], folder)}```", text)
        )


TEXT = "\n".join(page.read_text() for page in PAGES)


OUTPUTS: dict[str, set[str]] = {}  # by command: each runs once, wherever it is shown


for block in BLOCK.finditer(TEXT):
    OUTPUTS.setdefault(block["words"], set()).add(block["output"])


CODE = re.compile(r"```sh\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which commands run; runs that several commands read are simulated once."""
    return tmp_path_factory.mktemp("pages")


@pytest.mark.parametrize("words", OUTPUTS)
def test_commands_print_what_pages_show(words: str, folder: Path) -> None:
    printed = without_sizes(run(words, folder))
    assert {without_sizes(shown) for shown in OUTPUTS[words]} == {printed}


def options_of(command: click.Command) -> set[str]:
    """Return the options of a command, or of the commands of a group."""
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    own = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    return own.union(*(options_of(below) for below in inner))


def without_sizes(text: str) -> str:
    """Another version of the compressor may need some bytes more or less."""
    return re.sub(r"\([\d.]+ [KM]iB\)", "(size)", text)


EXAMPLES = {
    page.name: example
    for page in PAGES
    for example in re.findall(r"```python\n(import nsys_pp\n.*?)```", page.read_text(), re.DOTALL)
}


@pytest.mark.parametrize("page", EXAMPLES)
def test_examples_of_the_library_run(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    variables: dict[str, Any] = {}
    exec(EXAMPLES[page], variables)
    names = {
        "library.md": ("ranges", "steps", "clocks", "stages", "jobs"),
        "from-other-tools.md": ("frames",),
    }
    assert all(len(variables[name]) for name in names[page])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of pandas, in Dask's own code
def test_tables_of_many_runs_are_read_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of docs/batch.md sums what the tables of both runs have."""
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "batch.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("tables").mkdir()
    command = (
        "summary fixtures/pipeline/node2 --table kernels,copies --by rank --format parquet -o tables/monday"
    )
    run(command, tmp_path)
    shutil.copytree("tables/monday", "tables/tuesday")
    kernels = pl.read_parquet("tables/monday/kernels.parquet")
    totals = kernels.group_by("name").agg(pl.col("total_ns").sum()).to_dict(as_series=False)["total_ns"]
    variables: dict[str, Any] = {}
    for example in examples:
        exec(example, variables)
    by_run = variables["slowest"].collect()
    assert by_run.height == 2 * len(totals)
    assert by_run["total_ns"].sum() == 2 * sum(totals)


def test_every_command_is_shown() -> None:
    shown = {words.split()[0] for words in OUTPUTS}
    on_this_machine = {
        "recipe": "install",
        "open": "run.pftrace",
    }  # they print what is there
    assert shown == set(main.commands) - set(on_this_machine)
    for name, argument in on_this_machine.items():
        assert f"nsys-pp {name} {argument}".strip() in TEXT


KEYS = re.compile(r"^\| (?:`(?P<place>[^`]+)` )?\| (?P<keys>`\w+`(?:, `\w+`)*) \|", re.MULTILINE)
FREE = {"tables", "reports[].launcher", "reports[].recorded", "rows[].tables[].left_out"}  # keys of any name


def keys_of(value: Any, place: str = "") -> set[str]:
    """List the keys of a document: "reports[].gpus[].name"."""
    if isinstance(value, list):
        return set[str]().union(*(keys_of(one, f"{place}[]") for one in value))
    if not isinstance(value, dict) or place in {*FREE, "reports[].rows[].left_out"}:
        return set()
    paths = {name: f"{place}.{name}".lstrip(".") for name in value}
    return {*paths.values()}.union(*(keys_of(value[name], path) for name, path in paths.items()))


def test_the_page_for_scripts_has_all_keys_and_no_others(tmp_path: Path) -> None:
    """Documents of all commands, of reports of which one is missing, and results of done and of failed ones."""
    page = (ROOT / "docs" / "agents.md").read_text()
    on_page = {
        part.partition("**")[0]: {
            f"{row['place'] or ''}.{key}".lstrip(".")
            for row in KEYS.finditer(part)
            for key in re.findall(r"\w+", row["keys"])
        }
        for part in page.split("\n\n**")[1:]
    }
    reports: list[str | Path] = [ROOT / "fixtures" / "pipeline", tmp_path / "absent.sqlite", "--keep-going"]
    arguments: dict[str, list[str | Path]] = dict.fromkeys(
        ("pipeline", "summary", "whatif", "project", "info", "check", "align"), reports
    )
    arguments |= {"compare": [reports[0], reports[0]], "sql": ["SELECT 1 FROM jobs", *reports]}
    shared = on_page["All documents"]
    found = set[str]()
    for name, words in arguments.items():
        result = tmp_path / f"{name}.json"
        document = json.loads(call(name, *words, "--json", "--result", result).stdout)
        assert document["schema"] == f"nsys-pp/{name}/1"
        own = on_page.get(name, set()) | (on_page["Tables"] if "tables" in document else set())
        written = keys_of(document)
        assert written <= own | shared, name
        assert own | shared <= written | {f"missing[].{key}" for key in ("table", "why", "record_with")} | {
            f"skipped[].{key}" for key in ("path", "reason", "hint")
        }, name
        found |= written | keys_of(json.loads(result.read_text()))
    call("merge", reports[0], "-o", tmp_path / "x.pftrace", "--result", tmp_path / "r.json")
    call("align", tmp_path / "none", "--result", tmp_path / "e.json")
    for path in (tmp_path / "r.json", tmp_path / "e.json"):
        found |= keys_of(json.loads(path.read_text()))
    assert found == set[str]().union(*on_page.values())


def test_the_commands_of_the_page_for_scripts_print_documents(folder: Path) -> None:
    commands = re.findall(r"`nsys-pp ([^`]*--json)`", (ROOT / "docs" / "agents.md").read_text())
    simulate(folder, "slow")
    for words in commands:
        named = words.replace("REPORTS", "slow").replace("before after", "slow:10:14 slow:14:")
        with contextlib.chdir(folder):
            done = call(*shlex.split(named))
        assert done.code == (4 if "--fail-on" in words else 0), done
        assert json.loads(done.stdout)["schema"] == f"nsys-pp/{words.split()[0]}/1"
    assert len(commands) == 4


OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*(?![\w-]*[:)])")  # no variables of style sheets
OF_NSYS = {
    *("--capture-range", "--capture-range-end", "--cpuctxsw", "--cuda-graph-trace", "--cuda-memory-usage"),
    *(
        "--cudabacktrace",
        "--delay",
        "--duration",
        "--gpu-metrics-device",
        "--gpu-metrics-devices",
        "--gpuctxsw",
    ),
    *(
        "--nic-metrics",
        "--nvtx-capture",
        "--osrt-threshold",
        "--sample",
        "--trace",
        "--trace-fork-before-exec",
    ),
    "--type",
}
OF_OTHERS = {
    *(
        "--csv",
        "--export",
        "--force-overwrite",
        "--input",
        "--keep-parts",
        "--mode",
        "--report",
        "--to",
    ),  # recipes
    *("--array", "--cpu-bind", "--mem", "--nodes", "--ntasks", "--ntasks-per-node", "--time"),  # Slurm
    *(
        "--nvtx",
        "--nvtx-ranges",
        "--profile",
        "--profile-ranks",
        "--profile-step-end",
        "--profile-step-start",
    ),
    *("--profiler-config", "--pytorch", "--record-shapes", "--xla"),  # frameworks
    *(
        "--force-reinstall",
        "--no-deps",
        "--httpd",
        "--scheduler-file",
    ),  # pip, viewers, Dask
}


def test_messages_and_pages_name_options_that_are_there() -> None:
    """Also of the command that a text names: "`nsys-pp merge --detail jobs`"."""
    texts = [
        node.value.replace("\n", " ")
        for path in (ROOT / "nsys_pp").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    others = [path for path in PAGES if path.name != "from-other-tools.md"]
    texts += [span for path in others for span in re.findall(r"`([^`\n]+)`", path.read_text())]
    known = {name: options_of(command) | {"--help"} for name, command in main.commands.items()}
    every = {"--version"}.union(*known.values(), OF_NSYS, OF_OTHERS)
    named = {option for text in texts if "python -m" not in text for option in OPTION.findall(text)}
    assert len(named) > 80
    assert named <= every
    for text in texts:
        for name, arguments in re.findall(r"\bnsys-pp (?!recipe)([a-z]+)([^`|;]*)", text):
            assert set(OPTION.findall(arguments)) <= known.get(name, every), text


HINTS = {  # commands that say what reports lack, with the options that they need
    "merge": "-o x.pftrace",
    "report": "-o x.html",
    "chart": "-o x.svg",
    "extract": "-o x.nspart",
    "project": "-o x.csv",
    "compare": "{report}",
    **dict.fromkeys(("pipeline", "summary", "check", "align"), ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HINTS)
def test_hints_name_options_of_the_command_or_the_command(
    name: str, shared_reports: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    known = options_of(main.commands[name]) | OF_NSYS
    for report in shared_reports:
        if report.stat().st_size < 1_500_000:
            options = HINTS[name].format(report=report).split()
            done = call(name, report, *options, *(["--force"] if "-o" in options else []))
            text = re.sub(
                r"`[^`]*\b(?:nsys|nsys-pp) [^`]*`", "", " ".join((done.stdout + done.stderr).split())
            )
            assert set(OPTION.findall(text)) <= known, report


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_are_not_run_are_those_of_the_program(page: Path) -> None:
    """Each command is there, and has the options that are shown."""
    for block in CODE.findall(page.read_text()):
        lines = re.sub(r"#.*", "", block.replace("\\\n", " "))
        for name, arguments in re.findall(r"nsys-pp ([a-z][a-z-]*)(?!\S)([^\n;|&)]*)", lines):
            assert name in main.commands, name
            known = options_of(main.commands[name])
            asked = set(re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", arguments))
            assert asked <= known | {"--help"}, arguments


def test_columns_of_project_are_listed_in_order() -> None:
    text = (ROOT / "docs" / "projection.md").read_text()
    listed = text[text.index("Columns of `nsys-pp project`") :]
    listed = re.sub(r"\([^)]*\)", "", listed[: listed.index("\n\n")])
    assert tuple(re.findall(r"`([a-z_]+)`", listed.split(":", 1)[1])) == PROJECT_COLUMNS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_linked_are_there(page: Path) -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_pages_are_linked() -> None:
    linked = {
        (page.parent / link).resolve()
        for page in PAGES
        for link in re.findall(r"\]\((?!http)([^)#]+)", page.read_text())
    }
    assert [page for page in PAGES if page != README and page.resolve() not in linked] == []


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        update(Path(name), [Path(word) for word in sys.argv[1:]] or PAGES)

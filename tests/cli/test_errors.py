"""What a user can get wrong: one sentence with the file's name, a hint, exit 1, nothing half-written."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from fixtures.recording.export import write_report
from tests.breaks import BREAKS
from tests.cli.calls import (
    COMMANDS,
    PIPELINE,
    RANK0,
    RANK1,
    Result,
    arguments_of,
    assert_refused,
    call,
    run,
    succeed,
)
from tests.sql import edit


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """A report that tests may break."""
    (tmp_path / "in").mkdir()
    return Path(shutil.copy(RANK0, tmp_path / "in" / "rank0.sqlite"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.mark.few(8)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_report_is_refused(report: Path, folder: Path, name: str, command: str) -> None:
    damage, words = BREAKS[name]
    damage(report)
    assert_refused(call(*arguments_of(command, report, folder=folder)), f"`{report}`", words)
    assert list(folder.iterdir()) == []
    assert {path.name for path in report.parent.iterdir()} <= {report.name}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_names_no_report_or_one_twice_is_refused(report: Path, folder: Path, command: str) -> None:
    link, empty, pattern = (
        folder.parent / "link.sqlite",
        folder.parent / "empty",
        folder / "node*" / "*.sqlite",
    )
    link.symlink_to(report)
    empty.mkdir()
    (empty / "notes.txt").write_text("nothing here")
    assert_refused(call(*arguments_of(command, empty, folder=folder)), f"`{empty}` holds no report")
    assert_refused(call(*arguments_of(command, pattern, folder=folder)), f"`{pattern}` matches no report")
    for second in (report, report.parent, report.parent / "r*", link):
        refused = call(*arguments_of(command, report, second, folder=folder))
        assert_refused(refused, f"`{report}`", "named twice")


@pytest.mark.parametrize("command", [("merge", "--detail", "kernels"), ("project",)])
def test_a_report_without_cuda_is_refused(tmp_path: Path, folder: Path, command: tuple[str, ...]) -> None:
    silent = write_report(tmp_path / "silent.sqlite", ranges=[{"start": 0, "end": 100, "name": "step"}])
    refused = call(*arguments_of(command[0], silent, folder=folder), *command[1:])
    assert_refused(refused, f"`{silent}`", "no GPU operations")
    assert "--trace cuda,nvtx" in refused.stderr
    assert list(folder.iterdir()) == []
    done = succeed(*arguments_of("merge", silent, folder=folder))
    assert "note: no report has GPU operations: CPU ranges, calls and samples are drawn" in done.stderr
    assert "1 slice on 0 GPUs" in done.stderr


def test_a_report_without_ranges_is_refused_by_project(tmp_path: Path, folder: Path) -> None:
    plain = write_report(
        tmp_path / "plain.sqlite",
        api_calls=[{"start": 0, "end": 2, "correlation": 1}],
        kernels=[{"start": 5, "end": 9, "correlation": 1}],
    )
    refused = call(*arguments_of("project", plain, folder=folder))
    assert_refused(refused, f"`{plain}` has no NVTX ranges")
    assert "--trace cuda,nvtx" in refused.stderr
    assert call(*arguments_of("merge", plain, folder=folder)).code == 0


def _run_unprivileged(*arguments: str | Path) -> Result:
    """Run as a user to whom permissions apply; root is above them unless it gives that up."""
    if os.geteuid() != 0:
        return run(*arguments)
    give_up = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    if shutil.which("setpriv") is None or subprocess.run([*give_up, "true"], check=False).returncode:
        pytest.skip("root is above permissions, and cannot give that up here")
    return run(*arguments, before=give_up)


@pytest.mark.few(1)
@pytest.mark.parametrize("command", ["info", "merge"])
def test_what_may_not_be_read_is_refused(report: Path, folder: Path, command: str) -> None:
    report.chmod(0)
    refused = _run_unprivileged(*arguments_of(command, report, folder=folder))
    assert_refused(refused, f"`{report}`", "permission denied")
    report.parent.chmod(0)
    try:
        for named in (report, report.parent):
            refused = _run_unprivileged(*arguments_of(command, named, folder=folder))
            assert_refused(refused, f"`{named}`", "permission denied")
    finally:
        report.parent.chmod(0o700)


@pytest.mark.few(1)
@pytest.mark.parametrize(("command", "pattern"), [("info", True), ("merge", False)])
def test_a_folder_inside_that_may_not_be_read_is_skipped(
    report: Path, folder: Path, command: str, *, pattern: bool
) -> None:
    root = report.parent / "run"
    for name in ("machine1", "machine2", "machine3"):
        shutil.copytree(PIPELINE / "node2", root / name / "session")
    closed = [root / "machine1" / "session", root / "machine3"]
    for inner in closed:
        inner.chmod(0)
    named = root / "machine*/**/*.sqlite" if pattern else root
    arguments = [*arguments_of(command, named, folder=folder), "--keep-going"]
    try:
        refused = _run_unprivileged(*arguments[:-1])
        alone = _run_unprivileged(*arguments_of(command, closed[1], folder=folder), "--keep-going")
        done = _run_unprivileged(*arguments)
    finally:
        for inner in closed:
            inner.chmod(0o700)
    assert_refused(refused, f"`{root}/machine", "permission denied")
    assert_refused(alone, f"`{closed[1]}`", "permission denied")
    assert done.code in (3, 6), done.stderr
    assert [done.stderr.count(f"`{inner}` may not be read: permission denied") for inner in closed] == [1, 1]


@pytest.mark.few(1)
@pytest.mark.parametrize("command", ["merge", "project"])
def test_an_output_that_may_not_be_written_is_refused(report: Path, folder: Path, command: str) -> None:
    folder.chmod(0o555)
    refused = _run_unprivileged(*arguments_of(command, report, folder=folder))
    assert_refused(refused, f"cannot write `{folder}", "permission denied")
    assert list(folder.iterdir()) == []


OUTPUTS = {
    "perfetto": ["merge", "-o", "x.pftrace"],
    "chrome": ["merge", "-o", "x.json"],
    "chrome, compressed": ["merge", "-o", "x.json.gz"],
    "parquet": ["project", "-o", "x.parquet"],
    "csv": ["project", "-o", "x.csv"],
    "json": ["project", "-o", "x.json"],
    "sqlite": ["project", "-o", "x.sqlite"],
    "markdown": ["project", "-o", "x.md"],
}


def _arguments(kind: str, report: Path, folder: Path) -> tuple[list[str], Path]:
    command, option, name = OUTPUTS[kind]
    return [command, str(report), option, str(folder / name)], folder / name


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", OUTPUTS)
def test_an_output_that_exists_is_kept_without_force(folder: Path, kind: str) -> None:
    arguments, output = _arguments(kind, RANK0, folder)
    output.write_text("precious")
    refused = call(*arguments)
    assert_refused(refused, f"`{output}` exists")
    assert "--force" in refused.stderr
    assert output.read_text() == "precious"
    succeed(*arguments, "--force")
    assert output.stat().st_size > 1000
    assert list(folder.iterdir()) == [output]


@pytest.mark.parametrize("kind", OUTPUTS)
def test_an_output_in_no_folder_or_that_is_one_is_refused(report: Path, folder: Path, kind: str) -> None:
    arguments, output = _arguments(kind, report, folder / "absent")
    assert_refused(call(*arguments), f"cannot write `{output}`: its folder does not exist")
    assert_refused(call(*arguments[:-1], report / output.name), "its folder is a file")
    long = folder / ("n" * 300 + output.suffix)
    assert_refused(call(*arguments[:-1], long), f"`{long}`: the name is too long")
    output.mkdir(parents=True)
    if arguments[0] == "merge":  # tables are written into it
        assert_refused(call(*arguments, "--force"), f"cannot write `{output}`: it is a folder")


# Blocks of 512 bytes; Python 3.11 would cut the bytecode of modules, and leave it behind.
_WITH_SMALL_FILES = ["sh", "-c", 'ulimit -f 8; PYTHONDONTWRITEBYTECODE=1 exec "$0" "$@"']


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", OUTPUTS)
def test_an_output_that_grows_too_large_leaves_all_as_it_was(report: Path, folder: Path, kind: str) -> None:
    arguments, output = _arguments(kind, report, folder)
    output.write_text("precious")
    refused = run(*arguments, "--force", "--keep-going", before=_WITH_SMALL_FILES)
    assert_refused(refused, f"cannot write `{output}`")
    assert output.read_text() == "precious"
    assert list(folder.iterdir()) == [output]


def test_pieces_that_grow_too_large_leave_nothing(report: Path, folder: Path) -> None:
    line = ["merge", str(report), "-o", str(folder / "x.pftrace"), "--split", "machine"]
    assert_refused(run(*line, before=_WITH_SMALL_FILES), "cannot write")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "line",
    [
        ["pipeline", RANK0, "--steptask"],
        ["extract", RANK0, RANK1, "-o"],
        ["pipeline", PIPELINE, "--format", "paddle", "-o"],
        ["summary", PIPELINE, "--format", "parquet", "-o"],
    ],
)
def test_a_folder_without_a_file_is_removed(folder: Path, line: list[str]) -> None:
    refused = run(*line, folder / "made" / "inside", "--force", before=_WITH_SMALL_FILES)
    assert refused.code == 1
    assert "cannot write" in refused.stderr
    assert list(folder.iterdir()) == []


def test_a_folder_that_may_not_be_searched_is_told(report: Path, folder: Path) -> None:
    folder.chmod(0)
    try:
        refused = _run_unprivileged("merge", report, "-o", folder / "x.pftrace")
        result = _run_unprivileged("info", report, "--result", folder / "x.json")
    finally:
        folder.chmod(0o700)
    assert_refused(refused, f"cannot write `{folder / 'x.pftrace'}`: permission denied")
    assert_refused(result, f"`{folder / 'x.json'}`: permission denied")


@pytest.mark.parametrize(
    ("line", "link"),
    [
        ("whatif {} -o {}/x.html", "x.html"),
        ("compare {} {} -o {}/x.html", "x.html"),
        ("merge {} -o {}/x.pftrace --manifest", "x.manifest.json"),
        ("extract {} -o {}/d", "d/rank1.nspart"),
        ("pipeline {} --format paddle -o {}/d", "d/pipeline_profile.json"),
    ],
)
def test_an_output_that_links_to_an_input_is_refused(tmp_path: Path, line: str, link: str) -> None:
    reports = shutil.copytree(PIPELINE / "node2", tmp_path / "in")
    (tmp_path / "d").mkdir()
    (tmp_path / link).symlink_to(reports / "rank0.sqlite")
    words = line.replace("{}/", f"{tmp_path}/").replace("{}", str(reports)).split()
    assert f"cannot write `{tmp_path / link}`: it is one of the reports" in call(*words, "--force").stderr
    assert (reports / "rank0.sqlite").read_bytes() == RANK0.read_bytes()


@pytest.mark.parametrize("hinders", ["no GPU operations", "no folder"])
def test_a_page_and_a_trace_are_written_both_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hinders: str
) -> None:
    monkeypatch.chdir(tmp_path)
    report = Path(shutil.copy(RANK0, tmp_path / "a.sqlite"))
    Path("a.pftrace").write_text("precious")
    if hinders == "no folder":
        Path("a.html").symlink_to("gone/a.html")
    else:
        edit(report, *(f"DELETE FROM CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "MEMCPY", "MEMSET")))
    assert call("a.sqlite", "--force").code == 1
    assert Path("a.pftrace").read_text() == "precious"
    assert len([*tmp_path.iterdir()]) == 2 + (hinders == "no folder")


def test_several_tables_need_a_folder(folder: Path) -> None:
    (folder / "file").touch()
    refused = call("summary", RANK0, "--format", "csv", "-o", folder / "file", "--force")
    assert_refused(refused, f"cannot write `{folder / 'file'}`: it exists, and is no folder")


def test_a_name_in_wrong_usage_is_one_line() -> None:
    assert "from `a\\nnote: fine\\x1b[8m" in call("open", RANK0, "a\nnote: fine\x1b[8m").stderr


@pytest.mark.parametrize("kind", [kind for kind in OUTPUTS if kind != "sqlite"])
def test_a_full_device_is_told(folder: Path, kind: str) -> None:
    arguments, full = _arguments(kind, RANK0, folder)  # the ending of the name says the format
    full.symlink_to("/dev/full")
    assert_refused(call(*arguments, "--force"), f"cannot write `{full}`: the disk is full")
    assert full.is_symlink()


@pytest.mark.few(2)
@pytest.mark.parametrize("command", ["info", "--version", "info --json", "project", "project --format csv"])
def test_a_full_standard_output_is_told(report: Path, command: str) -> None:
    with Path("/dev/full").open("w") as full:
        refused = run(*command.split(), report, stdout=full)
    assert_refused(refused, "cannot write to standard output: the disk is full")
    limit = ["bash", "-c", f'ulimit -f 0; exec "$@" > {report.parent}/printed', "bash"]
    limited = run(*command.split(), report, before=limit)
    assert_refused(limited, "cannot write to standard output: the file would be larger than this system")


@pytest.mark.parametrize(("inputs", "code"), [(["report"], 0), (["absent"], 1), (["--bad"], 2)])
def test_a_log_on_a_full_disk_changes_no_status(
    report: Path, folder: Path, inputs: list[str], code: int
) -> None:
    full = ["bash", "-c", 'exec "$@" 2> /dev/full', "bash"]
    named = [report if name == "report" else name for name in inputs]
    assert run("merge", *named, "-o", folder / "run.pftrace", before=full).code == code


@pytest.mark.parametrize("command", ["merge", "info"])
def test_nsys_is_missed_by_its_name(report: Path, folder: Path, command: str) -> None:
    recorded = report.with_suffix(".nsys-rep")
    recorded.write_bytes(b"recorded")
    arguments = arguments_of(command, recorded, folder=folder)
    env: dict[str, str | None] = {
        "PATH": str(folder),
        "NSYS_PP_NSYS": None,
        "NSYS_PP_CACHE": str(folder / "cache"),
    }
    refused = call(*arguments, env=env)
    assert_refused(refused, f"`{recorded}` must be exported first", "no nsys was found")
    assert "--nsys" in refused.stderr
    absent = str(folder / "absent" / "nsys")
    assert_refused(call(*arguments, "--nsys", absent, env=env), f"`{absent}`", f"`{recorded}`")
    assert_refused(call(*arguments, "--nsys", str(recorded), env=env), f"`{recorded}`")
    assert list(folder.iterdir()) == []
    assert_refused(call(*arguments, env={**env, "NSYS_PP_NSYS": absent}), f"`{absent}`", f"`{recorded}`")


@pytest.mark.few(3)
@pytest.mark.parametrize("command", ["merge", "info"])
@pytest.mark.parametrize("name", ["not SQLite", "cut within a page", "scrambled", "scrambled kernels"])
def test_keep_going_skips_what_is_broken(report: Path, folder: Path, command: str, name: str) -> None:
    good = Path(shutil.copy(RANK1, report.parent))
    BREAKS[name][0](report)
    done = call(*arguments_of(command, report.parent, folder=folder), "--keep-going")
    assert done.code == 3
    assert f"skipped {report}: `{report}`" in done.stderr
    assert "Traceback" not in done.stderr
    assert str(good) not in done.stderr
    if command == "merge":
        assert [path.name for path in folder.iterdir()] == ["out.pftrace"]
    else:
        assert good.name in done.stdout
        assert f"{report}\n" not in done.stdout
    good.unlink()
    again = arguments_of(command, report.parent, folder=folder.parent)
    assert_refused(call(*again, "--keep-going"), f"`{report}`")


USAGE = {
    "merge": """
        -o run.json --processes some => invalid number of processes 'some'
        -o run.json --processes -1 => invalid number of processes '-1'
        -o run.json --memory 8apples => invalid memory size '8apples'
        -o run.json --memory 0 => invalid memory size '0'
        -o run.json --wait-timeout soon => invalid timeout 'soon'
        -o run.json --dask-scheduler tcp://x:1 --processes 2 => `--dask-scheduler` excludes `--processes`
        -o run.json --result x.txt => invalid `--result x.txt`; expected a .json file
        -o run.json --result run.json => invalid `--result run.json`; expected a .json file other than `-o`
        -o - --open => `--open` needs a file; name it with `-o`
        -o run.json --manifest => `--manifest` needs a file in Perfetto's format
        -o - --split rank => `--split rank` needs a file as output
        -o x.html => `x.html` has the extension of a table or a page
        --detail most => 'most' is not one of
        --format json => 'json' is not one of
        --device 0,a => invalid list of numbers '0,a'; expected e.g. `0,1`
        --device= => invalid list of numbers ''
        --start 5minutes => invalid time '5minutes'; expected e.g. `1.5s`, `20ms`, `300us` or `4000ns`
        --end 1e3 => invalid time '1e3'
        --start 1 => invalid time '1'
        --end .5s => invalid time '.5s'
        --ops kernel, => invalid operations ''; expected kernel, memcpy, memset or all
        --scope all => 'all' is not one of
        --show osrt => unknown kind `osrt`
        --per-stream => No such option""",
    "extract": """
        -o - => a part cannot be printed; choose a file with `-o`
        --device 0 => No such option
        -o x.sqlite => `x.sqlite` has the extension of a table or a report; a part is `.nspart`""",
    "report": """
        -o - => a page cannot be printed""",
    "chart": """
        -o - => a chart cannot be printed
        -o x.pdf => unknown extension of `x.pdf`; expected .html, .svg or .png
        -o x => unknown extension of `x`
        --steps 3:3 => empty steps""",
    "project": """
        -o x.txt => expected .parquet, .csv, .json, .sqlite, .db, .md, or a folder with a `--format`
        -o noending => unknown extension of `noending`
        --format parquet => parquet cannot be printed; choose a file or a folder with `-o`
        --format sqlite -o - => sqlite cannot be printed; choose a file or a folder with `-o`
        --format table -o x.txt => a table is printed; omit `-o`
        --ops kernels => invalid operations 'kernels'; expected kernel, memcpy, memset or all
        --ops all,kernel => invalid operations 'all'
        --ops= => invalid operations ''
        --limit -1 => -1 is not in the range
        --limit many => 'many' is not a valid integer""",
    "pipeline": r"""
        --table nothing => unknown table 'nothing'; expected verdict, steps, coverage, stages
        --format csv => choose it with `--table`
        --format parquet => parquet cannot be printed
        -o out => unknown extension of `out`
        -o x.csv --format table => a table is printed
        -o x.parquet --table steps,stages => choose it with `--table`
        --device 1 => `--device` requires `--format paddle`
        --format paddle => choose a folder with `-o`
        --format paddle -o x --table steps => omit `--table`
        --format paddle -o x --model layers=2 => omit `--flops-per-step` and `--model`
        --steptask x --in-place => omit one of them
        --steptask x --table steps => omit `--table`
        --explain-jobs --model layers=2 => omit `--model`
        --explain-jobs --steptask x => omit `--steptask`
        --explain-jobs --format svg -o run.svg => omit `--format`
        --in-place -o x.csv => omit `-o`
        --in-place --json => omit `--json`
        --in-place --keep-going => `--keep-going` is not available
        --steps 7 => use `7:8`
        --steps 8:7 => empty steps
        --steps :0 => empty steps
        --steps : => expected e.g. `10:12`, `10:` or `:12`
        --steps a:b => invalid steps 'a:b'
        --job-pattern ( => invalid regular expression
        --step-pattern [ => invalid regular expression
        --job-pattern forward=(?<=x)y => look-around
        --job-pattern (a)\1 => backreferences
        --flops-per-step 1 --model layers=2 => `--flops-per-step` and `--model` exclude each other
        --schedule zigzag => is not one of""",
    "summary": """
        --table nothing => unknown table 'nothing'; expected overview, device
        --sort colour => no table has a column 'colour'; expected one of
        --table distribution --sort bytes => no table has a column 'bytes'
        --format csv => choose it with `--table`
        --by colour => is not one of
        --unit hours => is not one of""",
    "align": """
        --offset node10 => offset
        --offset node10= => offset
        --offset =3ms => offset
        --offset node1=-9999999999s => less than 73 years
        --offset node2=1ms --offset node2=2ms => duplicate `--offset` for machine `node2`
        --json --format table => `--json` and `--format table` contradict each other""",
    "info": """
        --nonsense => No such option
        --layout pp=x => invalid number of parts `pp=x`
        --layout pp=100000000,dp=100000000 => a layout of 10,000,000,000,000,000 ranks; expected at most
        --rank-from ( => invalid regular expression `(`
        --rank-from rank => `rank` has no group""",
    "open": """
        --zoom 1s => expected e.g. `1.5s:1.7s`
        --zoom 2s:1s => must be later
        --zoom a:2s => invalid time""",
    "compare": """
        => Missing argument
        second -o x.json => the page is HTML""",
    "sql": """
        => expected a query and reports, or `--explain`""",
}


@pytest.mark.parametrize(
    ("command", "line"), [(name, line) for name, lines in USAGE.items() for line in lines.splitlines()[1:]]
)
def test_wrong_usage_exits_with_2(
    command: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, words = line.split("=> ", 1)
    done = call(command, RANK0, *arguments.split())
    assert (done.code, done.stdout) == (2, "")
    assert words in " ".join(done.stderr.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["merge"], ["info"], ["nothing"]], ids=" ".join)
def test_missing_arguments_and_unknown_commands_exit_with_2(arguments: list[str]) -> None:
    done = call(*arguments)
    assert (done.code, done.stdout) == (2, "")
    assert "Error: " in done.stderr


@pytest.fixture
def reports(tmp_path: Path) -> list[Path]:
    """Return copies of two reports of a run, of which the second will be odd."""
    return [Path(shutil.copy(source, tmp_path)) for source in (RANK0, RANK1)]


ODD_TABLES = {
    "facts without names": [
        "DROP TABLE META_DATA_CAPTURE",
        "CREATE TABLE META_DATA_CAPTURE (value TEXT)",
        "INSERT INTO META_DATA_CAPTURE VALUES (1)",
    ],
    "negative devices": ["UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = -5"],
    "columns that are no UTF-8": [
        "ALTER TABLE NVTX_EVENTS ADD COLUMN columnName",
        "ALTER TABLE StringIds ADD columnName",
    ],
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ODD_TABLES)
def test_odd_tables_are_read(reports: list[Path], tmp_path: Path, name: str) -> None:
    edit(reports[1], *ODD_TABLES[name])
    data = reports[1].read_bytes()
    reports[1].write_bytes(data.replace(b"columnName", b"\xff\xfe\xff\xfe\xff\xfe\xff\xfe\xff\xfe"))
    for command in (["merge", "-o", tmp_path / "run.pftrace"], ["pipeline"], ["info"]):
        assert call(*command, *reports).code == 0


@pytest.mark.parametrize(
    "start", [b"ARROW1\0\0", b"\xff\xff\xff\xff\x10\0\0\0", b"\xff\xff\xff\xff\xff\xff\xff\x7f", b""]
)
def test_an_arrow_file_that_is_none_is_named(tmp_path: Path, start: bytes) -> None:
    folder = tmp_path / "report_arwdir"
    folder.mkdir()
    for table in ("StringIds", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL"):
        (folder / f"{table}.arrow").write_bytes(start + b"this is no table" * 40)
    assert_refused(call("merge", folder, "-o", tmp_path / "run.pftrace"), ".arrow` cannot be read: ")
    kept = call("merge", folder, RANK0, "--keep-going", "-o", tmp_path / "run.pftrace")
    assert kept.code == 3
    assert f"skipped {folder}: " in kept.stderr


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    return Path(
        shutil.copytree(
            PIPELINE / "node2", tmp_path / "run", ignore=shutil.ignore_patterns("*.json", "*.csv")
        )
    )


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("command", "target"),
    [("merge -o {}/run.pftrace", "nowhere.sqlite"), ("extract -o {}/parts", "gone.sqlite")],
)
def test_a_broken_link_is_named_each_time(linked: Path, tmp_path: Path, command: str, target: str) -> None:
    link = linked / "gone.sqlite"
    link.symlink_to(target)
    words = command.format(tmp_path).split()
    assert_refused(call(*words, linked), str(link))
    for options in ([], ["--force"]):
        done = call(*words, linked, "--keep-going", *options)
        assert done.code == 3, done
        assert f"skipped {link}: " in done.stderr


COMMANDS_WITH_STEPS = ("merge", "pipeline", "summary", "compare")


@pytest.fixture(scope="module")
def unnumbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a report whose ranges have neither steps nor numbers."""
    return write_report(
        tmp_path_factory.mktemp("report") / "report.sqlite",
        ranges=[{"name": "work", "start": 0, "end": 100}],
        api_calls=[{"start": 10, "end": 20}],
        kernels=[{"name": "gemm", "start": 30, "end": 50, "correlation": 1}],
    )


@pytest.fixture(scope="module")
def without_gpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a report without work on a GPU, hence without any step."""
    path = tmp_path_factory.mktemp("report") / "report.sqlite"
    return write_report(path, ranges=[{"name": "work", "start": 0, "end": 100}])


@pytest.mark.few(1)
@pytest.mark.parametrize("command", COMMANDS_WITH_STEPS)
def test_a_window_without_steps_names_the_steps(
    command: str, unnumbered: Path, without_gpu: Path, tmp_path: Path
) -> None:
    for report, hint in ((unnumbered, "0 to 0"), (without_gpu, "only processes with GPU work have steps")):
        for window in ("7:", "9" * 30 + ":"):
            done = call(*arguments(command, report, tmp_path), "--steps", window)
            assert_refused(done)
            if f"`--steps {window}`" in done.stderr:
                assert hint in done.stderr
    assert not any(tmp_path.iterdir())
    assert call(*arguments(command, unnumbered, tmp_path), "--steps", ":" + "9" * 30).code == 0


def arguments(command: str, report: Path, folder: Path) -> list[str]:
    reports = [str(report)] * (2 if command == "compare" else 1)
    return [command, *reports, *(["-o", str(folder / "run.pftrace")] if command == "merge" else [])]


COMMANDS_ON_BYTES = [
    "merge --split machine -o OUT/caf\udce9.pftrace",
    "summary --format json --explain-rows --log-format json",
    "info",
    "extract -o OUT/parts",
    "check",
    "report -o OUT/caf\udce9.html",
    "chart -o OUT/caf\udce9.svg",
]


@pytest.fixture
def odd_folder(tmp_path: Path) -> Path:
    """Return a folder with two reports of a run: bytes of a name of Latin-1 are in the folder of one, and in the name of the other,
    which has no name of its machine.
    """
    odd_folder = tmp_path / "in"
    try:
        (odd_folder / "caf\udce9").mkdir(parents=True)
    except OSError:
        pytest.skip("the file system has no such names")
    shutil.copy(RANK0, odd_folder / "caf\udce9" / "a.sqlite")
    shutil.copy(RANK1, odd_folder / "th\udce9.sqlite")
    with closing(sqlite3.connect(odd_folder / "th\udce9.sqlite")) as report, report:
        report.execute("DELETE FROM TARGET_INFO_SYSTEM_ENV")  # its machine has the name of the file
    return odd_folder


@pytest.mark.few(1)
@pytest.mark.parametrize("command", COMMANDS_ON_BYTES)
def test_names_may_be_bytes(command: str, odd_folder: Path, tmp_path: Path) -> None:
    out, result = tmp_path / "out", tmp_path / "r\udce9sult.json"
    out.mkdir()
    words = [word.replace("OUT", str(out)) for word in command.split()]
    done = run(*words, odd_folder, "--result", result, errors="surrogateescape")
    assert done.code in (0, 6), done.stderr
    recorded = json.loads(result.read_bytes())
    assert recorded["exit_status"] == done.code
    assert {os.fsencode(each["path"]) for each in recorded["outputs"]} <= {
        os.fsencode(path) for path in tmp_path.rglob("*")
    }


def test_names_that_are_bytes_are_shown_escaped(odd_folder: Path) -> None:
    (odd_folder / "th\udce9.sqlite").write_bytes(b"no report")
    found = json.loads(call("check", odd_folder, "--json").stdout)["reports"]
    assert [Path(one["report"]).name for one in found] == ["a.sqlite", "th\\xe9.sqlite"]
    assert "th\\xe9.sqlite` is not a SQLite database" in found[1]["findings"][0]["text"]
    assert "th\\xe9.sqlite" in call("info", odd_folder).stderr


def test_a_scrub_that_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    shutil.copy(RANK0, tmp_path / "in" / "a.sqlite")
    (tmp_path / "in" / "b.sqlite").write_bytes(RANK1.read_bytes()[:99_000])
    assert_refused(call("scrub", tmp_path / "in", "-o", tmp_path / "deep" / "out"), "is truncated")
    edit(tmp_path / "in" / "a.sqlite", "CREATE TABLE other (text)", "INSERT INTO other VALUES ('x')")
    shutil.copy(RANK1, tmp_path / "in" / "b.sqlite")
    kernels = "UPDATE sqlite_master SET sql = 'CREATE TABLE x (' WHERE name = 'PROCESSES'"
    edit(tmp_path / "in" / "b.sqlite", "PRAGMA writable_schema = ON", kernels)
    assert call("scrub", tmp_path / "in", "-o", tmp_path / "deep" / "out").code == 1
    assert not (tmp_path / "deep").exists()

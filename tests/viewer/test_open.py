"""`nsys-pp open`, with the real UI in a real browser, and without."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import pytest

import nsys_pp
from nsys_pp.commands import open as opener
from nsys_pp.errors import NsysPPError, OptionError, ReportError
from nsys_pp.viewer import QUERIES, SITE, build_address, format_forwarding, is_remote
from tests.cli.calls import call
from tests.importer.importer import Importer
from tests.importer.parts import PartMissingError
from tests.ui.screenshot import Shot, browse

PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"
TABS = """(async () => {
  await new Promise((done) => setTimeout(done, 500));
  return document.body.innerText;
})()"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("opened") / "run.pftrace"
    nsys_pp.merge([PIPELINE], path)
    return path


@contextmanager
def opened(*arguments: str | Path, **environment: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address that the command prints, while it serves."""
    command = [sys.executable, "-m", "nsys_pp", "open", *map(str, arguments)]
    env = {**os.environ, **environment}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


def test_the_real_ui_shows_the_trace_and_the_tables(trace: Path, tmp_path: Path) -> None:
    options = ["--no-browser", "--expand", "rank 1 ", *(f"--query={name}" for name in QUERIES)]
    with opened(trace, *options) as (address, _):
        try:
            found = browse(address, tmp_path / "run.png", Shot(), script=TABS)
        except PartMissingError as error:
            pytest.skip(str(error))
    assert found["errors"] == []
    for text in ("rank 3 · stage 3", "messages", "receive B0 from rank 1", "wait_ms"):
        assert text in found["value"], text
    assert len(re.findall(r"Query \(\d+\)", found["value"])) == len(QUERIES), "v52 names all tabs alike"
    assert "did not run" not in found["value"]


def test_tables_are_those_of_the_run(trace: Path, importer: Importer) -> None:
    importer.load(trace)
    bubbles = importer.query(None, QUERIES["bubbles"].sql)
    assert bubbles["row"].to_list() == [f"bubble of stage {stage}" for stage in range(4)]
    assert bubbles["mean_percent"].is_between(5, 95).all()
    jobs = importer.query(None, QUERIES["jobs"].sql)
    assert len(jobs) == 100
    assert jobs["duration_ms"].is_sorted(descending=True)
    assert set(jobs["row"]) <= {f"rank {rank} · stage {rank}" for rank in range(4)}
    messages = importer.query(None, QUERIES["messages"].sql)
    assert len(messages) > 20
    assert messages["wait_ms"].is_sorted(descending=True)


def test_without_the_extra_the_site_reads_the_file_from_here(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opener, "find_ui", lambda: None)
    monkeypatch.setattr(opener, "_FIRST_S", 0.01)
    told: list[opener.Opening] = []
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    result = nsys_pp.open_output(trace, browser=False, port=port, on_ready=told.append)
    assert told[0].is_site
    assert not result.is_sent
    assert result.address.startswith(f"{SITE}/#!/?url=http%3A%2F%2F127.0.0.1%3A{port}%2F")


def test_pages_and_pictures_are_served_as_they_are(tmp_path: Path) -> None:
    page = tmp_path / "a b.html"
    page.write_text("<p>é</p>")
    with opened(page, "--no-browser", "--keep") as (address, _), urlopen(address) as answer:
        assert answer.headers["Content-Type"].startswith("text/html")
        assert answer.read().decode() == "<p>é</p>"


def test_over_ssh_the_command_for_the_other_side_is_printed(trace: Path) -> None:
    session = {"SSH_CONNECTION": "10.0.0.9 50022 10.0.0.7 2222", "USER": "kim", "DISPLAY": ""}
    with opened(trace, **session) as (address, process):
        port = urlsplit(address).port
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        text = process.stderr.read()
    assert f"\n  ssh -N -L {port}:127.0.0.1:{port} -p 2222 kim@10.0.0.7\n" in text


def test_large_traces_are_read_by_a_native_trace_processor(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program is a stand-in, which cannot be had here: how it is called is all that is checked."""
    program = tmp_path / "trace_processor_shell"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(opener, "LARGE_BYTES", 10)
    told: list[opener.Opening] = []
    nsys_pp.open_output(trace, browser=False, on_ready=told.append)
    assert (tmp_path / "called").read_text().split() == ["--httpd", str(trace)]
    assert told[0].native == str(program)
    assert "url=" not in told[0].address
    monkeypatch.setattr(opener, "NATIVE", ())
    monkeypatch.setattr(opener, "_FIRST_S", 0.01)
    nsys_pp.open_output(trace, browser=False, on_ready=told.append)
    assert (told[1].is_large, told[1].native) == (True, None)


def test_the_address_says_which_time_and_rows_to_show() -> None:
    address = build_address("http://x", "http://x/t", window_ns=(5, 7), pin="^ *rank 0 ", queries=["jobs"])
    arguments = parse_qs(urlsplit(address).fragment.removeprefix("!/?"))
    assert (arguments["visStart"], arguments["visEnd"]) == (["5"], ["7"])
    assert re.findall(r'"id": "([^"]+)"', arguments["startupCommands"][0]) == [
        "dev.perfetto.PinTracksByRegex",
        "dev.perfetto.RunQueryAndShowTab",
    ]


@pytest.mark.parametrize(
    ("environment", "remote"),
    [
        ({}, False),
        ({"DISPLAY": ":0"}, False),
        ({"SSH_CONNECTION": "a b c d"}, True),
        ({"SSH_TTY": "/dev/pts/1"}, True),
        ({"SSH_CONNECTION": "a b c d", "DISPLAY": "localhost:10.0"}, False),
    ],
)
def test_ssh_is_recognised(environment: dict[str, str], remote: bool) -> None:
    assert is_remote(environment) is remote


def test_forwarding_names_this_machine() -> None:
    assert format_forwarding(5, {"USER": "kim"}).endswith(f"kim@{socket.gethostname()}")


def test_what_cannot_be_opened_is_told(trace: Path, tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="no such file"):
        nsys_pp.open_output(tmp_path / "no.pftrace")
    with pytest.raises(OptionError, match="no"):
        nsys_pp.open_output(trace, queries=["no"])
    with pytest.raises(OptionError, match="window is empty"):
        nsys_pp.open_output(trace, window_ns=(5, 5))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(NsysPPError, match="cannot serve"):
            nsys_pp.open_output(trace, port=taken.getsockname()[1], browser=False)


@pytest.mark.parametrize(
    ("zoom", "message"),
    [("1s", "expected e.g. `1.5s:1.7s`"), ("2s:1s", "must be later"), ("a:2s", "invalid time")],
)
def test_a_range_of_times_is_checked(zoom: str, message: str, trace: Path) -> None:
    done = call("open", trace, "--zoom", zoom)
    assert done.code == 2
    assert message in done.stderr


def test_the_range_is_in_the_address(trace: Path) -> None:
    with opened(trace, "--no-browser", "--zoom", "150ms:0.2s") as (address, _):
        arguments = parse_qs(urlsplit(address).fragment.removeprefix("!/?"))
    assert (arguments["visStart"], arguments["visEnd"]) == (["150000000"], ["200000000"])

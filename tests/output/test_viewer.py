"""`nsys-pp open`, with the real UI in a real browser, and without."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

import nsys_pp
from nsys_pp.commands import open as opener
from nsys_pp.errors import NsysPPError, OptionError, ReportError
from nsys_pp.viewer import QUERIES, SITE, FileServer
from tests.cli.calls import PIPELINE
from tests.importer import Importer
from tests.ui.browser import Shot, browse

TABS = """(async () => {
  const isDrawn = () => ["rank 3 ", "wait_ms"].every((text) => document.body.innerText.includes(text));
  for (let i = 0; i < 600 && !isDrawn(); i++) await new Promise((done) => setTimeout(done, 100));
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
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


@pytest.mark.slow
def test_the_real_ui_shows_the_trace_and_the_tables(trace: Path, tmp_path: Path) -> None:
    options = ["--no-browser", "--expand", "rank 1 ", *(f"--query={name}" for name in QUERIES)]
    with opened(trace, *options) as (address, _):
        found = browse(address, tmp_path / "run.png", Shot(), script=TABS)
    assert found["errors"] == []
    for text in ("rank 3 · stage 3 · node10 · GPU 1", "messages", "receive B0 from rank 1", "wait_ms"):
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
    assert set(jobs["row"]) <= {
        f"rank {rank} · stage {rank} · node{2 if rank < 2 else 10} · GPU {rank % 2}" for rank in range(4)
    }
    messages = importer.query(None, QUERIES["messages"].sql)
    assert len(messages) > 20
    assert messages["wait_ms"].is_sorted(descending=True)


def test_without_the_extra_the_site_reads_the_file_from_here(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "viztracer", None)
    told: list[opener.Opening] = []

    def interrupt(opening: opener.Opening) -> None:
        told.append(opening)
        raise KeyboardInterrupt

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(KeyboardInterrupt):
        nsys_pp.open_output(trace, browser=False, port=port, on_ready=interrupt)
    assert told[0].is_site
    assert told[0].address.startswith(f"{SITE}/#!/?url=http%3A%2F%2F127.0.0.1%3A{port}%2F")


def test_over_ssh_the_command_for_the_other_side_is_printed(trace: Path) -> None:
    session = {"SSH_CONNECTION": "10.0.0.9 50022 10.0.0.7 2222", "USER": "kim", "DISPLAY": ""}
    with opened(trace, "--zoom", "150ms:0.2s", **session) as (address, process):
        port = urlsplit(address).port
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        text = process.stderr.read()
    arguments = parse_qs(urlsplit(address).fragment.removeprefix("!/?"))
    assert (arguments["visStart"], arguments["visEnd"]) == (["150000000"], ["200000000"])
    assert f"\n  ssh -N -L {port}:127.0.0.1:{port} -p 2222 kim@10.0.0.7\n" in text


def test_large_traces_are_read_by_a_native_trace_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program is a stand-in, which cannot be had here: how it is called is all that is checked."""
    trace = tmp_path / "run.pftrace"
    trace.touch()
    os.truncate(trace, 81 << 20)
    program = tmp_path / "trace_processor_shell"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    told: list[opener.Opening] = []
    nsys_pp.open_output(trace, browser=False, on_ready=told.append)
    assert (tmp_path / "called").read_text().split() == ["--httpd", str(trace)]
    assert told[0].native == str(program)
    assert "url=" not in told[0].address


def test_what_cannot_be_opened_is_told(trace: Path, tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="does not exist"):
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


DATA = b"\x00trace" * 100_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ui = tmp_path / "ui"
    (ui / "inner").mkdir(parents=True)
    (ui / "index.html").write_text("the page")
    (ui / "a.wasm").write_bytes(b"\0asm")
    (tmp_path / "run é.pftrace").write_bytes(DATA)
    (tmp_path / "secret").write_text("not for you")
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[FileServer]:
    with FileServer(folder / "run é.pftrace", ui=folder / "ui") as server:
        yield server


def ask(
    server: FileServer, path: str, *, method: str = "GET", **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers of an answer; headers are sent as they are given."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body, {name.lower(): value for name, value in answer.getheaders()}


def test_the_file_and_the_page_are_served(server: FileServer) -> None:
    status, body, headers = ask(server, server.file_path)
    assert (status, body, headers["content-length"]) == (200, DATA, str(len(DATA)))
    assert headers["x-content-type-options"] == "nosniff"
    assert ask(server, "/")[:2] == (200, b"the page")
    assert ask(server, "/a.wasm")[2]["content-type"] == "application/wasm"


@pytest.mark.parametrize(
    "path",
    [
        "/run%20%C3%A9.pftrace",
        "/x/run%20%C3%A9.pftrace",
        "/../secret",
        "/%2e%2e/secret",
        "/inner/",
        "//secret",
    ],
)
def test_nothing_else_is_served(path: str, server: FileServer) -> None:
    status, body, _ = ask(server, path)
    assert status == 404
    assert b"not for you" not in body


def test_without_a_page_the_file_alone_is_served(folder: Path) -> None:
    with FileServer(folder / "secret") as server:
        assert ask(server, server.file_path)[1] == b"not for you"
        assert ask(server, "/")[0] == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:9001", "Origin": "http://evil.example:9001"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": SITE}, 403),
    ],
)
def test_pages_of_other_sites_read_nothing(headers: dict[str, str], status: int, server: FileServer) -> None:
    for path in (server.file_path, "/"):
        assert ask(server, path, **headers)[0] == status
    assert ask(server, server.file_path, method="OPTIONS", **headers)[0] == status


def test_the_allowed_site_may_read_the_file(folder: Path) -> None:
    with FileServer(folder / "secret", allowed_site=SITE) as server:
        status, _, headers = ask(server, server.file_path, Origin=SITE)
        assert (status, headers["access-control-allow-origin"]) == (200, SITE)
        status, _, headers = ask(server, server.file_path, method="OPTIONS", Origin=SITE)
        assert (status, headers["access-control-allow-private-network"]) == (204, "true")
        assert "access-control-allow-origin" not in ask(server, server.file_path)[2]
        assert ask(server, server.file_path, Origin="https://ui.perfetto.dev.evil.example")[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD"])
def test_nothing_can_be_changed(method: str, server: FileServer) -> None:
    assert ask(server, server.file_path, method=method)[0] in (405, 501)


def test_every_address_has_a_secret_of_its_own(folder: Path) -> None:
    with FileServer(folder / "secret") as one, FileServer(folder / "secret") as other:
        paths = {one.file_path, other.file_path}
    assert len(paths) == 2
    assert all(len(path.split("/")[1]) >= 20 for path in paths)


def test_it_waits_for_the_file_to_be_read_and_then_for_silence(server: FileServer) -> None:
    assert not server.wait(first_s=0.01, idle_s=0)
    began = time.monotonic()
    threading.Timer(0.2, ask, (server, server.file_path)).start()
    assert server.wait(first_s=60, idle_s=0.3)
    assert time.monotonic() - began >= 0.5


def test_a_file_that_vanished_is_not_found(folder: Path, server: FileServer) -> None:
    (folder / "run é.pftrace").unlink()
    assert ask(server, server.file_path)[0] == 404
    assert not server.is_sent.is_set()

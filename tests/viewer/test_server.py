"""The server of one file: who may read what, and when it ends."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nsys_pp.viewer import SITE, FileServer

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


def test_a_page_of_the_server_itself_may_read(server: FileServer) -> None:
    for name in ("127.0.0.1", "localhost"):
        host = f"{name}:{server.port}"
        assert ask(server, server.file_path, Host=host, Origin=f"http://{host}")[0] == 200


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
    paths = set()
    for _ in range(3):
        with FileServer(folder / "secret") as server:
            paths.add(server.file_path)
    assert len(paths) == 3
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

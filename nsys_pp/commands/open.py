"""`nsys-pp open`: a trace in Perfetto's UI, or a page, in the user's browser."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nsys_pp.errors import NsysPPError, OptionError, ReportError, missing_error
from nsys_pp.frames.conform import ShortRepr
from nsys_pp.run.options import check_choice
from nsys_pp.viewer import (
    QUERIES,
    SITE,
    SITE_PORT,
    FileServer,
    build_address,
    find_ui,
    format_forwarding,
    is_remote,
    open_browser,
)

# Extensions of files that a browser shows by itself.
PAGES = (".html", ".svg", ".png")

# Programs that read traces larger than a browser holds, if they are on PATH; they serve on `SITE_PORT`.
NATIVE = ("trace_processor_shell", "trace_processor")

# Size of a trace, compressed, above which a browser may run out of memory. A browser holds about 2 million
# events (`nsys_pp.options.MAX_EVENTS`), which take 20 to 40 bytes each.
LARGE_BYTES = 80 << 20

_FIRST_S, _IDLE_S = 600.0, 90.0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OpenResult(ShortRepr):
    """A file that was opened."""

    file: Path
    address: str  # in the browser
    is_sent: bool  # the browser has read it


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Facts for the user about a file that is ready to be opened.

    Attributes:
        address: To open in the browser.
        has_browser: A browser was started here.
        forwarding: Command for the user's own machine, where the user is logged in over ssh; None otherwise.
        is_site: The address is that of Perfetto's site, which needs the internet; the file stays on this
            machine.
        native: Program that reads the trace, in place of the browser; None: the browser.
        is_large: The browser may run out of memory.
    """

    address: str
    has_browser: bool
    forwarding: str | None
    is_site: bool
    native: str | None
    is_large: bool


def open_output(
    file: str | Path,
    *,
    window_ns: tuple[int, int] | None = None,
    expand: str | None = None,
    pin: str | None = None,
    queries: Sequence[str] = (),
    port: int | None = None,
    browser: bool = True,
    keep: bool = False,
    on_ready: Callable[[Opening], object] = lambda opening: None,
) -> OpenResult:
    """Open a trace, chart or page in the browser, and serve it until it was read.

    A trace is shown by Perfetto's UI: by the one that the extra `ui` installs, without a network; otherwise
    by https://ui.perfetto.dev, which reads the file from this machine. Only this machine can reach the
    server, and only with the address that the browser is given.

    Args:
        file: The file: a trace, or a page or picture.
        window_ns: Time to show, in ns since the start of the run. Default: all.
        expand: Regular expression of names of rows to expand.
        pin: Regular expression of names of rows to pin.
        queries: Names of `nsys_pp.viewer.QUERIES`; each is a tab below the trace.
        port: Port of the server. Default: a free one; 9001 for https://ui.perfetto.dev, which reads no other.
        browser: Start a browser, unless the user is logged in over ssh.
        keep: Serve until interrupted.
        on_ready: Called when the file is ready to be opened.

    Raises:
        ReportError: There is no such file.
        OptionError: A query is unknown.
        NsysPPError: The port is in use.
    """
    path = Path(file)
    if (path.exists() and not path.is_file()) or path.suffix in (".sqlite", ".nsys-rep", ".nspart"):
        raise ReportError(f"`{path}` is no trace or page", "`nsys-pp REPORT...` writes both")
    if not path.is_file():
        raise missing_error(path)
    for query in queries:
        check_choice("queries", query, QUERIES)
    if window_ns is not None and window_ns[1] <= window_ns[0]:
        raise OptionError("window_ns", "the window is empty: its end must be later than its start")
    ui, native, is_site, is_large = None, None, False, False
    if not (is_page := path.suffix.lower() in PAGES):
        ui, is_large = find_ui(), path.stat().st_size > LARGE_BYTES
        is_site = ui is None
        native = next(filter(None, map(shutil.which, NATIVE)), None) if is_large else None
    if port is None:
        port = SITE_PORT if is_site and not native else 0
    try:
        started = FileServer(path, ui=ui, port=port, allowed_site=SITE if is_site else None)
    except OSError as error:
        raise NsysPPError(
            f"cannot serve `{path}` on port {port}: {error.strerror}",
            "end the program that uses the port; with `pip install 'nsys-pp[ui]'` any free port will do",
        ) from None
    with started as server:
        address = server.file_address
        if not is_page:
            at, trace = SITE if is_site else server.address, None if native else address
            address = build_address(at, trace, window_ns=window_ns, expand=expand, pin=pin, queries=queries)
        ports = [server.port] * (not is_site or not native) + [SITE_PORT] * (native is not None)
        opening = Opening(
            address=address,
            has_browser=browser and not is_remote() and open_browser(address),
            forwarding="\n".join(map(format_forwarding, ports)) if is_remote() else None,
            is_site=is_site,
            native=native,
            is_large=is_large,
        )
        on_ready(opening)
        if native:
            is_sent = subprocess.run([native, "--httpd", str(path)], check=False).returncode == 0
        else:
            is_sent = server.wait(first_s=_FIRST_S, idle_s=float("inf") if keep else _IDLE_S)
    return OpenResult(file=path, address=address, is_sent=is_sent)

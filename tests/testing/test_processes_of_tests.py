"""What a test has started or opened ends with it."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress

import pytest

from tests.processes import running
from tools.faults.proxy import Proxy

WAIT = [sys.executable, "-c", "input()"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_process_has_ended_and_its_pipes_are_closed_however_a_test_ends(fails: bool) -> None:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with suppress(ZeroDivisionError), running(WAIT, **pipes) as process:
        process.stdin.write("not flushed")
        if fails:
            raise ZeroDivisionError
    assert process.returncode is not None
    assert all(getattr(process, name).closed for name in pipes)


@pytest.mark.parametrize("answers", [False, True], ids=["its server is away", "it forwards"])
def test_a_proxy_that_is_closed_has_closed_every_connection(
    answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted: list[socket.socket] = []
    accept = socket.socket.accept

    def noted(listener: socket.socket) -> tuple[socket.socket, object]:
        connection, address = accept(listener)
        accepted.append(connection)
        return connection, address

    monkeypatch.setattr(socket.socket, "accept", noted)
    with socket.create_server(("127.0.0.1", 0)) as server:
        if not answers:
            server.close()
        proxy = Proxy(server.getsockname() if answers else ("127.0.0.1", 9), "127.0.0.1")
        with socket.create_connection(proxy.address, timeout=60) as client:
            if answers:
                connection, _ = server.accept()
                connection.close()
            assert client.recv(1) == b""
            proxy.close()
    assert accepted
    assert all(connection.fileno() == -1 for connection in accepted)

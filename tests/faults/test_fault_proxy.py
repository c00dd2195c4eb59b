"""The proxy between clients and nodes."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.faults.dial import Dial
from tools.faults.proxy import Proxy

ROOT = Path(__file__).parents[2]


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve(client: socket.socket) -> None:
            with client:
                while piece := client.recv(1000):
                    client.sendall(piece)

        def accept() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(echo: tuple[str, int]) -> Iterator[Proxy]:
    made = Proxy(echo, "127.0.1.9")
    yield made
    made.close()


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection(proxy.address, timeout=5) as connection:
        connection.sendall(b"hello")
        assert connection.recv(100) == b"hello"
        yield connection


def test_a_cut_ends_connections_and_new_ones_are_refused_until_healed(
    proxy: Proxy, client: socket.socket
) -> None:
    proxy.refuses = True
    proxy.cut()
    assert client.recv(100) == b""
    with socket.create_connection(proxy.address, timeout=5) as refused:
        assert refused.recv(100) == b""
    proxy.heal()
    with socket.create_connection(proxy.address, timeout=5) as healed:
        healed.sendall(b"again")
        assert healed.recv(100) == b"again"


def test_swallowed_answers_are_never_heard_and_the_connection_ends_with_the_healing(
    proxy: Proxy, client: socket.socket
) -> None:
    proxy.swallows = True
    client.sendall(b"lost")
    client.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.recv(100)
    client.settimeout(5)
    proxy.heal()
    assert client.recv(100) == b""


def test_a_delay_holds_up_every_piece_in_both_directions(proxy: Proxy, client: socket.socket) -> None:
    proxy.delay = 0.1
    began = time.monotonic()
    client.sendall(b"slow")
    assert client.recv(100) == b"slow"
    assert time.monotonic() - began >= 0.2


def test_a_process_sees_the_time_and_the_network_that_the_campaign_gives_it(
    proxy: Proxy, tmp_path: Path
) -> None:
    Dial(tmp_path / "dial").ahead = 300 * 10**9
    program = f"""
import socket
from pathlib import Path
from tools.faults.detours import install_detours
from tools.faults.dial import Dial, distort_time
distort_time(Dial(Path({str(tmp_path / "dial")!r})))
install_detours({{"127.0.0.77:1": {proxy.address!r}}})
from shardq.clock import SystemClock
connection = socket.create_connection(("127.0.0.77", 1), timeout=5)
connection.sendall(b"hello")
assert connection.recv(10) == b"hello"
print(SystemClock().now())
"""
    before = time.time()
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert before + 299 < int(done.stdout) / 1e6 < time.time() + 301

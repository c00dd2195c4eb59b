"""Stands between a client and the server, and fails at one of the client's commands."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

from tests.forking import start, was_killed

PATIENCE = 10.0  # seconds until a thread has seen that its connection was shut down
UNCOUNTED = frozenset(("hello", "isMaster", "ismaster", "ping", "endSessions", "killCursors", "buildInfo"))


class LossyProxy:
    """Forwards messages of the wire protocol. Command number ``fail_at`` meets ``fault``, on the way there or back.

    Commands named in ``uncounted`` are only forwarded, as are those that no operation makes.
    """

    def __init__(self, host: str, port: int, *, uncounted: frozenset[str] = frozenset()) -> None:
        self._server, self._uncounted = (host, port), uncounted | UNCOUNTED
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.commands: list[str] = []
        self.arm(-1)
        self._accepting = self._start(self._accept)

    def arm(self, fail_at: int, *, carried_out: bool = True, kill: int | None = None) -> None:
        """Count from 0 again: fail once, before the command reaches the server or after it was carried out there.

        The connection is closed, or the process ``kill`` is ended with SIGKILL first.
        """
        with self._lock:
            self.commands.clear()
            self.fail_at, self.carried_out, self.kill = fail_at, carried_out, kill

    def kill_at(self, request: int, act: Callable[[], object], *, carried_out: bool = True) -> bool:
        """Act in a child, and kill it at the request with this number; False when it was done before."""
        ready, go = os.pipe()
        child = start(lambda: (os.read(ready, 1), act()))
        self.arm(request, carried_out=carried_out, kill=child)
        os.write(go, b"!")
        try:
            return was_killed(child)
        finally:
            os.close(ready)
            os.close(go)
            self.arm(-1)

    @property
    def failed(self) -> bool:
        """True when the command was reached."""
        return 0 <= self.fail_at < len(self.commands)

    def interrupt(self) -> None:
        """Break every connection that is open now."""
        with self._lock:
            open_now, self._sockets = self._sockets, set()
        for each in open_now:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close every connection, and the place where clients connect."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(PATIENCE)  # then every connection is known
        self.interrupt()
        for thread in self._threads:
            thread.join(PATIENCE)

    def _start(self, do: Callable[..., None], *given: object) -> threading.Thread:
        thread = threading.Thread(target=do, args=given, daemon=True)
        thread.start()
        return thread

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._lock:
                    self._sockets.add(client)
                self._threads = [thread for thread in self._threads if thread.is_alive()]
                self._threads.append(self._start(self._serve, client))

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(self._server) as server:
            both = {client, server}
            for each in both:
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets.add(server)
            lost = threading.Event()
            back = self._start(self._pump, self._responses, client, server, lost)
            self._pump(self._requests, client, server, lost)
            back.join()
            with self._lock:
                self._sockets -= both

    def _pump(
        self,
        pump: Callable[[socket.socket, socket.socket, threading.Event], None],
        client: socket.socket,
        server: socket.socket,
        lost: threading.Event,
    ) -> None:
        with suppress(OSError):
            pump(client, server, lost)
        for each in (client, server):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _requests(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        while message := self.read_request(client):
            if self._is_the_one(message):
                if not self.carried_out:
                    self._fail()
                    return
                lost.set()
            server.sendall(message)

    def _responses(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        while message := self.read_response(server):
            if lost.is_set():
                self._fail()
                return
            client.sendall(message)

    def _is_the_one(self, message: bytes) -> bool:
        name = self.name_of(message)
        if name is None or name in self._uncounted:
            return False
        with self._lock:
            self.commands.append(name)
            return len(self.commands) - 1 == self.fail_at

    def read_request(self, client: socket.socket) -> bytes:
        """Return the next request; empty at the end."""
        return _message(client)

    def read_response(self, server: socket.socket) -> bytes:
        """Return the next answer, or a part of it; empty at the end."""
        return _message(server)

    def name_of(self, message: bytes) -> str | None:
        """Return the name of a request's command; None where nobody waits for an answer."""
        return None if struct.unpack_from("<I", message, 16)[0] & 2 else _command(message)

    def _fail(self) -> None:
        if self.kill is not None:
            os.kill(self.kill, signal.SIGKILL)


def _message(source: socket.socket) -> bytes:
    head = exactly(source, 16)
    return head and head + exactly(source, struct.unpack_from("<i", head)[0] - 16)


def exactly(source: socket.socket, size: int) -> bytes:
    """Read so many bytes; empty where the other side has ended before."""
    parts = []
    while size:
        part = source.recv(min(size, 1 << 20))
        if not part:
            return b""
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _command(message: bytes) -> str:
    """The name of the command: the first field of the first document of an OP_MSG."""
    if struct.unpack_from("<i", message, 12)[0] != 2013:
        return "hello"
    return message[26 : message.index(b"\0", 26)].decode()

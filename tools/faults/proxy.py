"""A TCP proxy in front of one node: connections through it can be cut, delayed, or lose what comes back."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

__all__ = ["Proxy"]

CHUNK = 1 << 16
PATIENCE = 10.0  # seconds until a thread has seen that its connection was shut down


class Proxy:
    """Listens on an address of its own and forwards to the node.

    ``delay`` seconds are added to every piece in each direction; while ``swallows`` is set, what the node answers is
    dropped and nobody is told; ``cut`` ends all connections, and while ``refuses`` is set new ones end at once.
    """

    def __init__(self, node: tuple[str, int], address: str) -> None:
        self._node = node
        self._listener = socket.create_server((address, 0), backlog=128)
        self.address: tuple[str, int] = self._listener.getsockname()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.delay = 0.0
        self.swallows = self.refuses = False
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def cut(self) -> None:
        """Reset every connection that is open."""
        with self._lock:
            victims, self._open = self._open, set()
        for each in victims:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        """Forward everything again; connections that have lost something are ended, as TCP would do in the end."""
        swallowed, self.swallows, self.refuses, self.delay = self.swallows, False, False, 0.0
        if swallowed:
            self.cut()

    def close(self) -> None:
        """Close every connection, and the place where clients connect."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(PATIENCE)  # then every connection is known
        self.cut()
        for thread in self._threads:
            thread.join(PATIENCE)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._lock:
                    self._open.add(client)
                    self._threads = [thread for thread in self._threads if thread.is_alive()]
                    self._threads.append(threading.Thread(target=self._serve, args=(client,), daemon=True))
                    self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            if not self.refuses:
                with socket.create_connection(self._node, timeout=5) as server:
                    self._forward(client, server)
        with self._lock:
            self._open.discard(client)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        server.settimeout(None)
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._open.add(server)
        back = threading.Thread(
            target=self._pump, args=(server, client), kwargs={"answers": True}, daemon=True
        )
        back.start()
        self._pump(client, server, answers=False)
        back.join()
        with self._lock:
            self._open.discard(server)

    def _pump(self, source: socket.socket, sink: socket.socket, *, answers: bool) -> None:
        with suppress(OSError):
            while piece := source.recv(CHUNK):
                if self.delay:
                    time.sleep(self.delay)
                if not (answers and self.swallows):
                    sink.sendall(piece)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

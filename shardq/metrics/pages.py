"""A small HTTP server for metrics and health. It reads nothing of a request but its path."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

import msgspec

from shardq.base.closing import Closing
from shardq.base.log import Log
from shardq.base.texts import shown
from shardq.core.settings import check_number
from shardq.errors import InvalidSetting

__all__ = ["Answer", "Page", "PageServer", "check_port", "metrics_page"]

_log = Log(__name__)

MOST_AT_ONCE = 32  # connections; others are closed at once
REQUEST_SECONDS = 10.0  # for a whole request of a slow client, and for writing the answer


class Answer(msgspec.Struct, frozen=True):
    """The answer of a page."""

    status: int
    body: bytes
    kind: str = "text/plain; charset=utf-8"


Page: TypeAlias = "Callable[[str, str], Answer]"
"""Called with the query and the header ``Accept``, in any thread."""


def check_port(name: str, port: object) -> None:
    """Raise InvalidSetting for what is not a port. With 0 the system chooses one."""
    check_number(name, port, 0, 65_535, whole=True)


class PageServer(Closing):
    """Serves pages by their paths, from threads of this process, until it is closed.

    It answers GET and HEAD, at most 32 connections at a time. Raises InvalidSetting when the address cannot be used.
    """

    def __init__(self, host: str, port: int, pages: Mapping[str, Page]) -> None:
        handler = type("Handler", (_Handler,), {"pages": dict(pages)})
        try:
            family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
                0
            ][0]
            server = type("Server", (_Server,), {"address_family": family})
            self._server = server((host, port), handler)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise InvalidSetting(
                f"address {shown(host)}, port {port} cannot be used ({why}): give an address of this machine, and a "
                "port that is free"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name=f"shardq-pages-{port}", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is served."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """End the server. Answers that are being written are broken off."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 2 * MOST_AT_ONCE

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._free = threading.BoundedSemaphore(MOST_AT_ONCE)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # One that sends a byte now and then would keep a connection for ever.
        end = threading.Timer(REQUEST_SECONDS, _break_off, (request,))
        end.daemon = True
        end.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Leave a client that is gone alone."""


def _break_off(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    pages: Mapping[str, Page]
    timeout = REQUEST_SECONDS
    server_version, sys_version = "shardq", ""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        page = self.pages.get(path)
        if page is None:
            there = " ".join(sorted(self.pages))
            answer = Answer(404, f"there is no such page: ask for one of {there}\n".encode())
        else:
            try:
                answer = page(query, self.headers.get("Accept", ""))
            except Exception:
                _log.exception("the page %s failed", path)
                answer = Answer(500, b"failed\n")
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_HEAD = do_GET  # noqa: N815 - so called by the library

    def log_message(self, *_: Any) -> None:
        """Log nothing: probes come every few seconds."""


def metrics_page(*collectors: Any) -> Page:
    """Return the page of some collectors. Raises InvalidSetting where ``prometheus_client`` is missing."""
    try:
        from prometheus_client import CollectorRegistry  # noqa: PLC0415 - an extra
        from prometheus_client.exposition import choose_encoder  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise InvalidSetting(f"metrics need {error.name}: pip install 'shardq[metrics]'") from error
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)

    def page(_query: str, accept: str) -> Answer:
        encode, kind = choose_encoder(accept)
        return Answer(200, encode(registry), kind)

    return page

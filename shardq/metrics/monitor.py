"""The health of a pool: whether its loop runs, and whether the store answers. For probes, systemd, and a file."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from shardq.base.texts import masked
from shardq.client import Client, connect
from shardq.errors import InvalidSetting, ShardqError
from shardq.metrics.measures import Measures
from shardq.metrics.pages import Answer, Page, PageServer, check_port, metrics_page

__all__ = ["Monitor", "MonitorOptions"]

LIVE_SECONDS = 30.0  # without a turn of the loop; a turn takes a quarter of a second
PING_SECONDS = 2.0  # for the store to answer
ASKED_SECONDS = 1.0  # for which its answer holds: many may ask
BEAT_SECONDS = 1.0  # between two touches of the file, and two messages to systemd


class MonitorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the health and the metrics of a pool are shown. Raises InvalidSetting.

    Ports are those of ``host``, which only this machine reaches unless it is another one. With the same port for both,
    one server shows both.
    """

    metrics_port: int | None = None
    health_port: int | None = None
    host: str = "127.0.0.1"
    heartbeat_file: str | None = None

    def __post_init__(self) -> None:
        for name in ("metrics_port", "health_port"):
            if (port := getattr(self, name)) is not None:
                check_port(name, port)


class PoolState(msgspec.Struct, frozen=True):
    """The state of a pool in a turn of its loop."""

    processes: int
    restarts: int
    in_flight: int
    stopping: bool


class Monitor:
    """Shows the health of a pool while a ``with`` block runs, in which :meth:`beat` is called in each turn of its loop.

    ``/livez`` answers 200 while the loop runs, and never asks the store: who restarts on it restarts nothing because
    a store is unreachable. ``/readyz`` answers 200 when the store answers within 2 seconds, too. Otherwise they answer
    503. With ``?verbose`` they say why. systemd is notified where it has asked for that (``Type=notify``, and its
    watchdog).
    """

    def __init__(self, url: str, options: MonitorOptions) -> None:
        self._url, self._options = url, options
        self.measures: Callable[[], Measures] = Measures
        """Returns what the processes of the pool have measured. Set it when there is a pool."""
        self._started_at = time.monotonic()
        self._beat_at = self._notified_at = -1e9
        self._state: PoolState | None = None
        self._servers: list[PageServer] = []
        self._client: Client | None = None
        self._asking = threading.Lock()
        self._asked_at, self._failure = -1e9, ""

    def __enter__(self) -> Self:
        try:
            for port, pages in self._pages().items():
                self._servers.append(PageServer(self._options.host, port, pages))
            if (file := self._options.heartbeat_file) is not None:
                try:
                    self._touch()
                except OSError as error:
                    raise InvalidSetting(
                        f"heartbeat_file={file!r} cannot be written ({error.strerror}): give another path"
                    ) from error
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _notify("STOPPING=1")
        self._close()

    def beat(self, state: PoolState) -> None:
        """Note that the loop runs."""
        first = self._state is None
        self._state, now = state, time.monotonic()
        self._beat_at = now
        if first:
            _notify("READY=1")
        if now - self._notified_at >= BEAT_SECONDS:
            self._notified_at = now
            _notify("WATCHDOG=1")
            if self._options.heartbeat_file is not None:
                with suppress(OSError):  # a full disk ends no worker: whoever reads the file sees its age
                    self._touch()

    @property
    def ports(self) -> list[int]:
        """The ports that are served."""
        return [server.port for server in self._servers]

    def collect(self) -> Iterator[Any]:
        """Yield the metrics of the pool, those of its processes added up."""
        from shardq.metrics.families import counter, families, gauge  # noqa: PLC0415 - needs prometheus_client

        yield from families(self.measures())
        state = self._state or PoolState(0, 0, 0, stopping=False)
        yield gauge("worker_processes", "Processes of the pool.", (), {(): state.processes})
        yield gauge("worker_messages_held", "Messages that the processes hold.", (), {(): state.in_flight})
        yield counter("worker_restarts", "Processes that died and were replaced.", state.restarts)

    def live(self) -> str:
        """Return why the loop does not run; "" when it does."""
        silent = time.monotonic() - max(self._beat_at, self._started_at)
        return (
            "" if silent <= LIVE_SECONDS else f"the loop of the pool has not turned for {silent:.0f} seconds"
        )

    def ready(self) -> str:
        """Return why no message is worked; "" when the loop runs and the store answers."""
        if why := self.live():
            return why
        if self._state is None:
            return "no process was started yet"
        if self._state.stopping:
            return "the pool is ending"
        with self._asking:
            if time.monotonic() - self._asked_at > ASKED_SECONDS:
                self._failure = self._ask()
                self._asked_at = time.monotonic()
            return self._failure

    def _ask(self) -> str:
        try:
            if self._client is None:
                self._client = connect(self._url, retry_seconds=0.0)
            self._client.ping(timeout=PING_SECONDS)
        except ShardqError as error:
            return masked(str(error))
        return ""

    def _pages(self) -> Mapping[int, Mapping[str, Page]]:
        pages: dict[int, dict[str, Page]] = {}
        if self._options.metrics_port is not None:
            pages.setdefault(self._options.metrics_port, {})["/metrics"] = metrics_page(self)
        if self._options.health_port is not None:
            own = pages.setdefault(self._options.health_port, {})
            own["/livez"], own["/readyz"] = _health(self.live), _health(self.ready)
        return pages

    def _touch(self) -> None:
        Path(str(self._options.heartbeat_file)).write_text(_own_beat())

    def _close(self) -> None:
        for server in self._servers:
            server.close()
        if self._client is not None:
            self._client.close()
        if self._options.heartbeat_file is not None:
            file = Path(self._options.heartbeat_file)
            with suppress(OSError, UnicodeDecodeError):
                if (
                    file.read_text() == _own_beat()
                ):  # else it is that of a pool that has taken over, or runs beside
                    file.unlink()


def _health(why_not: Callable[[], str]) -> Page:
    def page(query: str, _accept: str) -> Answer:
        failure = why_not()
        text = (failure or "ok") if "verbose" in query.split("&") else "failed" if failure else "ok"
        return Answer(503 if failure else 200, f"{text}\n".encode())

    return page


def _own_beat() -> str:
    return f"{os.getpid()}\n"


def _notify(text: str) -> None:
    """Send a message to systemd, if it has started this process as ``Type=notify``."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(text.encode(), f"\0{address[1:]}" if address.startswith("@") else address)

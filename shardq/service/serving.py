"""Running the service with uvicorn, in one process or several."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import secrets
import signal
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from ipaddress import ip_address
from logging.handlers import WatchedFileHandler
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import h11
import msgspec
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors import Multiprocess

from shardq.core.settings import check_number
from shardq.errors import InvalidSetting
from shardq.service.application import Service, ServiceOptions
from shardq.service.keys import KeyFile
from shardq.service.security import LOOPBACK

__all__ = ["Connection", "ServePlan", "serve"]

_PLAN = "SHARDQ_SERVICE_PLAN"
"""The variable of the environment by which processes are given what they serve."""

END_SECONDS = 10
HEAD_SECONDS = 30.0
"""For a client to send the head of a request."""

READ_SECONDS = 30.0
"""For a client to take some of an answer."""

MOST_PROCESSES = 64
_WAITING = 2_048  # connections that are not accepted yet


class ServePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A service, its address and its processes. ``mask`` and ``doctor`` are ``module:function``.

    ``prefix`` is the path that a proxy in front removes.
    """

    url: str
    host: str = "127.0.0.1"
    port: int = 8765
    processes: int = 1
    prefix: str = ""
    mask: str | None = None
    doctor: str | None = None
    audit_log: str | None = None
    certificate: str | None = None
    key: str | None = None
    insecure: bool = False
    allow_hosts: tuple[str, ...] = ()
    options: ServiceOptions = ServiceOptions()

    def check(self) -> None:
        """Raise InvalidSetting for a plan that is not safe, or cannot be carried out."""
        check_number("processes", self.processes, 1, MOST_PROCESSES, whole=True)
        check_number("port", self.port, 0, 65_535, whole=True)
        if self.options.keys is None and not self.insecure:
            remedy = "create one with `shardq keys create NAME`, or give --insecure to let each request do everything"
            if not _is_local(self.host):
                raise InvalidSetting(
                    f"host={self.host!r} is reached from other machines, and there are no keys: {remedy}"
                )
            if names := [name for name in self.allow_hosts if name not in LOOPBACK]:
                raise InvalidSetting(
                    f"allow_host={names[0]!r} is reached from other machines through a proxy, and there are no keys: "
                    f"{remedy}"
                )
        if self.options.keys is not None and not KeyFile(self.options.keys).keys():
            lack = "has no key" if Path(self.options.keys).exists() else "does not exist"
            raise InvalidSetting(
                f"keys={self.options.keys!r} {lack}: create a key with "
                f"`shardq keys create NAME --role manage --keys {self.options.keys}`"
            )
        if self.prefix and (not self.prefix.startswith("/") or self.prefix.endswith("/")):
            raise InvalidSetting(
                f"prefix={self.prefix!r}: give a path such as /queues, without a slash at its end"
            )
        self._check_files()
        _imported("mask", self.mask)

    def _check_files(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise InvalidSetting("certificate, private_key: give both, or none to serve HTTP")
        if self.certificate is not None:
            try:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(self.certificate, self.key, password="")
            except OSError as error:  # ssl.SSLError is one
                raise InvalidSetting(
                    f"certificate={self.certificate!r}, private_key={self.key!r} cannot be used: "
                    f"{error.strerror or error}; give readable PEM files of one pair, without a password"
                ) from error
        if self.audit_log is not None:
            try:
                Path(self.audit_log).open("a").close()
            except OSError as error:
                raise InvalidSetting(
                    f"audit_log={self.audit_log!r} cannot be written: {error.strerror}; give another path"
                ) from error

    @property
    def answering(self) -> ServiceOptions:
        """The options of the service, with all names by which it is reached."""
        hosts = {*self.options.hosts, *self.allow_hosts, *LOOPBACK, self.host, socket.gethostname()}
        return msgspec.structs.replace(self.options, hosts=tuple(sorted(hosts)))


def _is_local(host: str) -> bool:
    """Return whether only this machine reaches an address. A name such as ``127.example.com`` may lead anywhere."""
    try:
        return host in LOOPBACK or ip_address(host).is_loopback
    except ValueError:
        return False


def serve(plan: ServePlan, *, on_start: Callable[[str], None] = lambda _: None) -> None:
    """Serve until SIGTERM or SIGINT; then answer what has begun, for 10 seconds at most. Raises InvalidSetting.

    ``on_start`` is called with the URL when the socket is bound.
    """
    plan.check()
    if plan.options.secret is None:
        secret = os.environ.get("SHARDQ_SERVICE_SECRET") or secrets.token_hex(32)
        plan = msgspec.structs.replace(plan, options=msgspec.structs.replace(plan.options, secret=secret))
    os.environ[_PLAN] = msgspec.json.encode(plan).decode()
    config = uvicorn.Config(
        f"{__name__}:planned",
        factory=True,
        http=Connection,
        host=plan.host,
        port=plan.port,
        workers=plan.processes,
        root_path=plan.prefix,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=END_SECONDS,
        h11_max_incomplete_event_size=32_768,
        ssl_certfile=plan.certificate,
        ssl_keyfile=plan.key,
        ws="none",
    )
    bound = _bound(plan)
    with bound:
        host = f"[{plan.host}]" if ":" in plan.host else plan.host
        scheme = "http" if plan.certificate is None else "https"
        on_start(f"{scheme}://{host}:{bound.getsockname()[1]}{plan.prefix}/")
        signal.signal(
            signal.SIGTERM, lambda *_: None
        )  # which the server replaces, and raises again at its end
        with suppress(KeyboardInterrupt):
            if plan.processes == 1:
                uvicorn.Server(config).run(sockets=[bound])
            else:
                Multiprocess(config, sockets=[bound]).run()


def _bound(plan: ServePlan) -> socket.socket:
    family = socket.AF_INET6 if ":" in plan.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((plan.host, plan.port))
        bound.listen(_WAITING)  # so that a client that gets the URL need not try again
    except OSError as error:
        bound.close()
        raise InvalidSetting(
            f"host={plan.host!r}, port={plan.port}: {error.strerror or error}; choose another with --port"
        ) from error
    bound.set_inheritable(True)
    return bound


class Connection(H11Protocol):
    """A connection that is closed when a client does not send the head of a request in time, or takes no answer.

    The server itself waits for ever: for the first head, for one that has begun, and for a client that does not read.
    """

    _end: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first head."""
        super().connection_made(transport)
        self._bound_the_wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        super().connection_lost(exc)
        for timer in (self._end, self._unread):
            if timer is not None:
                timer.cancel()

    def handle_events(self) -> None:
        """Handle what was received. It is also called when a request was answered."""
        super().handle_events()
        self._bound_the_wait()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not a request. After an answer whose request then goes wrong, nothing can be sent."""
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            self.transport.close()

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._expect_less(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Wait no longer: the client has read."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def _expect_less(self, unread: int) -> None:
        """End the connection if none of the bytes that are unread is taken in time."""

        def check() -> None:
            left = self.transport.get_write_buffer_size()
            if left < unread:
                self._expect_less(left)
            else:
                self.transport.abort()

        self._unread = self.loop.call_later(READ_SECONDS, check)

    def _bound_the_wait(self) -> None:
        waits = self.cycle is None or self.cycle.response_complete
        if waits and self._end is None:
            self._end = self.loop.call_later(HEAD_SECONDS, self.transport.abort)
        elif not waits and self._end is not None:
            self._end.cancel()
            self._end = None


class _Served(Service):
    """A service whose streams of events end with the signal that ends its process, so that they do not hold it up."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or the events of the lifespan."""
        if scope["type"] == "lifespan":
            for number in (signal.SIGTERM, signal.SIGINT):
                self._stop_at(number)
        await super().__call__(scope, receive, send)

    def _stop_at(self, number: signal.Signals) -> None:
        before: Any = signal.getsignal(number)

        def stop(*given: Any) -> None:
            self.stop()
            if callable(before):
                before(*given)

        signal.signal(number, stop)


def planned() -> Service:
    """Return the application that the environment describes, in each process."""
    plan = msgspec.json.decode(os.environ[_PLAN], type=ServePlan)
    _write_logs(plan.audit_log)
    if (parent := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_end_with, args=(parent,), name="shardq-parent", daemon=True).start()
    return _Served(
        plan.url, plan.answering, mask=_imported("mask", plan.mask), doctor=_imported("doctor", plan.doctor)
    )


def _end_with(parent: BaseProcess) -> None:
    """End this process when its parent is killed: nothing else would, and it would hold the port."""
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _write_logs(audit_log: str | None) -> None:
    """Write the audit log to its file, or to stderr, and warnings to stderr."""
    audit = logging.getLogger("shardq.service.audit")
    handler: logging.Handler = logging.StreamHandler()
    if audit_log is not None:
        handler = WatchedFileHandler(audit_log, encoding="utf-8")  # which may be rotated
    handler.setFormatter(logging.Formatter("%(message)s"))
    audit.handlers[:] = [handler]
    audit.setLevel(logging.INFO)
    audit.propagate = False


def _imported(option: str, named: str | None) -> Any:
    if named is None:
        return None
    module, _, attribute = named.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidSetting(
            f"{option}={named!r} cannot be imported: {error}; give package.module:function"
        ) from error
    if not callable(found):
        raise InvalidSetting(f"{option}={named!r} is not a function: give package.module:function")
    return found

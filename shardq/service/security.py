"""Checks of each request before it is read, and the headers of each answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shardq.service.problems import Refused, problem_of

__all__ = ["HEALTH", "LOOPBACK", "SecurityMiddleware"]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
HEALTH = frozenset(("/livez", "/readyz"))
"""Paths that disclose nothing: probes reach them by any address."""

MOST_BYTES = 2 * 1024 * 1024
"""Of a request's body: a message of a mebibyte as base64, and more."""

BODY_SECONDS = 30.0
"""For a client to send it, from the head of the request on."""

MOST_QUERY_BYTES = 8_192
_SAFE = {"GET", "HEAD"}
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")

_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class SecurityMiddleware:
    """Refuses requests for other hosts, from other sites, of too many bytes, and slow ones; an ASGI application.

    The check of the host keeps a page of another site from reaching a service on this machine by a name that it points
    to 127.0.0.1. ``hosts`` are names without ports; ``*`` allows all. Health checks come by any address.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app, self._hosts = app, frozenset(host.strip("[]").lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request and pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        left, started, whole = MOST_BYTES, False, False
        until = asyncio.get_running_loop().time() + BODY_SECONDS

        async def counted() -> Message:
            nonlocal left, whole
            try:
                async with asyncio.timeout_at(None if whole else until):
                    message = await receive()
            except TimeoutError as error:
                text = f"the body was not sent within {BODY_SECONDS:g} seconds"
                raise Refused(408, "request_timeout", text) from error
            if message["type"] == "http.disconnect" and not whole:
                raise Refused(400, "disconnected", "the client went away before it had sent the whole body")
            whole = not message.get("more_body", False)
            left -= len(message.get("body", b""))
            if left < 0:
                raise _too_large()
            return message

        async def guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = list(message.get("headers", ()))
                given = {name for name, _ in headers}
                headers += [header for header in _HEADERS if header[0] not in given]
                if b"cache-control" not in given:
                    headers.append((b"cache-control", b"no-store"))
                message["headers"] = headers
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, counted, guarded)
        except Refused as refused:
            if not started:
                await _refuse(refused, guarded)

    def _check(self, scope: Scope) -> None:
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in headers and name in {b"host", b"origin", b"content-length", b"authorization"}:
                raise Refused(400, "repeated_header", f"{name.decode('latin-1')}: give this header once")
            headers[name] = value
        host = headers.get(b"host", b"").decode("latin-1")
        if scope["path"].removeprefix(scope.get("root_path", "")) not in HEALTH:
            self._check_host(host)
        if len(scope["query_string"]) > MOST_QUERY_BYTES:
            raise Refused(413, "query_too_large", f"the query has more than {MOST_QUERY_BYTES:,} bytes")
        if b"content-length" in headers and b"transfer-encoding" in headers:  # a proxy may read the other one
            raise Refused(400, "two_lengths", "Content-Length, Transfer-Encoding: give one of them")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit():
            raise Refused(400, "invalid_length", "Content-Length: give a number of bytes")
        if int(length[:20]) > MOST_BYTES:
            raise _too_large()
        _check_site(scope, headers, host)

    def _check_host(self, host: str) -> None:
        match = _HOST.fullmatch(host)
        if match is None or not ("*" in self._hosts or match[1].strip("[]").lower() in self._hosts):
            raise Refused(
                421,
                "host_not_allowed",
                "this service does not answer for this host: allow it with --allow-host NAME",
            )


def _check_site(scope: Scope, headers: dict[bytes, bytes], host: str) -> None:
    """Refuse what a page of another site has caused, but for a link to a page."""
    site = headers.get(b"sec-fetch-site", b"none")
    navigates = scope["method"] in _SAFE and headers.get(b"sec-fetch-mode") == b"navigate"
    is_page = navigates and headers.get(b"sec-fetch-dest", b"document") == b"document"
    if site not in (b"same-origin", b"none") and not is_page:
        raise Refused(403, "foreign_site", "this request comes from a page of another site")
    origin = headers.get(b"origin")
    if origin is not None and _netloc(origin) != host.lower():
        raise Refused(403, "foreign_origin", "this request comes from a page of another origin")


def _netloc(origin: bytes) -> str | None:
    try:
        parts = urlsplit(origin.decode("latin-1"))
    except ValueError:
        return None
    return parts.netloc.lower() if parts.scheme in {"http", "https"} else None


def _too_large() -> Refused:
    return Refused(413, "body_too_large", f"the body has more than {MOST_BYTES:,} bytes")


async def _refuse(refused: Refused, send: Send) -> None:
    body = msgspec.json.encode(problem_of(refused))
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

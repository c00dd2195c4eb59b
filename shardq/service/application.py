"""The service as an ASGI application, which other applications can mount under a prefix."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from shardq.base.log import Log
from shardq.base.texts import masked
from shardq.core.settings import check_number
from shardq.errors import ShardqError
from shardq.service.endpoints import ENDPOINTS, Endpoint, description
from shardq.service.keys import Grant, KeyFile
from shardq.service.parameters import fields_of, read_fields
from shardq.service.problems import Problem, Refused, problem_of
from shardq.service.security import HEALTH, LOOPBACK, SecurityMiddleware
from shardq.service.sessions import Identity, RateLimits, Sessions
from shardq.service.store_access import Doctor, Mask, StoreAccess, StoreReads
from shardq.service.views import Changed

__all__ = ["API", "Service", "ServiceOptions"]

API = "/api/v1"
READY_SECONDS = 2.0
MOST_NAMED, MOST_ASKED = 300, 1_000
"""Characters that the audit log has of the name and of the parameters of a refused action."""

_log = Log("shardq.service")
_audit = Log("shardq.service.audit")


class ServiceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a service. ``keys`` is the path of a file with keys; None lets each request do everything.

    ``hosts`` are the names by which it is reached, without ports. ``secret`` signs sessions: give the same one to all
    processes; None makes one that ends with the process. With ``read_only`` nothing can be changed by anybody. A key
    may make ``rate_limit`` requests a second in each process; others get status 429. Raises InvalidSetting.
    """

    keys: str | None = None
    hosts: tuple[str, ...] = LOOPBACK
    read_only: bool = False
    ui: bool = False
    secret: str | None = None
    rate_limit: float | None = 200.0

    def __post_init__(self) -> None:
        if self.rate_limit is not None:
            check_number("rate_limit", self.rate_limit, 0.01, 1e6)


class Service:
    """The JSON API, and the dashboard with ``ui``, on the store of a URL. An ASGI application; it keeps no state.

    The store is first used by a request, in the event loop of that, so an application that mounts it need not start it.
    Await :meth:`close` at the end, unless the server sends the events of the lifespan. ``mask`` is called with the name
    of a queue and a body in bytes, and returns what is shown of it, in bytes, text or plain values. None hides it, an
    error too.

    >>> from starlette.testclient import TestClient
    >>> client = shardq.connect(url)
    >>> queue = client.create_queue("orders")
    >>> with TestClient(shardq.service.Service(url), base_url="http://localhost") as web:
    ...     web.get("/api/v1/queues/orders").json()["queue"]["ready"]
    0
    """

    def __init__(
        self,
        url: str,
        options: ServiceOptions | None = None,
        *,
        mask: Mask | None = None,
        doctor: Doctor | None = None,
    ) -> None:
        self.options = options or ServiceOptions()
        self.sessions = Sessions(
            self.options.secret or secrets.token_hex(32),
            None if self.options.keys is None else KeyFile(self.options.keys),
            None if self.options.rate_limit is None else RateLimits(self.options.rate_limit),
        )
        self._url, self._mask, self._doctor = url, mask, doctor
        self._store: StoreReads | None = None
        self._stopped = False
        self._readers: dict[type, msgspec.json.Decoder[Any]] = {
            endpoint.given: msgspec.json.Decoder(endpoint.given) for endpoint in ENDPOINTS
        }
        handlers: dict[Any, Any] = {
            Refused: self._explain,
            ShardqError: self._explain,
            404: self._missing,
            405: self._missing,
        }
        self._app = SecurityMiddleware(
            Starlette(routes=self._routes(), exception_handlers=handlers), self.options.hosts
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or the events of the lifespan."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            with suppress(ClientDisconnect):
                await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    @property
    def store(self) -> StoreReads:
        """The store, which the first use opens."""
        if self._store is None:
            self._store = StoreReads(self._url)
        return self._store

    @property
    def kind(self) -> str:
        """The kind of the store, as its URL begins."""
        return self._url.partition(":")[0]

    @property
    def has_doctor(self) -> bool:
        """True when queues can be checked."""
        return self._doctor is not None

    @property
    def read_only(self) -> bool:
        """True when nothing can be changed by anybody."""
        return self.options.read_only

    def stop(self) -> None:
        """End the streams of events, so that a server can shut down. Requests that it then cancels get status 503."""
        self._stopped = True
        if self._store is not None:
            self._store.ticks.stop()

    async def close(self) -> None:
        """Close the connections to the store."""
        if self._store is not None:
            store, self._store = self._store, None
            await store.close()

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            event = (await receive())["type"]
            if event == "lifespan.shutdown":
                await self.close()
            await send({"type": f"{event}.complete"})
            if event == "lifespan.shutdown":
                return

    # -- calls of endpoints -------------------------------------------------------------------------------------

    def access(self, identity: Identity) -> StoreAccess:
        """Return what a call of an endpoint works with."""
        return StoreAccess(self.store, identity.grant, self.options.read_only, self._mask, self._doctor)

    async def perform(self, endpoint: Endpoint, access: StoreAccess, name: str, given: Any) -> Any:
        """Call an endpoint if the key allows it. An action is logged, whatever became of it."""
        with self.noting_refusal(access.grant, endpoint, name, given):
            access.check(endpoint.role, endpoint.queue_of(name))
        with self._ending():
            if not endpoint.is_action:
                return await endpoint.call(access, name, given)
            return await self._act(endpoint, access, name, given)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Refuse a request that its server cancels as the service ends: else it has an answer of status 500."""
        try:
            yield
        except asyncio.CancelledError:
            if not self._stopped:
                raise
            text = "the service ends, and the request may be carried out in part or later: see, and repeat it"
            raise Refused(503, "service_ended", text) from None

    async def _act(self, endpoint: Endpoint, access: StoreAccess, name: str, given: Any) -> Any:
        outcome, answer = "failed", None
        try:
            answer = await endpoint.call(access, name, given)
            outcome = "done"
        except ShardqError as error:
            outcome = error.code
            raise
        except asyncio.CancelledError:  # the service ends; the request to the store may still be carried out
            outcome = "interrupted"
            raise
        else:
            return answer
        finally:
            access.store.forget()
            changed = answer.changed if isinstance(answer, Changed) else access.tally.changed or None
            numbers = {} if changed is None else {"changed": changed}
            self.note(access.grant.name, endpoint.name, outcome, on=name, given=_plain(given), **numbers)

    @contextmanager
    def noting_refusal(
        self, grant: Grant, endpoint: Endpoint, name: str, given: Any = None
    ) -> Iterator[None]:
        """Log an action that the block refuses before its call. Long parameters are left out."""
        try:
            yield
        except (Refused, ShardqError) as refused:
            if endpoint.is_action:
                asked = {} if given is None else _plain(given)
                if len(json.dumps(asked)) > MOST_ASKED:
                    asked = {}
                self.note(grant.name, endpoint.name, refused.code, on=name[:MOST_NAMED], given=asked)
            raise

    def note(self, key: str, action: str, outcome: str, **details: Any) -> None:
        """Log an action, or a login: whose key it was, and what became of it."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        entry = {"at": at, "key": key, "action": action, **details, "outcome": outcome}
        _audit.info("%s", json.dumps(entry, ensure_ascii=True))

    def _routes(self) -> list[Route | Mount]:
        routes: list[Route | Mount] = [
            Route("/livez", self._livez),
            Route("/readyz", self._readyz),
            Route(f"{API}/openapi.json", self._description),
        ]
        by_path: dict[str, dict[str, Endpoint]] = {}
        for endpoint in ENDPOINTS:
            path = API + endpoint.path.replace("}", ":path}")
            by_path.setdefault(path, {})[endpoint.method] = endpoint
        routes += [  # one for all methods, so that an answer of status 405 names all of them
            Route(path, self._answering(endpoints), methods=list(endpoints))
            for path, endpoints in by_path.items()
        ]
        if self.options.ui:
            from shardq.service.pages import page_routes  # noqa: PLC0415 - the API needs no templates

            routes += page_routes(self)
        return routes

    def _answering(self, endpoints: Mapping[str, Endpoint]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            endpoint = endpoints["GET" if request.method == "HEAD" else request.method]
            identity = self.sessions.identify(request)
            name = next(iter(request.path_params.values()), "")
            with self.noting_refusal(identity.grant, endpoint, name):
                if endpoint.is_action and self.sessions.keys is not None:
                    self.sessions.check_csrf(identity, request.headers.get("x-csrf-token"))
                given = await self._given(endpoint, request)
            found = await self.perform(endpoint, self.access(identity), name, given)
            return Response(msgspec.json.encode(found), media_type="application/json")

        return answer

    async def _given(self, endpoint: Endpoint, request: Request) -> Any:
        try:
            if endpoint.in_query:
                return read_fields(endpoint.given, fields_of(request.scope["query_string"]))
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                raise Refused(415, "content_type", "Content-Type: give application/json")
            return self._readers[endpoint.given].decode(await request.body())
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(400, "invalid_parameters", str(error) or "the JSON is nested too deeply") from error

    # -- health -------------------------------------------------------------------------------------------------

    async def _livez(self, _request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _readyz(self, _request: Request) -> Response:
        store, why = self.store, "the store is unreachable"
        try:
            async with asyncio.timeout(READY_SECONDS + 0.5):  # its threads may all wait for the store
                await store.shared.read("ping", partial(store.client.ping, timeout=READY_SECONDS))
                fault = await store.file_fault()
        except (ShardqError, TimeoutError) as error:
            _log.warning("the store is not ready: %s", masked(str(error)) or "it did not answer in time")
            if isinstance(error, ShardqError) and not error.retryable:
                why = "the store cannot be read: the log of the service says why"
        else:
            if not fault:
                return PlainTextResponse("ok\n")
            why = f"the file of the store {fault}"
            _log.warning("the store is not ready: %s", why)
        return PlainTextResponse(f"{why}\n", 503)

    async def _description(self, request: Request) -> Response:
        server = f"{request.scope.get('root_path', '')}{API}"
        return JSONResponse(description(server, has_keys=self.sessions.keys is not None))

    # -- errors -------------------------------------------------------------------------------------------------

    async def _explain(self, request: Request, error: Exception) -> Response:
        problem = problem_of(error)
        assert problem is not None
        return self.explained(request, problem)

    def explained(self, request: Request, problem: Problem) -> Response:
        """Return a problem as an answer: as a page to a browser, else as JSON."""
        if self.options.ui and not is_api(request):
            from shardq.service.pages import problem_page  # noqa: PLC0415 - as above

            response = problem_page(self, request, problem)
        else:
            headers = {"www-authenticate": "Bearer"} if problem.status == 401 else None
            body = msgspec.json.encode(problem)
            response = Response(body, problem.status, headers, "application/problem+json")
        if problem.retry_after is not None:
            response.headers["retry-after"] = str(problem.retry_after)
        return response

    async def _missing(self, request: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 404)
        code = "method_not_allowed" if status == 405 else "not_found"
        response = await self._explain(
            request, Refused(status, code, f"{API}/openapi.json lists what there is")
        )
        if status == 405:  # files name no methods
            response.headers["allow"] = (getattr(error, "headers", None) or {}).get("Allow", "GET, HEAD")
        return response


def is_api(request: Request) -> bool:
    """Return whether a request is of a program: for the API or a health check."""
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    return path.startswith("/api/") or path in HEALTH


_SECRET_FIELDS = {"body", "headers"}


def _plain(given: Any) -> dict[str, Any]:
    """Return what an action was given as the log has it: without bodies and headers."""
    fields = msgspec.to_builtins(given).items()
    return {
        field: value for field, value in fields if field not in _SECRET_FIELDS and value not in (None, "", {})
    }

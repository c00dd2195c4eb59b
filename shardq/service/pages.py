"""The pages of the dashboard: each shows what an endpoint answers, and its forms call endpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlencode

from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from shardq.errors import ShardqError
from shardq.service.endpoints import ACTIONS, Endpoint
from shardq.service.forms import COOKIE as FLASH_COOKIE
from shardq.service.forms import FlashMessage, back_to, flash_message_in, form_given, report_of
from shardq.service.keys import Grant
from shardq.service.page_contents import PAGES, Content, Page
from shardq.service.parameters import fields_of, read_fields
from shardq.service.problems import Problem, Refused, problem_of
from shardq.service.rendering import digests, made_templates
from shardq.service.sessions import Identity, Sessions
from shardq.service.sharing import PageReads
from shardq.service.store_access import StoreAccess, StoreReads

__all__ = ["page_routes", "problem_page"]

NAVIGATION = (
    ("/", "Overview", "o"),
    ("/queues", "Queues", "q"),
    ("/dead-letters", "Dead letters", "d"),
    ("/consumers", "Consumers", "c"),
    ("/tasks", "Workers and tasks", "t"),
    ("/workflows", "Workflows", "w"),
    ("/schedules", "Schedules", "s"),
    ("/topics", "Topics", "p"),
    ("/limits", "Limits", "l"),
    ("/system", "System", "y"),
)
"""The path, the title and the key of each page that the navigation names."""

_templates = made_templates()


class PageBackend(Protocol):
    """The service behind the pages."""

    sessions: Sessions

    @property
    def store(self) -> StoreReads:
        """The store."""

    @property
    def kind(self) -> str:
        """The kind of the store."""

    @property
    def has_doctor(self) -> bool:
        """True when queues can be checked."""

    @property
    def read_only(self) -> bool:
        """True when nothing can be changed."""

    def access(self, identity: Identity) -> StoreAccess:
        """Return what a call of an endpoint works with."""

    def note(self, key: str, action: str, outcome: str) -> None:
        """Log an action, or a login."""

    def noting_refusal(self, grant: Grant, endpoint: Endpoint, name: str) -> AbstractContextManager[None]:
        """Log an action that the block refuses before its call."""

    async def perform(self, endpoint: Endpoint, access: StoreAccess, name: str, given: Any) -> Any:
        """Call an endpoint."""


def page_routes(service: PageBackend) -> list[Route | Mount]:
    """Return the routes of the pages, their events, forms and files."""
    routes: list[Route | Mount] = [Route(page.path, _showing(service, page)) for page in PAGES]
    return [
        *routes,
        Route("/events", _events(service)),
        Route("/login", _login(service), methods=["GET", "POST"]),
        Route("/logout", _logout(service), methods=["POST"]),
        Route("/do/{action}", _doing(service), methods=["POST"]),
        Route("/do/{action}/{name:path}", _doing(service), methods=["POST"]),
        Mount("/static", GZipMiddleware(_Files(packages=[("shardq.service", "static")]))),
    ]


class _Files(StaticFiles):
    """Scripts and styles. A browser keeps those of this version, for which a page asks by their digests."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        known = scope["query_string"].decode("latin-1") == digests().get(path)
        response.headers["cache-control"] = "max-age=31536000, immutable" if known else "no-cache"
        return response


Answer = Callable[[Request], Awaitable[Response]]


def _showing(service: PageBackend, page: Page) -> Answer:
    async def show(request: Request) -> Response:
        try:
            identity = service.sessions.identify(request)
        except Refused as refused:
            if refused.status == 401:
                return back_to(request, f"{_root(request)}/login?{urlencode({'next': _here(request)})}")
            raise
        fields = [(name, value) for name, value in fields_of(request.scope["query_string"]) if value]
        given = read_fields(page.given, fields)
        access, name = service.access(identity), next(iter(request.path_params.values()), "")

        async def ask(call: Any, queue: str = "", given: Any = None) -> Any:
            endpoint = page.endpoint(call)
            wanted = endpoint.given() if given is None else given
            return await service.perform(endpoint, access, queue, wanted)

        with PageReads() as reads:
            content = await page.load(ask, name, given)
        content = Content(took=reads.seconds) | content
        content |= {
            "name": name,
            "given": given,
            "fields": _fields(given),
            "may": access.may,
            "title": page.title,
        }
        return _page(service, request, page.template, content, identity)

    return show


def _fields(given: Any) -> Mapping[str, Any]:
    """Return the parameters that differ from their defaults, so that links keep them."""
    plain = type(given)()
    return {
        name: value
        for name in given.__struct_fields__
        if (value := getattr(given, name)) != getattr(plain, name)
    }


def _page(
    service: PageBackend,
    request: Request,
    template: str,
    content: Mapping[str, Any],
    identity: Identity | None,
    status: int = 200,
) -> Response:
    flash = flash_message_in(request.cookies)
    text = _templates.get_template(f"{template}.html").render(
        root=_root(request),
        here=_here(request),
        path=request.url.path.removeprefix(_root(request)),
        csrf=None if identity is None else identity.csrf,
        grant=None if identity is None else identity.grant,
        has_keys=service.sessions.keys is not None,
        read_only=service.read_only,
        has_doctor=service.has_doctor,
        store=service.kind,
        navigation=NAVIGATION,
        flash=flash,
        now=datetime.now(UTC),
        **content,
    )
    response = HTMLResponse(text, status)
    if flash is not None and "hx-request" not in request.headers:
        response.delete_cookie(FLASH_COOKIE, path=_root(request) or "/")
    return response


def problem_page(service: PageBackend, request: Request, problem: Problem) -> Response:
    """Return a page that says what went wrong. It is read again as others are, so it ends when the problem does."""
    try:
        identity = service.sessions.identify(request)
    except Refused:
        identity = None
    content = {"problem": problem, "title": problem.title}
    return _page(service, request, "problem", content, identity, problem.status)


def _events(service: PageBackend) -> Answer:
    async def events(request: Request) -> Response:
        key = service.sessions.identify(request).key
        await request.body()  # which is refused like others; a stream that has begun cannot be
        if service.store.ticks.is_full(key):
            raise Refused(
                429, "too_many_listeners", "too many pages are open: close some, or pause their updates"
            )
        still = partial(service.sessions.is_valid, request)
        return StreamingResponse(service.store.ticks.events(key, still), media_type="text/event-stream")

    return events


def _doing(service: PageBackend) -> Answer:
    async def do(request: Request) -> Response:
        identity = service.sessions.identify(request)
        action, name = request.path_params["action"], request.path_params.get("name", "")
        if action not in ACTIONS:
            raise Refused(404, "not_found", "there is no such action")
        endpoint = ACTIONS[action]
        with service.noting_refusal(identity.grant, endpoint, name):
            fields = await _form(request)
            service.sessions.check_csrf(identity, dict(fields).get("csrf"))
        try:
            with service.noting_refusal(identity.grant, endpoint, name):
                given = form_given(endpoint.given, fields)
            flash = report_of(action, await service.perform(endpoint, service.access(identity), name, given))
        except (ShardqError, Refused) as error:
            problem = problem_of(error)
            flash = FlashMessage("failed", "it failed" if problem is None else problem.detail)
        return back_to(request, dict(fields).get("back", ""), flash)

    return do


async def _form(request: Request) -> list[tuple[str, str]]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Refused(415, "content_type", "Content-Type: give application/x-www-form-urlencoded")
    return fields_of(await request.body())


def _login(service: PageBackend) -> Answer:
    async def login(request: Request) -> Response:
        wanted = dict(fields_of(request.scope["query_string"])).get("next", "")
        if service.sessions.keys is None:
            return back_to(request, wanted)
        if request.method == "GET":
            return _page(service, request, "login", {"title": "Log in", "wrong": False, "next": wanted}, None)
        fields = dict(await _form(request))
        known = service.sessions.login(fields.get("key", ""))
        if known is None:
            if service.sessions.notes_refusal():
                service.note("unknown", "login", "refused")
            content = {"title": "Log in", "wrong": True, "next": fields.get("next", "")}
            return _page(service, request, "login", content, None, 401)
        name, cookie = known
        service.note(name, "login", "done")
        response = back_to(request, fields.get("next", ""))
        service.sessions.set_cookie(response, request, cookie)
        return response

    return login


def _logout(service: PageBackend) -> Answer:
    async def logout(request: Request) -> Response:
        identity = service.sessions.identify(request)
        service.sessions.check_csrf(identity, dict(await _form(request)).get("csrf"))
        response = back_to(request, f"{_root(request)}/login")
        service.sessions.set_cookie(response, request, "")
        return response

    return logout


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", ""))


def _here(request: Request) -> str:
    """Return the path and query of a request, as a page of this service."""
    query = request.scope["query_string"].decode("latin-1")
    path = request.scope.get("raw_path") or request.url.path.encode()
    shown = path.decode("latin-1").partition("?")[0]
    if not shown.startswith(f"{_root(request)}/"):
        shown = _root(request) + shown
    return f"{shown}?{query}" if query else shown

"""Forms of the pages: their fields as parameters of an endpoint, and the report of an action."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse

from shardq.service.problems import Refused
from shardq.service.views import Changed, QueueDetail, ScheduleView, SentView

__all__ = ["FlashMessage", "back_to", "flash_message_in", "form_given", "report_of"]

COOKIE = "shardq_flash"
_OWN = {"csrf", "back"}


class FlashMessage(msgspec.Struct, frozen=True):
    """The report of an action, which the next page shows."""

    kind: Literal["done", "failed"]
    text: str


def form_given(kind: type, fields: Sequence[tuple[str, str]]) -> Any:
    """Return what an endpoint is given by the fields of a form. Blank ones are left out. Raises Refused.

    ``ids`` may be repeated. ``headers`` has a line ``name: value`` for each header, and a field ``setting.NAME`` is a
    setting, as JSON or plain text.
    """
    given: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    ids: list[str] = []
    for name, value in fields:
        if name in _OWN or (not value and name != "body"):
            continue
        if name == "ids":
            ids.append(value)
        elif name == "headers":
            given["headers"] = dict(_header(line) for line in value.splitlines() if line.strip())
        elif name.startswith("setting."):
            settings[name.removeprefix("setting.")] = _setting(value)
        elif name == "setting_name":
            settings[value] = _setting(dict(fields).get("setting_value", ""))
        elif name != "setting_value":
            given[name] = value
    given |= {name: value for name, value in (("ids", ids), ("settings", settings)) if value}
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(400, "invalid_parameters", str(error)) from error


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        raise Refused(
            400, "invalid_parameters", f"headers: {line!r} is not a header: write `name: value` in each line"
        )
    return name.strip(), value.strip()


def _setting(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return text or None


def report_of(action: str, answer: Any) -> FlashMessage:
    """Return the report of an action that was done."""
    match answer:
        case Changed(changed=count, more=more):
            rest = "; there may be more: repeat it" if more else ""
            text = f"{action.replace('_', ' ')}: {count:,} changed{rest}"
        case SentView(id=identity):
            text = f"sent {identity}"
        case QueueDetail(queue=queue):
            text = f"{action.replace('_', ' ')}: {queue.name}"
        case ScheduleView(id=identity):
            text = f"{action.replace('_', ' ')}: {identity}"
        case _:
            text = f"{action.replace('_', ' ')}: done"
    return FlashMessage("done", text)


def back_to(request: Request, back: str, flash: FlashMessage | None = None) -> RedirectResponse:
    """Return to a page of this service, which says what was done."""
    root = request.scope.get("root_path", "")
    target = f"{root}/" if not _is_own(back, root) else back
    response = RedirectResponse(target, 303)
    if flash is not None:
        value = base64.urlsafe_b64encode(
            msgspec.json.encode(msgspec.structs.replace(flash, text=flash.text[:1_000]))
        )
        response.set_cookie(
            COOKIE, value.decode(), max_age=30, path=root or "/", httponly=True, samesite="strict"
        )
    return response


def _is_own(back: str, root: str) -> bool:
    """Return whether a path leads to this service: no other host, and no header within it."""
    try:
        parts = urlsplit(back)
    except ValueError:
        return False
    is_plain = back.isprintable() and back.isascii() and "\\" not in back and not back.startswith("//")
    return is_plain and not parts.scheme and not parts.netloc and back.startswith(f"{root}/")


def flash_message_in(cookies: Mapping[str, str]) -> FlashMessage | None:
    """Return the message that the last action left for the next page."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cookies.get(COOKIE, "")), type=FlashMessage)
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return None

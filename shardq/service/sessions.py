"""Identities of requests: a key as a bearer token, or a session cookie that a login with a key has set."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from shardq.errors import InvalidSetting
from shardq.service.access import EVERYTHING, Grant, KeyFile
from shardq.service.problems import Refused

__all__ = ["COOKIE", "Identity", "Sessions"]

COOKIE = "shardq_session"
SESSION_SECONDS = 12 * 3_600
_LOCAL = "local"


class Identity(msgspec.Struct, frozen=True):
    """The identity of a request. ``csrf`` is the token that an action by cookie needs; None for a bearer token."""

    grant: Grant
    csrf: str | None
    fresh_cookie: str | None = None


class Sessions:
    """Identifies requests. Sessions are stored in no place: a cookie is signed, and ends with its key.

    Without ``keys`` each request may do everything. Its cookie only carries the token against forged forms.
    """

    def __init__(self, secret: str, keys: KeyFile | None) -> None:
        self._secret, self.keys = secret.encode(), keys

    def identify(self, request: Request) -> Identity:
        """Return who makes a request. Raises Refused."""
        try:
            return self._identified(request)
        except InvalidSetting as error:  # of the file, whose path is no business of who asks
            raise Refused(503, "keys_unreadable", "the keys of this service cannot be read") from error

    def _identified(self, request: Request) -> Identity:
        authorization = request.headers.get("authorization")
        if authorization is not None and self.keys is not None:
            scheme, _, key = authorization.partition(" ")
            known = self.keys.find(key.strip()) if scheme.lower() == "bearer" else None
            if known is None:
                raise Refused(
                    401, "unknown_key", "Authorization: give `Bearer KEY` with a key of `shardq keys create`"
                )
            return Identity(known.grant, None)
        cookie = request.cookies.get(COOKIE, "")
        grant = self._read(cookie)
        if grant is not None:
            return Identity(grant, self._csrf(cookie))
        if self.keys is not None:
            raise Refused(401, "login_needed", "log in, or send a key: `Authorization: Bearer KEY`")
        fresh = self._made(_LOCAL, "")
        return Identity(EVERYTHING, self._csrf(fresh), fresh)

    def login(self, key: str) -> tuple[str, str] | None:
        """Return the name of a key and the cookie of a new session; None for an unknown key."""
        known = None if self.keys is None else self.keys.find(key.strip())
        return None if known is None else (known.grant.name, self._made(known.id, known.hash))

    def check_csrf(self, identity: Identity, token: str | None) -> None:
        """Raise Refused unless an action by cookie has the token of its session."""
        if identity.csrf is not None and not hmac.compare_digest(
            identity.csrf.encode(), (token or "").encode("utf-8", "surrogateescape")
        ):
            raise Refused(403, "csrf", "the form is out of date or was forged: load the page again")

    @staticmethod
    def set_cookie(response: Response, request: Request, cookie: str) -> None:
        """Let an answer set the cookie of a session."""
        response.set_cookie(
            COOKIE,
            cookie,
            max_age=SESSION_SECONDS,
            path=request.scope.get("root_path") or "/",
            secure="https" in (request.url.scheme, request.headers.get("x-forwarded-proto")),  # of a proxy
            httponly=True,
            samesite="lax",
        )

    def _made(self, identity: str, hashed: str) -> str:
        head = f"{identity}.{int(time.time()) + SESSION_SECONDS}.{secrets.token_hex(12)}"
        return f"{head}.{self._sign(head, hashed)}"

    def _read(self, cookie: str) -> Grant | None:
        head, _, signature = cookie.rpartition(".")
        identity, _, rest = head.partition(".")
        expires = rest.partition(".")[0]
        if self.keys is None:
            grant, hashed = (EVERYTHING if identity == _LOCAL else None), ""
        else:
            known = self.keys.named(identity)
            grant, hashed = (None, "") if known is None else (known.grant, known.hash)
        expected = self._sign(head, hashed)
        is_signed = hmac.compare_digest(expected.encode(), signature.encode("utf-8", "surrogateescape"))
        return grant if is_signed and int(expires) > time.time() else None

    def _sign(self, head: str, hashed: str) -> str:
        text = f"session\n{head}\n{hashed}".encode("utf-8", "surrogateescape")
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()

    def _csrf(self, cookie: str) -> str:
        text = f"csrf\n{cookie}".encode("utf-8", "surrogateescape")
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()

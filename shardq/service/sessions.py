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

__all__ = ["Identity", "Sessions"]

SESSION_SECONDS = 12 * 3_600


class Identity(msgspec.Struct, frozen=True):
    """The identity of a request. ``csrf`` is the token that an action by cookie needs; None for a bearer token."""

    grant: Grant
    csrf: str | None


class Sessions:
    """Identifies requests. Sessions are stored in no place: a cookie is signed, and ends with its key.

    Without ``keys`` each request may do everything, there are no cookies, and all forms have the same token: pages of
    other sites cannot read it. The name of the cookie tells services of one host apart, which share their cookies.
    """

    def __init__(self, secret: str, keys: KeyFile | None) -> None:
        self._secret, self.keys = secret.encode(), keys
        self._cookie = f"shardq_session_{self._sign('name', '')[:8]}"

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
        if self.keys is None:
            return Identity(EVERYTHING, self._csrf(""))
        cookie = request.cookies.get(self._named(request), "")
        grant = self._read(cookie)
        if grant is None:
            raise Refused(401, "login_needed", "log in, or send a key: `Authorization: Bearer KEY`")
        return Identity(grant, self._csrf(cookie))

    def login(self, key: str) -> tuple[str, str] | None:
        """Return the name of a key and the cookie of a new session; None for an unknown key."""
        known = None if self.keys is None else self.keys.find(key.strip())
        if known is None:
            return None
        head = f"{known.id}.{int(time.time()) + SESSION_SECONDS}.{secrets.token_hex(12)}"
        return known.grant.name, f"{head}.{self._sign(head, known.hash)}"

    def check_csrf(self, identity: Identity, token: str | None) -> None:
        """Raise Refused unless an action by cookie has the token of its session."""
        if identity.csrf is not None and not hmac.compare_digest(
            identity.csrf.encode(), (token or "").encode("utf-8", "surrogateescape")
        ):
            raise Refused(403, "csrf", "the form is out of date or was forged: load the page again")

    def set_cookie(self, response: Response, request: Request, cookie: str) -> None:
        """Let an answer set the cookie of a session; "" ends it."""
        response.set_cookie(
            self._named(request),
            cookie,
            max_age=SESSION_SECONDS if cookie else 0,
            path=request.scope.get("root_path") or "/",
            secure=_is_secure(request),
            httponly=True,
            samesite="lax",
        )

    def _named(self, request: Request) -> str:
        """Return the name of the cookie. Over HTTPS it is one that no other host of the domain can set."""
        if not _is_secure(request):
            return self._cookie
        return f"{'__Secure-' if request.scope.get('root_path') else '__Host-'}{self._cookie}"

    def _read(self, cookie: str) -> Grant | None:
        head, _, signature = cookie.rpartition(".")
        identity, _, rest = head.partition(".")
        expires = rest.partition(".")[0]
        known = None if self.keys is None else self.keys.named(identity)
        expected = self._sign(head, "" if known is None else known.hash)
        is_signed = hmac.compare_digest(expected.encode(), signature.encode("utf-8", "surrogateescape"))
        return known.grant if known is not None and is_signed and int(expires) > time.time() else None

    def _sign(self, head: str, hashed: str) -> str:
        text = f"session\n{head}\n{hashed}".encode("utf-8", "surrogateescape")
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()

    def _csrf(self, cookie: str) -> str:
        text = f"csrf\n{cookie}".encode("utf-8", "surrogateescape")
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()


def _is_secure(request: Request) -> bool:
    """Return whether a request came by HTTPS, at least to the proxy in front."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))

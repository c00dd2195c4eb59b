"""Identities of requests: a key as a bearer token, or a session cookie that a login with a key has set."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import time
from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from shardq.errors import InvalidSetting
from shardq.service.keys import EVERYTHING, Grant, KeyFile, StoredKey
from shardq.service.problems import Refused

__all__ = ["Identity", "RateLimits", "Sessions"]

SESSION_SECONDS = 12 * 3_600
SAVED_SECONDS = 2.0  # the pages of a key all read again with each tick
REFUSED_LOGINS_NOTED = 1.0  # in a second: they need no key, and must not fill the disk of the audit log
MOST_COUNTED = 10_000  # keys; those that have saved up all are left out
_IDENTITY = "shardq.identity"


class Identity(msgspec.Struct, frozen=True):
    """The identity of a request. ``csrf`` is the token that an action by cookie needs; None for a bearer token.

    ``key`` is the id of its key; None where there are no keys.
    """

    grant: Grant
    csrf: str | None
    key: str | None = None


class RateLimits:
    """Requests that each key may make: ``rate`` in a second on average, and what it has saved up in two seconds."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._full = max(1.0, SAVED_SECONDS * rate)
        self._left: dict[str, tuple[float, float]] = {}  # requests of a key that were left, and when

    def __len__(self) -> int:
        return len(self._left)

    def take(self, key: str) -> float:
        """Count a request. Return 0, or the seconds after which it may be made."""
        now = self._clock()
        left, at = self._left.get(key, (self._full, now))
        left = min(self._full, left + (now - at) * self._rate)
        if left < 1:
            return (1 - left) / self._rate
        if len(self._left) >= MOST_COUNTED:
            full_after = self._full / self._rate
            self._left = {each: last for each, last in self._left.items() if now - last[1] < full_after}
        self._left[key] = (left - 1, now)
        return 0.0


class Sessions:
    """Identifies requests. Sessions are stored in no place: a cookie is signed, and ends with its key.

    Without ``keys`` each request may do everything, there are no cookies, and all forms have the same token: pages of
    other sites cannot read it. The name of the cookie tells services of one host apart, which share their cookies.
    """

    def __init__(self, secret: str, keys: KeyFile | None, limits: RateLimits | None = None) -> None:
        self._secret, self.keys, self._limits = secret.encode(), keys, limits
        self._cookie = f"shardq_session_{self._sign('name', '')[:8]}"
        self._refusals = RateLimits(REFUSED_LOGINS_NOTED)

    def identify(self, request: Request) -> Identity:
        """Return the identity of a request, and count it for the rate of the key. Raises Refused."""
        found: Identity | None = request.scope.get(_IDENTITY)
        if found is None:
            try:
                found = request.scope[_IDENTITY] = self._identified(request)
            except InvalidSetting as error:  # of the file, whose path is no business of who asks
                raise Refused(503, "keys_unreadable", "the keys of this service cannot be read") from error
        return found

    def _identified(self, request: Request) -> Identity:
        if self.keys is None:
            return Identity(EVERYTHING, self._csrf(""))
        key, csrf = self._key(request)
        wait = 0.0 if self._limits is None else self._limits.take(key.id)
        if wait > 0:
            text = f"the key {key.grant.name!r} sends too many requests: repeat this one later"
            raise Refused(429, "too_many_requests", text, retry_after=math.ceil(wait))
        return Identity(key.grant, csrf, key.id)

    def is_valid(self, request: Request) -> bool:
        """Return whether the key of a request that was identified is still known. It counts for no rate."""
        try:
            return self.keys is None or self._key(request) is not None
        except (Refused, InvalidSetting):
            return False

    def _key(self, request: Request) -> tuple[StoredKey, str | None]:
        authorization = request.headers.get("authorization")
        if authorization is not None:
            scheme, _, secret = authorization.partition(" ")
            known = self._found(secret) if scheme.lower() == "bearer" else None
            if known is None:
                raise Refused(
                    401, "unknown_key", "Authorization: give `Bearer KEY` with a key of `shardq keys create`"
                )
            return known, None
        cookie = request.cookies.get(self._named(request), "")
        known = self._read(cookie)
        if known is None:
            raise Refused(401, "login_needed", "log in, or send a key: `Authorization: Bearer KEY`")
        return known, self._csrf(cookie)

    def _found(self, secret: str) -> StoredKey | None:
        return None if self.keys is None else self.keys.find(secret.strip())

    def login(self, key: str) -> tuple[str, str] | None:
        """Return the name of a key and the cookie of a new session; None for an unknown key."""
        known = self._found(key)
        if known is None:
            return None
        head = f"{known.id}.{int(time.time()) + SESSION_SECONDS}.{secrets.token_hex(12)}"
        return known.grant.name, f"{head}.{self._sign(head, known.hash)}"

    def notes_refusal(self) -> bool:
        """Return whether a login that was refused is logged: some of very many are not."""
        return self._refusals.take("") == 0

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

    def _read(self, cookie: str) -> StoredKey | None:
        head, _, signature = cookie.rpartition(".")
        identity, _, rest = head.partition(".")
        expires = rest.partition(".")[0]
        known = None if self.keys is None else self.keys.named(identity)
        expected = self._sign(head, "" if known is None else known.hash)
        is_signed = hmac.compare_digest(expected.encode(), signature.encode("utf-8", "surrogateescape"))
        return known if is_signed and int(expires) > time.time() else None

    def _sign(self, head: str, hashed: str) -> str:
        text = f"session\n{head}\n{hashed}".encode("utf-8", "surrogateescape")
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()

    def _csrf(self, cookie: str) -> str:
        text = f"csrf\n{cookie}".encode("utf-8", "surrogateescape")
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()


def _is_secure(request: Request) -> bool:
    """Return whether a request came by HTTPS, at least to the proxy in front."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))

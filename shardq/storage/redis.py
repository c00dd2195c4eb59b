"""Signals through Redis publish/subscribe: ``redis://user:password@host:6379/0``, or ``rediss://`` for TLS.

Every option of the driver can be given in the URL.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import closing, suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec
from redis import ConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from shardq.base.codec import UNREADABLE
from shardq.errors import InvalidSetting
from shardq.storage.opening import read_url
from shardq.storage.per_process import PerProcess
from shardq.storage.requests import Finding
from shardq.storage.signals import OpenSignalChannel

__all__ = ["open_redis"]

_PATIENCE = 2.0  # seconds that the server has to confirm a subscription
_QUIET = 5  # seconds without a word, after which the server is asked for one
_LOST = 10  # seconds without a word, after which the channel is lost
_ERRORS = (RedisError, OSError)
_decoder = msgspec.json.Decoder(tuple[str, ...])

_SECONDS = 2.0  # for a connection, and for an answer


class RedisChannel:
    """The channel between the clients that name one server and one database of it.

    Redis keeps nothing of what is published: who does not listen does not hear it.
    """

    may_block = True

    def __init__(self, connect: Callable[[], ConnectionPool], *, host: str, redis_channel: str) -> None:
        self.pool = PerProcess(connect)
        self.name = f"Redis at {host}"
        self.redis_channel = redis_channel

    def publish(self, queues: Collection[str]) -> bool:
        """Publish the names as one message; False when that is not confirmed."""
        try:
            self._redis().publish(self.redis_channel, msgspec.json.encode(sorted(queues)))
        except _ERRORS:
            return False
        return True

    def listen(self) -> Generator[Collection[str]]:
        """Subscribe, and read the names that are published from then on."""
        with suppress(*_ERRORS), closing(self._redis().pubsub()) as subscription:
            subscription.subscribe(self.redis_channel)
            message = subscription.get_message(timeout=_PATIENCE)
            quiet = 0 if message else _LOST
            while quiet < _LOST:
                yield _names(message)
                message = subscription.get_message(timeout=1.0)
                quiet = 0 if message else quiet + 1
                if quiet == _QUIET:
                    subscription.ping()

    def diagnose(self) -> Finding:
        """Report whether the server answers."""
        try:
            self._redis().ping()
        except _ERRORS as error:
            return Finding(
                "signals",
                ok=False,
                value=f"{self.name} does not answer ({type(error).__name__})",
                remedy="check the option signals of the URL, the login and the server; until then consumers poll",
            )
        return Finding("signals", ok=True, value=self.name)

    def close(self) -> None:
        """Close the connections of this process."""
        pool = self.pool.take()
        if pool is not None:
            pool.disconnect(inuse_connections=False)  # who uses one of the others closes it, within seconds

    def _redis(self) -> Any:  # the driver's types leave gaps
        return Redis(connection_pool=self.pool.get())


def _names(message: dict[str, Any] | None) -> Collection[str]:
    """Return the names that a message carries: none unless one of shardq's clients published it."""
    if message is None or message["type"] != "message":
        return ()
    try:
        return _decoder.decode(message["data"])
    except UNREADABLE:
        return ()


def open_redis(url: str) -> OpenSignalChannel:
    """Open the channel through the server that the URL names; raises InvalidSetting.

    Errors do not repeat the URL, nor the driver's text about it: both may hold the password.
    """
    parts = read_url(url, "Redis URL of the option signals")
    host = urlsplit(f"//{parts.hosts}").hostname or ""
    try:
        pool = _pool(url)
        pool.make_connection()  # which connects to nothing yet, but knows its options
        wrong = None if host else "no host"
    except (ValueError, TypeError, AttributeError, RedisError) as error:
        wrong = type(error).__name__
    if wrong:
        raise InvalidSetting(
            f"the Redis URL of the option signals cannot be read ({wrong}): write redis://user:password@host:6379/0, "
            "special characters of user and password as %XX, and no options but the driver's"
        )
    return RedisChannel(
        lambda: _pool(url), host=host, redis_channel=f"shardq:{pool.connection_kwargs.get('db', 0)}"
    )


def _pool(url: str) -> ConnectionPool:
    """Make connections whose commands are tried once and not for long: failures are repeated above."""
    once = Retry(NoBackoff(), 0)
    return ConnectionPool.from_url(url, socket_connect_timeout=_SECONDS, socket_timeout=_SECONDS, retry=once)

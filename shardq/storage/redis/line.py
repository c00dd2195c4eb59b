"""Names of queues on one channel of Redis."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import closing, suppress
from typing import Any

import msgspec
from redis import ConnectionPool, Redis
from redis.exceptions import RedisError

from shardq.storage.per_process import PerProcess
from shardq.storage.requests import Finding

__all__ = ["RedisLine"]

_PATIENCE = 2.0  # seconds that the server has to confirm a subscription
_QUIET = 5  # seconds without a word, after which the server is asked for one
_LOST = 10  # seconds without a word, after which the line is lost
_ERRORS = (RedisError, OSError)
_decoder = msgspec.json.Decoder(tuple[str, ...])


class RedisLine:
    """The line between the clients that name one server and one database of it.

    Redis keeps nothing of what is published: who does not listen does not hear it.
    """

    may_block = True

    def __init__(self, connect: Callable[[], ConnectionPool], *, host: str, channel: str) -> None:
        self._pool = PerProcess(connect)
        self.name = f"Redis at {host}"
        self._channel = channel

    def tell(self, queues: Collection[str]) -> bool:
        """Publish the names as one message; False when nobody says that it was."""
        try:
            self._redis().publish(self._channel, msgspec.json.encode(sorted(queues)))
        except _ERRORS:
            return False
        return True

    def listen(self) -> Generator[Collection[str]]:
        """Subscribe, and read what is published from then on."""
        with suppress(*_ERRORS), closing(self._redis().pubsub()) as subscription:
            subscription.subscribe(self._channel)
            message = subscription.get_message(timeout=_PATIENCE)
            quiet = 0 if message else _LOST
            while quiet < _LOST:
                yield _names(message)
                message = subscription.get_message(timeout=1.0)
                quiet = 0 if message else quiet + 1
                if quiet == _QUIET:
                    subscription.ping()

    def diagnose(self) -> Finding:
        """Whether the server answers."""
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
        pool = self._pool.take()
        if pool is not None:
            pool.disconnect(inuse_connections=False)  # who uses one of the others closes it, within seconds

    def _redis(self) -> Any:  # the driver's types leave gaps
        return Redis(connection_pool=self._pool.get())


def _names(message: dict[str, Any] | None) -> Collection[str]:
    """Return the names that a message carries: none unless one of shardq's clients published it."""
    if message is None or message["type"] != "message":
        return ()
    try:
        return _decoder.decode(message["data"])
    except msgspec.DecodeError:
        return ()

"""``redis://user:password@host:6379/0``, or ``rediss://`` for TLS, with any option of the driver."""

from __future__ import annotations

from urllib.parse import urlsplit

from redis import ConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from shardq.errors import InvalidSetting
from shardq.storage.redis.line import RedisLine
from shardq.storage.signals.line import OpenLine

__all__ = ["open_redis"]

_SECONDS = 2.0  # for a connection, and for an answer


def open_redis(url: str) -> OpenLine:
    """The line through the server that the URL names; raises InvalidSetting.

    Errors do not repeat the URL, nor what the driver says of it: both may hold the password.
    """
    try:
        place = urlsplit(url)
        if not place.hostname:
            raise ValueError("no host")  # noqa: TRY301 -- told as all that is wrong with it
        pool = _pool(url)
        pool.make_connection()  # which connects to nothing yet, but knows its options
    except (ValueError, TypeError, AttributeError, RedisError) as error:
        raise InvalidSetting(
            f"the Redis URL of the option signals cannot be read ({type(error).__name__}): write "
            "redis://user:password@host:6379/0, special characters of user and password as %XX, and no options but "
            "the driver's"
        ) from None
    return RedisLine(
        lambda: _pool(url), host=place.hostname, channel=f"shardq:{pool.connection_kwargs.get('db', 0)}"
    )


def _pool(url: str) -> ConnectionPool:
    """Connections whose commands are tried once and not for long: what fails is repeated above."""
    once = Retry(NoBackoff(), 0)
    return ConnectionPool.from_url(url, socket_connect_timeout=_SECONDS, socket_timeout=_SECONDS, retry=once)

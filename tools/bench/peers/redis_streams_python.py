"""Redis streams through redis-py alone, whose parser is then Python: what ``pip install redis`` gives."""

from __future__ import annotations

import redis

from .redis_streams import RedisStreams

PARSER = redis.connection._RESP3Parser  # type: ignore[attr-defined]


class RedisStreamsPython(RedisStreams):
    name = "Redis streams, without hiredis"

    def _connect(self, port: int) -> redis.Redis:
        connections = redis.ConnectionPool(port=port, parser_class=PARSER, protocol=3)
        return redis.Redis(connection_pool=connections)

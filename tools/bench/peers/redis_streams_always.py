"""Redis streams with an fsync for each answer: what is confirmed survives a power failure."""

from __future__ import annotations

from .redis_streams import RedisStreams


class RedisStreamsAlways(RedisStreams):
    name = "Redis streams, fsync always"
    durability = "fsync"
    sends = "AOF always: an fsync before the answer; pipelines of 500 in bulk"
    wins = "the stream is in memory; what comes together shares an fsync"
    fsync = "always"

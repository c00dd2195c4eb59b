"""The asyncio client: the names of the sync client, with coroutines."""

from __future__ import annotations

from shardq.aio.client import Client, connect
from shardq.aio.consumer import Consumer
from shardq.aio.message import Batch, BodyReader, Message
from shardq.aio.patterns import QueuePattern
from shardq.aio.queue import Producer, Queue
from shardq.aio.semaphore import Permit, Semaphore
from shardq.aio.work import work

__all__ = [
    "Batch",
    "BodyReader",
    "Client",
    "Consumer",
    "Message",
    "Permit",
    "Producer",
    "Queue",
    "QueuePattern",
    "Semaphore",
    "connect",
    "work",
]

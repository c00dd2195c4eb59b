"""The objects of one client of a database: a session with it, its clock, and its knowledge of the shards."""

from __future__ import annotations

from functools import partial

from shardq.storage.clocks import ServerClock
from shardq.storage.mongodb.directory import Open
from shardq.storage.mongodb.read_cursors import ReadCursors
from shardq.storage.mongodb.session import Address, Session, clock_leads
from shardq.storage.mongodb.signals import CappedCollection
from shardq.storage.signals import Signals

__all__ = ["Client"]


class Client:
    """Every operation on a shard is given this."""

    def __init__(self, address: Address, clock: ServerClock | None = None) -> None:
        self.session = Session(address)
        self.clock = clock or ServerClock(partial(clock_leads, self.session))
        self.collections = Open(self.session)
        self.cursors = ReadCursors(self.session, self.clock)
        self.signals = Signals(CappedCollection(self.session))

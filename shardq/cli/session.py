"""What the commands share: the URL of the store, and a connection that is opened when it is needed."""

from __future__ import annotations

from functools import cached_property

from shardq.client import Client, connect
from shardq.queue import Queue

__all__ = ["Session"]


class Session:
    """One call of the command line."""

    def __init__(self, url: str) -> None:
        self.url = url

    @cached_property
    def client(self) -> Client:
        """The connection."""
        return connect(self.url)

    def queue(self, name: str) -> Queue:
        """An existing queue."""
        return self.client.queue(name)

    def close(self) -> None:
        """Give up the connection, if there was one."""
        if "client" in vars(self):
            self.client.close()

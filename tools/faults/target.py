"""The store under test, as the nemesis sees it: nodes to kill, pause and restart, and the ways to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from shardq.testing import RawQueue

from .disk import Disk
from .proxy import Proxy

__all__ = ["Target"]


class Target(Protocol):
    """A store that was started for the campaign. A new one joins by a class of this kind and a line in ``targets``."""

    name: str
    url: str  # of the store itself
    nodes: int  # 0: there is no server
    patience: float  # seconds within which every client has to make progress again
    huge: int  # messages of a huge purge
    lease: float  # of the queue under test, in seconds
    fault_seconds: float  # of a round
    gap: float  # about so many seconds are between the beginnings of two faults
    lasting: float  # about so many seconds until a fault is undone
    rest: float  # seconds between the end of a node's fault and the next one of a node
    tolerance: float  # seconds by which the clocks of two clients may differ
    goes_by_client_clock: bool  # the store's time is its clients'
    has_backups: bool  # that shardq itself makes and restores
    detours: dict[str, tuple[str, int]]  # the nodes' addresses, and those of their proxies

    @property
    def clients_url(self) -> str:
        """The URL for clients that are to meet faults; by `detours` it may lead to the proxies by itself."""
        ...

    @property
    def proxies(self) -> Sequence[Proxy]:
        """One for each node."""
        ...

    @property
    def disk(self) -> Disk | None:
        """One that can be filled."""
        ...

    def start(self) -> None:
        """Start the store; raises RuntimeError when it cannot be had."""
        ...

    def stop(self) -> None:
        """End it, with everything that it wrote."""
        ...

    def node(self, victim: float) -> int:
        """The index of the node that a number from 0 to 1 chooses; small ones may mean the primary."""
        ...

    def pid(self, node: int) -> int:
        """The process of a node."""
        ...

    def restart(self) -> None:
        """Start the nodes that do not run; returns when they answer."""
        ...

    def read(self, queue: str) -> RawQueue:
        """Read everything that is stored for a queue, without the code under test."""
        ...

    def beside(self, folder: Path) -> Target:
        """Return a store of the same kind in another folder, into which a backup can be restored."""
        ...

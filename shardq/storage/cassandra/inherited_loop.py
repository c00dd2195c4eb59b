"""What a forked child has of the event loop of its parent's driver."""

# ruff: noqa: SLF001 - the driver has no public way to it

from __future__ import annotations

import os
import sys

__all__ = ["leave_to_the_parent"]


def leave_to_the_parent(kind: type) -> None:
    """In a forked child: let the event loop of this kind of connections know nothing of the parent's.

    When the child connects, the driver would close each of them, and wait for ever for a lock that a thread of the
    parent held at the fork. Only the loop of libev, which the driver uses where it is built, keeps them so.
    """
    loop = getattr(sys.modules[kind.__module__], "_global_loop", None)
    if loop is None or loop._pid == os.getpid() or not hasattr(loop, "_live_conns"):
        return
    for connection in loop._live_conns | loop._new_conns | loop._closed_conns:
        for watcher in (connection._write_watcher, connection._read_watcher):
            if watcher is not None:
                watcher.stop()
        if connection._socket is not None:
            connection._socket.close()
    loop._live_conns, loop._new_conns, loop._closed_conns = set(), set(), set()
    loop._thread = None  # so there is nothing that the driver would wait for

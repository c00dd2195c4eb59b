"""Sending a process's connections to a proxy, without the servers or the driver knowing of it."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

__all__ = ["install_detours"]


def install_detours(detours: Mapping[str, tuple[str, int]]) -> None:
    """Let connections of this process to ``host:port`` go elsewhere.

    Clusters tell their clients the addresses of all nodes, so an address in the URL would not be enough.
    """
    connect = socket.socket.connect

    def connect_elsewhere(self: socket.socket, address: Any) -> None:
        key = f"{address[0]}:{address[1]}" if isinstance(address, tuple) else ""
        connect(self, detours.get(key, address))

    socket.socket.connect = connect_elsewhere  # type: ignore[method-assign, assignment]

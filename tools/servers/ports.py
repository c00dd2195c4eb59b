"""Free ports for servers that are about to start, and whether one answers."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from pathlib import Path

PORTS = range(10_000, 32_000)


def kept_ports(folder: Path, addresses: Sequence[str], number: int) -> list[int]:
    """So many ports that are free on all addresses; those of an earlier start from the same folder stay.

    A server takes its ports a while after they are chosen. So they are chosen at random, that servers which start at
    the same time do not choose the same, and from below those that the system gives to outgoing connections.
    """
    file = folder / "ports"
    if not file.exists():
        free = next(
            ports
            for ports in iter(lambda: random.sample(PORTS, number), None)
            if all(_is_free(address, port) for address in addresses for port in ports)
        )
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(" ".join(map(str, free)))
    return [int(port) for port in file.read_text().split()]


def answers(address: str, port: int) -> bool:
    """True when something takes connections there."""
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True

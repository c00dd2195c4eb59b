"""Starting servers and queues; what does not start is left out, with its reason."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import psutil

from .database import Running
from .group import Group
from .peer import Peer, PeerMissing, last_words
from .usage import Usage, children


class Entry(msgspec.Struct, frozen=True):
    """A queue that takes part, and what works for it, where all of that is known."""

    peer: Peer
    usage: Usage | None


class Servers(msgspec.Struct, frozen=True):
    """The groups whose servers run, why others do not, and what each store of shardq runs on (None: no server)."""

    groups: tuple[tuple[Group, Running | None], ...]
    stores: dict[str, Running | None]
    missing: tuple[str, ...]


def start_servers(groups: Sequence[Group], stack: ExitStack) -> Servers:
    """Start what whole groups use, until the stack ends."""
    started: list[tuple[Group, Running | None]] = []
    missing = []
    for group in groups:
        try:
            started.append((group, stack.enter_context(group.server())))
        except PeerMissing as reason:
            missing.append(f"{', '.join(group.peers)} ({reason})")
    stores = {group.store: running for group, running in started if group.store}
    return Servers(tuple(started), stores, tuple(missing))


def open_all(servers: Servers, folder: Path, stack: ExitStack) -> tuple[list[Entry], list[str]]:
    """Start each queue in a folder of its own, until the stack ends; those that started, and why others did not."""
    entries, missing = [], list(servers.missing)
    numbers = itertools.count()
    for group, running in servers.groups:
        for peer in group.find_peers():
            try:
                entries.append(_open(peer, folder / str(next(numbers)), running, stack))
            except Exception as reason:  # a peer's own server or library may fail in any way
                missing.append(_why(peer, reason))
    return entries, missing


def _open(peer: Peer | PeerMissing, folder: Path, running: Running | None, stack: ExitStack) -> Entry:
    if isinstance(peer, PeerMissing):
        raise peer
    folder.mkdir()
    before = children()
    try:
        peer.open(folder)
    except BaseException:
        _end(children() - before)
        raise
    stack.callback(peer.close)
    shared = running.usage if running else Usage()
    if shared is None:
        return Entry(peer, None)
    return Entry(
        peer, Usage((*children() - before, *shared.processes), (folder, *shared.folders), shared.settle)
    )


def _end(processes: set[int]) -> None:
    """End what a queue has started before it failed."""
    for pid in processes:
        with suppress(psutil.NoSuchProcess):
            psutil.Process(pid).terminate()


def _why(peer: Peer | PeerMissing, reason: Exception) -> str:
    return str(reason) if isinstance(peer, PeerMissing) else f"{peer.name} ({last_words(str(reason))})"

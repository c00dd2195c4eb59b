"""The same jobs done by queues: by shardq, and by those that asked.py compares it with."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..asked import ASKED
from ..database import Running
from ..group import Group
from ..peer import Peer, PeerMissing, PopsMessages
from ..peers.shardq_queue import ShardqQueue
from ..rounds import RECEIVE, RECEIVE_SINGLES, SINGLE_SEND
from ..singles import ONE_AT_A_TIME, POP, SEND_THREADS, SENDERS
from ..starting import Servers, open_all
from ..usage import Usage
from .floor import BODY, Floor, Measure, Size, Work, by_threads, timed

SENDS = (SINGLE_SEND, SEND_THREADS)
LEAST_SHARE = 0.1  # of a queue that is asked to receive in bulk
NARROW = {"shards": 1, "time_shards": 1}  # of shardq's queue, as the bare statements have one table


@contextmanager
def floors(
    group: Group, running: Running | None, folder: Path, size: Size, bare: Mapping[str, Mapping[str, Work]]
) -> Iterator[list[Floor]]:
    """Floors of bare statements by kind, beside the queues of the group that do the same, until the block ends."""
    usage = (running.usage if running else None) or Usage()
    with ExitStack() as stack:
        entries, _ = open_all(Servers(((_rivals(group), running),), {}, ()), folder, stack)
        wide = _shardq(group, folder / "wide", {}, stack)
        narrow = _shardq(group, folder / "narrow", NARROW, stack)
        found = []
        for kind, works in bare.items():
            own = wide if kind in SENDS else narrow
            statements = {what: _timed(work, usage) for what, work in works.items()}
            queues = {
                entry.peer.name: _timed(work_of(kind, entry.peer, size), entry.usage or usage)
                for entry in entries
                if _is_compared(group, kind, entry.peer)
            }
            measure = _timed(work_of(kind, own, size), usage)
            found.append(Floor(kind=kind, own=measure, bare={**statements, **queues}))
        yield found


def work_of(kind: str, peer: Peer, size: Size) -> Work:
    """What a queue does of that kind. It is empty before and afterwards.

    What is received singly was sent by one thread: sends of several at the same time may have been joined.
    """
    few, singles = size.few, size.singles
    many = max(1, round(size.bundles * peer.share)) * size.batch  # fewer where it takes long

    def send(count: int) -> None:
        peer.send_singles([BODY] * count)

    def clear() -> None:
        peer.receive(few, size.batch)

    def pop() -> None:
        assert isinstance(peer, PopsMessages)
        peer.pop(few)

    works = {
        SINGLE_SEND: Work(few, lambda: send(few), after=clear),
        SEND_THREADS: Work(few, by_threads(few, SENDERS, lambda: send(1)), after=clear),
        ONE_AT_A_TIME: Work(few, lambda: peer.receive(few, 1), before=lambda: send(few)),
        POP: Work(few, pop, before=lambda: send(few)),
        RECEIVE_SINGLES: Work(
            singles, lambda: peer.receive(singles, size.batch), before=lambda: send(singles)
        ),
        RECEIVE: Work(
            many, lambda: peer.receive(many, size.batch), before=lambda: peer.send_bulk([BODY] * many)
        ),
    }
    return works[kind]


def _timed(work: Work, usage: Usage) -> Measure:
    return lambda: timed(work, usage)


def _shardq(group: Group, folder: Path, settings: Mapping[str, float], stack: ExitStack) -> Peer:
    """Its queue, with some settings; what is not given is as it is by default."""
    peer = next(group.find_peers())
    if isinstance(peer, PeerMissing):
        raise peer
    assert isinstance(peer, ShardqQueue)
    peer.queue = f"floors-{folder.name}-{secrets.token_hex(4)}"
    peer.settings = settings
    folder.mkdir()
    peer.open(folder)
    stack.callback(peer.close)
    return peer


def _rivals(group: Group) -> Group:
    """Those of the group that shardq is compared with."""
    asked = {each.peer for each in ASKED[group.store].times}
    peers = zip(group.peers, group.find_peers(), strict=True)
    return group.of(
        [name for name, peer in peers if not isinstance(peer, PeerMissing) and peer.name in asked]
    )


def _is_compared(group: Group, kind: str, peer: Peer) -> bool:
    """Whether it is in this kind, in one that it does in bulk if shardq does."""
    same = {each.peer for each in ASKED[group.store].times if each.kind == kind and not each.other}
    return peer.name in same and (kind != RECEIVE or peer.share > LEAST_SHARE)

"""What is done one message at a time: sends and acks by several threads, receives and pops of one message each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from .peer import SHARED, HoldsMessages, Peer, PopsMessages
from .stores.result import Sample

SENDERS = 16
DRAINED = 500  # at a time
ACKING = (1, 4, 16)  # threads
SEND_THREADS = f"single sends, {SENDERS} threads"
ONE_AT_A_TIME = "receive and ack, one at a time"
POP = "pop"
ACKS = {count: f"acks, {count} thread{'s' if count > 1 else ''}" for count in ACKING}
SINGLE_KINDS = (SEND_THREADS, ONE_AT_A_TIME, POP, *ACKS.values())

Send = Callable[[bytes], object]


def measure_singles(peer: Peer, bodies: Sequence[bytes]) -> Iterator[tuple[str, Sample]]:
    """Messages per second of each kind that the peer can do; the queue is empty before and afterwards."""
    if peer.threads:
        with senders(peer, peer.place, SENDERS) as sends:
            shares = [(send, bodies[number::SENDERS]) for number, send in enumerate(sends)]
            yield SEND_THREADS, _together(len(bodies), [_each(*share) for share in shares])
        peer.receive(len(bodies), min(len(bodies), DRAINED))
    if peer.takes_one:
        peer.send_singles(bodies)
        yield ONE_AT_A_TIME, _together(len(bodies), [lambda: peer.receive(len(bodies), 1)])
    if isinstance(peer, PopsMessages):
        peer.send_singles(bodies)
        yield POP, _together(len(bodies), [lambda: peer.pop(len(bodies))])
    if isinstance(peer, HoldsMessages):
        for count, kind in ACKS.items():
            peer.send_singles(bodies)
            acks = peer.hold(len(bodies))
            yield kind, _together(len(acks), [_all(acks[start::count]) for start in range(count)])


@contextmanager
def senders(peer: Peer, place: Any, count: int) -> Iterator[list[Send]]:
    """What so many threads send with: the peer itself, or an object for each that joins its queue."""
    if peer.threads == SHARED:
        yield [lambda body: peer.send_singles([body])] * count
        return
    joined = [type(peer)() for _ in range(count)]
    for each in joined:
        each.join(place)
    try:
        yield [_sender(each) for each in joined]
    finally:
        for each in joined:
            each.leave()


def _sender(peer: Peer) -> Send:
    return lambda body: peer.send_singles([body])


def _each(send: Send, bodies: Sequence[bytes]) -> Callable[[], None]:
    def work() -> None:
        for body in bodies:
            send(body)

    return work


def _all(acks: Sequence[Callable[[], object]]) -> Callable[[], None]:
    def work() -> None:
        for ack in acks:
            ack()

    return work


def _together(count: int, works: Sequence[Callable[[], object]]) -> Sample:
    """How many a second, each work in a thread that is there already."""
    start = threading.Barrier(len(works) + 1)

    def begin(work: Callable[[], object]) -> None:
        start.wait()
        work()

    with ThreadPoolExecutor(len(works)) as threads:
        done = [threads.submit(begin, work) for work in works]
        start.wait()
        began = time.perf_counter()
        for each in done:
            each.result()
        return Sample(count / (time.perf_counter() - began))

"""From send to receive at a fixed rate, for any queue: an open loop from one process to another.

Both processes join the queue, which the one that has opened it leaves meanwhile. They begin when one message has gone
from one to the other: so the receiver is waiting by then, and what its first call takes is not in the latency of those
that are sent meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from .peer import Peer
from .rounds import BODY_BYTES, Rounds, in_turn
from .starting import Entry
from .stores.latency import LONGEST_SILENCE, count_at_rate, latencies, moment_of, send_at_rate, stamped
from .stores.load import Load
from .stores.processes import BenchmarkFailed, Job, run_together
from .stores.result import Result, Sample, summarize
from .stores.wording import FIXED_RATE

PeerKind = type[Peer]


def run_latencies(
    entries: Sequence[Entry], plan: Rounds, *, say: Callable[[str], None]
) -> tuple[list[Result], list[str]]:
    """A result for each queue that other processes can join, and which of them failed on the way."""
    load = Load(body_bytes=BODY_BYTES, rate=plan.rate, seconds=plan.seconds)
    joined = [entry for entry in entries if entry.peer.wakes]
    samples: dict[str, list[Sample]] = {}

    def work(entry: Entry, _: int) -> None:
        entry.peer.leave()
        try:
            samples.setdefault(entry.peer.name, []).append(latency(entry.peer, load))
        finally:
            entry.peer.join(entry.peer.place)

    say(FIXED_RATE)
    failed = in_turn(joined, range(1, plan.latency_rounds + 1), work, say=say)
    results = [
        summarize(FIXED_RATE, "ms", load, taken, subject=name)
        for name, taken in samples.items()
        if name not in failed
    ]
    return results, [f"the latency of {reason}" for reason in failed.values()]


def latency(peer: Peer, load: Load) -> Sample:
    """Milliseconds from the moment at which a message was to be sent to its receipt; raises BenchmarkFailed."""
    joining = (type(peer), peer.place, load)
    return latencies(run_together([Job(_send, joining), Job(collect, joining)])[1])


def _send(ready: Callable[[], float], kind: PeerKind, place: Any, load: Load) -> None:
    peer = kind()
    peer.join(place)
    send_first(peer, load)
    send_at_rate(ready(), load, lambda body: peer.send_singles([body]))
    peer.leave()


def send_first(peer: Peer, load: Load) -> None:
    """Send the message with which a receiver begins, and which does not count."""
    peer.send_singles([stamped(time.monotonic(), load.body_bytes)])


def collect(ready: Callable[[], float], kind: PeerKind, place: Any, load: Load) -> list[float]:
    """Until all have come, and nothing comes any more: so all are acked."""
    peer, count = kind(), count_at_rate(load)
    peer.join(place)
    seconds: list[float] = []
    first, heard = b"", time.monotonic()  # the one that does not count
    for bodies in peer.receiving():
        now = time.monotonic()
        if bodies and not first:
            first = bodies[0]
            ready()
        seconds += [now - moment_of(body) for body in bodies if body != first]
        if bodies:
            heard = time.monotonic()
        elif len(seconds) >= count:
            break
        elif now - heard > LONGEST_SILENCE:
            raise BenchmarkFailed(f"{count - len(seconds)} of {count} messages did not come")
    peer.leave()
    if len(seconds) > count:
        raise BenchmarkFailed(f"{len(seconds) - count} of {count} messages came twice")
    return seconds

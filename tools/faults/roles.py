"""The parts that clients play."""

from __future__ import annotations

import signal

from shardq.base.clock import SystemClock
from shardq.base.waits import Flag
from shardq.client import Client
from shardq.storage.opening import open_store
from shardq.storage.store import Store

from .asking import Answering, Asking, Permitted
from .assignment import Assignment
from .away import Away
from .defects import with_defect
from .dial import Dial
from .filming import Filming, Watching
from .flowing import Ordering, Running
from .logged_claims import LoggedClaims
from .moving import Moving
from .pooling import Offering, Pooling, WritingOff
from .producing import Producing, Supplying
from .publishing import Publishing, Subscribing
from .receiving import Arriving, Collecting, Keeping, Overlapping, Prefetching, Working
from .saving import Saving
from .sparking import Sparking
from .stage import CONSUMERS
from .ticking import Ticking

__all__ = ["play"]

ROLES = {
    "produce": Producing,
    "spark": Sparking,
    "work": Working,
    "keep": Keeping,
    "ahead": Prefetching,
    "overlap": Overlapping,
    "collect": Collecting,
    "supply": Supplying,
    "move": Moving,
    "arrive": Arriving,
    "ask": Asking,
    "answer": Answering,
    "permit": Permitted,
    "publish": Publishing,
    "subscribe": Subscribing,
    "tick": Ticking,
    "order": Ordering,
    "run": Running,
    "film": Filming,
    "watch": Watching,
    "offer": Offering,
    "pool": Pooling,
    "write-off": WritingOff,
    "save": Saving,
}


def play(assignment: Assignment, dial: Dial) -> None:
    """Play the role until its work is done, or a SIGTERM comes."""
    stopped = Flag()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    store: Store = with_defect(assignment.defect, open_store(assignment.url, SystemClock()))
    store = Away(store, dial, assignment.queue)
    if assignment.role in CONSUMERS:
        store = LoggedClaims(store, assignment, dial)
    with Client(store, retry_seconds=assignment.retry_seconds) as client:
        role = ROLES[assignment.role](assignment, dial, client, stopped)
        signal.signal(signal.SIGUSR1, lambda *_: role.interrupt())
        try:
            role.run()
        finally:
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # a late one must not end the process

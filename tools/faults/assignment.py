"""What a client process is told when it starts."""

from __future__ import annotations

import msgspec

__all__ = ["ASSIGNMENT", "Assignment"]

ASSIGNMENT = "SHARDQ_FAULTS_ASSIGNMENT"
"""The variable in which the Python processes of Spark find it, as JSON."""


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """One client: its role, its queue, where it writes its history, and how its surroundings are distorted."""

    # produce, spark, work, keep, ahead, overlap, collect; of the side queue: supply, move, arrive; of the asked: ask,
    # answer, permit; of the topic: publish, subscribe; of the schedule: tick; of workflows: order, run; of large
    # bodies: film, watch; of the pool: offer, pool, write-off; of backups: save
    role: str
    name: str
    seed: int
    url: str
    queue: str
    log: str
    dial: str  # the file that sets its clock and tells it to hurry
    first: int = 0  # the number of the producer's first message
    messages: int = 0
    rate: float = 100.0  # messages a second
    lease: float = 5.0
    retry_seconds: float = 2.0
    store_goes_by_clock: bool = False  # the store's time is this process's: it is set for all at once
    sleeps: bool = True  # its clocks stand still while its machine is suspended
    detours: dict[str, tuple[str, int]] = {}  # host:port -> where connections to it go instead
    defect: str = ""  # a class of tools.faults.defects, for the test of the campaign itself

"""The comparison itself: rounds of all peers in turn, so that what disturbs the machine disturbs all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from .peer import Peer, last_words
from .singles import SINGLE_KINDS, measure_singles
from .starting import Entry
from .stores.load import Load, bodies
from .stores.result import Figure, Result, Sample, summarize
from .usage import Usage

BULK_SEND, RECEIVE = "bulk send", "receive and ack"
SINGLE_SEND, RECEIVE_SINGLES = "single sends", "receive and ack of singles"
KINDS = (BULK_SEND, RECEIVE, SINGLE_SEND, RECEIVE_SINGLES)
PROCESSOR, DISK = "processor time", "files"
UNITS = {PROCESSOR: "s per million messages", DISK: "MB per million messages"}
BODY_BYTES = 512
MILLION = 1_000_000


class Rounds(msgspec.Struct, frozen=True, kw_only=True):
    """How often, and how much: messages in bulk and one by one, and how many of each are received at a time.

    ``few`` are those of each kind in which every step concerns one message. In ``latency_rounds`` of their own,
    messages at a ``rate`` per second for some ``seconds``.
    """

    rounds: int
    warm_ups: int = 1  # rounds before those that count
    messages: int
    singles: int
    few: int
    batch: int = 500
    single_batch: int = 500
    latency_rounds: int = 1
    rate: float
    seconds: float
    load_seconds: float = 0.0  # of each rate of a load that rises; none without


def run_rounds(
    entries: Sequence[Entry], plan: Rounds, *, say: Callable[[str], None]
) -> tuple[list[Result], list[str]]:
    """Results for each queue and kind, and which queues failed on the way and were left out from then on.

    The queues are open already. Warm-ups are not counted, but for the growth of the files in the first one: they were
    empty then.
    """
    samples: dict[str, dict[str, list[Sample]]] = {}
    first = 1 - plan.warm_ups

    def work(entry: Entry, number: int) -> None:
        taken = _first(entry, plan) if number == first else _round(entry, plan)
        for kind, sample in taken.items() if number == first or number > 0 else ():
            samples.setdefault(entry.peer.name, {}).setdefault(kind, []).append(sample)

    failed = in_turn(entries, range(first, plan.rounds + 1), work, say=say)
    results = [
        summarize(
            kind, UNITS.get(kind, "messages/s"), load, samples[entry.peer.name][kind], subject=entry.peer.name
        )
        for entry in entries
        if entry.peer.name not in failed
        for kind, load in _loads(entry.peer, plan).items()
        if kind in samples[entry.peer.name]
    ]
    return results, list(failed.values())


def in_turn(
    entries: Sequence[Entry], rounds: range, work: Callable[[Entry, int], None], *, say: Callable[[str], None]
) -> dict[str, str]:
    """Do the work for each queue in each round; why queues failed and were left out from then on, by name."""
    failed: dict[str, str] = {}
    for number in rounds:
        for entry in entries:
            name = entry.peer.name
            if name in failed:
                continue
            say(f"round {number} of {rounds[-1]}: {name}")
            try:
                work(entry, number)
            except Exception as reason:  # one queue's failure must not cost the others' figures
                failed[name] = f"{name} (failed in round {number}: {last_words(str(reason))})"
    return failed


def _loads(peer: Peer, plan: Rounds) -> dict[str, Load]:
    messages = max(plan.singles, plan.few, int(plan.messages * peer.share))
    bulk = Load(messages=messages, body_bytes=BODY_BYTES, batch=plan.batch)
    single = Load(messages=plan.singles, body_bytes=BODY_BYTES, batch=plan.single_batch)
    return {
        **dict.fromkeys((BULK_SEND, RECEIVE, PROCESSOR, DISK), bulk),
        **dict.fromkeys((SINGLE_SEND, RECEIVE_SINGLES), single),
        **dict.fromkeys(SINGLE_KINDS, Load(messages=plan.few, body_bytes=BODY_BYTES, batch=1)),
    }


def _first(entry: Entry, plan: Rounds) -> dict[str, Sample]:
    """A round of which only the size of the files counts, which are new."""
    if entry.usage is None:
        _round(entry, plan)
        return {}
    look = entry.usage.settled_file_bytes
    sizes = [look()]
    _round(entry, plan, waiting=lambda: sizes.append(look()))
    messages = _loads(entry.peer, plan)[BULK_SEND].messages
    return {DISK: Sample((sizes[1] - sizes[0]) / messages)}  # bytes a message are MB a million


def _round(entry: Entry, plan: Rounds, *, waiting: Callable[[], None] = lambda: None) -> dict[str, Sample]:
    """``waiting`` is called while the messages of the bulk send wait."""
    peer, loads = entry.peer, _loads(entry.peer, plan)
    many = list(bodies(loads[BULK_SEND].messages, BODY_BYTES))
    few = many[: loads[SINGLE_SEND].messages]
    meter = _Meter(entry.usage, len(many)) if entry.usage else None
    sent = _rate(len(many), lambda: peer.send_bulk(many))
    waiting()
    received = _rate(len(many), lambda: _receive(peer, loads[RECEIVE]))
    processor = {PROCESSOR: meter.processor()} if meter else {}
    return {
        BULK_SEND: sent,
        RECEIVE: received,
        **processor,
        SINGLE_SEND: _rate(len(few), lambda: peer.send_singles(few)),
        RECEIVE_SINGLES: _rate(len(few), lambda: _receive(peer, loads[RECEIVE_SINGLES])),
        **dict(measure_singles(peer, many[: plan.few])),
    }


class _Meter:
    """The processor time that is used from now on, for a million messages."""

    def __init__(self, usage: Usage, messages: int) -> None:
        self._usage, self._scale = usage, MILLION / messages
        self._own, self._others = usage.own_seconds(), usage.other_seconds()

    def processor(self) -> Sample:
        own = (self._usage.own_seconds() - self._own) * self._scale
        others = (self._usage.other_seconds() - self._others) * self._scale
        return Sample(own + others, (Figure("this process", own), Figure("others", others)))


def _receive(peer: Peer, load: Load) -> None:
    size, sent = peer.receive(load.messages, load.batch), load.messages * load.body_bytes
    if size != sent:
        raise RuntimeError(f"{sent} bytes were sent and {size} received")


def _rate(count: int, work: Callable[[], None]) -> Sample:
    began = time.perf_counter()
    work()
    return Sample(count / (time.perf_counter() - began))

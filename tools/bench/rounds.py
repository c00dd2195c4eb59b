"""The comparison itself: rounds of all peers in turn, so that what disturbs the machine disturbs all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from shardq.bench.load import Load, bodies
from shardq.bench.result import Result, Sample, summarize

from .peer import Peer, PeerMissing

BULK_SEND, RECEIVE = "bulk send", "receive and ack"
SINGLE_SEND, RECEIVE_SINGLES = "single sends", "receive and ack of singles"
KINDS = (BULK_SEND, RECEIVE, SINGLE_SEND, RECEIVE_SINGLES)
BODY_BYTES = 512


class Rounds(msgspec.Struct, frozen=True, kw_only=True):
    """How often, and how much: messages in bulk and one by one, and how many of each are received at a time."""

    rounds: int
    messages: int
    singles: int
    batch: int = 500
    single_batch: int = 500


def run_rounds(peers: Sequence[Peer], plan: Rounds, *, say: Callable[[str], None]) -> list[Result]:
    """A result for each peer and kind; the peers are open already. The first round is a warm-up and is not counted."""
    samples: dict[tuple[str, str], list[Sample]] = {}
    for number in range(plan.rounds + 1):
        for peer in peers:
            say(f"round {number} of {plan.rounds}: {peer.name}")
            for kind, value in _round(peer, _loads(peer, plan)):
                if number:
                    samples.setdefault((peer.name, kind), []).append(Sample(value))
    return [
        summarize(
            kind,
            "messages/s",
            _loads(peer, plan)[kind],
            samples[peer.name, kind],
            subject=peer.name,
        )
        for peer in peers
        for kind in KINDS
    ]


def open_all(
    found: Sequence[Peer | PeerMissing], folder: Path, stack: ExitStack
) -> tuple[list[Peer], list[str]]:
    """Start each peer in a folder of its own, until the stack ends; those that started, and why others did not."""
    peers, missing = [], []
    for number, peer in enumerate(found):
        try:
            peers.append(_open(peer, folder / str(number), stack))
        except PeerMissing as reason:
            missing.append(str(reason))
    return peers, missing


def _open(peer: Peer | PeerMissing, folder: Path, stack: ExitStack) -> Peer:
    if isinstance(peer, PeerMissing):
        raise peer
    folder.mkdir()
    peer.open(folder)
    stack.callback(peer.close)
    return peer


def _loads(peer: Peer, plan: Rounds) -> dict[str, Load]:
    messages = max(plan.singles, int(plan.messages * peer.share))
    bulk = Load(messages=messages, body_bytes=BODY_BYTES, batch=plan.batch)
    single = Load(messages=plan.singles, body_bytes=BODY_BYTES, batch=plan.single_batch)
    return {BULK_SEND: bulk, RECEIVE: bulk, SINGLE_SEND: single, RECEIVE_SINGLES: single}


def _round(peer: Peer, loads: dict[str, Load]) -> list[tuple[str, float]]:
    many = list(bodies(loads[BULK_SEND].messages, BODY_BYTES))
    few = many[: loads[SINGLE_SEND].messages]
    return [
        (BULK_SEND, _rate(len(many), lambda: peer.send_bulk(many))),
        (RECEIVE, _rate(len(many), lambda: _receive(peer, loads[RECEIVE]))),
        (SINGLE_SEND, _rate(len(few), lambda: peer.send_singles(few))),
        (RECEIVE_SINGLES, _rate(len(few), lambda: _receive(peer, loads[RECEIVE_SINGLES]))),
    ]


def _receive(peer: Peer, load: Load) -> None:
    size, sent = peer.receive(load.messages, load.batch), load.messages * load.body_bytes
    if size != sent:
        raise RuntimeError(f"{peer.name}: {sent} bytes were sent and {size} received")


def _rate(count: int, work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)

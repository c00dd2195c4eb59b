"""A wrong low watermark, cursor or due index makes a message late, not invisible; order holds while writes go on."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from shardq.base.shard import Shard
from shardq.errors import StoreUnavailable
from shardq.storage.cassandra import bundles
from shardq.storage.cassandra.connecting import Address
from shardq.storage.cassandra.session import Session, Statement
from shardq.storage.cassandra.shard_rows import WideRow
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.requests import Acknowledge, Append, Bundle, Claim, Fenced, Forward, Span
from shardq.testing import BundleFactory

pytestmark = pytest.mark.server

SECOND = 1_000_000
MINUTE = 60 * SECOND
Opens = Callable[[], CassandraStore]


def take(store: CassandraStore, shard: Shard, limit: int = 100) -> tuple[list[Bundle], tuple[Span, ...]]:
    token = os.urandom(16)
    slices = store.claim(Claim(shard, token, limit, MINUTE)).slices
    return [each.bundle for each in slices], tuple(
        Span(each.bundle.id, each.first, each.count, token) for each in slices
    )


def consume(store: CassandraStore, shard: Shard) -> list[Bundle]:
    found, spans = take(store, shard)
    assert store.acknowledge(Acknowledge(shard, spans)) == Fenced()
    return found


def found_after_a_deep_look(clients: Sequence[CassandraStore], shard: Shard, hidden: Bundle) -> None:
    """Nobody is given it before, and everybody sees it afterwards."""
    for client in clients:
        assert take(client, shard) == ([], ())
    (probe,) = clients[0].probe([shard], deep=True)
    assert (probe.priority, probe.due) == (hidden.priority, hidden.due)
    for client in clients:
        assert client.count(shard).ready == hidden.count
        assert client.probe([shard])[0].priority == hidden.priority
    assert consume(clients[-1], shard) == [hidden]


def raise_floors(store: CassandraStore, shard: Shard) -> None:
    """As consumers do who find nothing, long after something was taken."""
    make = BundleFactory(store.now)
    store.append(Append(shard, (make(delay=-3600),)))
    consume(store, shard)
    now = store.now
    store.now = lambda: now() + 10 * SECOND  # type: ignore[method-assign]
    store.probe([shard])
    store.now = now  # type: ignore[method-assign]


def test_a_send_that_does_not_know_how_late_it_is_is_found_by_a_deep_look(
    store: CassandraStore, open_store: Opens, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a shard whose low watermarks are high, and a producer whose clock stood still for two minutes
    raise_floors(store, shard)
    sleeper = open_store()
    now = sleeper.clock.now
    monkeypatch.setattr(sleeper.clock, "now", lambda: now() - 2 * MINUTE)
    hidden = BundleFactory(sleeper.now)(2)
    sleeper.append(Append(shard, (hidden,)))
    found_after_a_deep_look([store, open_store()], shard, hidden)


def test_a_move_whose_announcement_is_lost_is_found_by_a_deep_look(
    store: CassandraStore, open_store: Opens, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a message that is exchanged for another one, which is late when it is stored
    make = BundleFactory(store.now)
    store.append(Append(shard, (make(),)))
    _, spans = take(store, shard)
    late = make(delay=-60)

    def fail(*_: object) -> None:
        raise StoreUnavailable("lost on purpose")

    with monkeypatch.context() as lost:
        lost.setattr(bundles, "lower", fail)
        # When nobody is told, because that fails and the repetition finds it done
        with pytest.raises(Exception, match="repeat the call"):
            store.forward(Forward(Acknowledge(shard, spans), Append(shard, (late,))))
    assert store.forward(Forward(Acknowledge(shard, spans), Append(shard, (late,)))).lost == spans
    # Then a deep probe finds it all the same
    other = open_store()
    (probe,) = other.probe([shard], deep=True)
    assert probe.due == late.due
    assert consume(other, shard) == [late]


@pytest.mark.parametrize("ahead", [30 * SECOND, 60 * MINUTE])
def test_a_client_whose_clock_is_ahead_hides_nothing_from_those_whose_clocks_are_right(
    store: CassandraStore, open_store: Opens, shard: Shard, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a client whose clock is ahead, which claims and looks, and raises low watermarks by it
    wrong = open_store()
    now = wrong.clock.now
    monkeypatch.setattr(wrong.clock, "now", lambda: now() + ahead)
    make = BundleFactory(store.now)
    store.append(Append(shard, (make(),)))
    assert len(consume(wrong, shard)) == 1
    wrong.probe([shard])
    row = WideRow(store.session, str(store.place(shard)))
    assert row.control().control.watermarks[0] > store.now() + ahead - MINUTE
    # When others send with right clocks, then it is delivered at once, whoever claims
    for client in (store, open_store()):
        sent = make()
        client.append(Append(shard, (sent,)))
        assert client.count(shard).ready == 1
        assert consume(client, shard) == [sent]


class _Slow(Session):
    """Holds its plain writes back until it is told to go on."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self.begun, self.go_on = threading.Event(), threading.Event()

    def write(self, statements: Sequence[Statement]) -> None:
        self.begun.set()
        assert self.go_on.wait(60)
        super().write(statements)


def test_what_was_stored_before_a_claim_began_is_not_passed_over_for_what_was_sent_later(
    store: CassandraStore, open_with: Callable[..., tuple[CassandraStore, Any]], shard: Shard
) -> None:
    # Given a send whose write takes its time, while what was sent after it is stored and claimed
    make, (slow, session) = BundleFactory(store.now), open_with(_Slow)
    store.append(Append(shard, (make(),)))
    consume(store, shard)
    session.go_on.set()
    slow.append(Append(shard, (make(priority=9),)))
    session.begun.clear()
    session.go_on.clear()
    earlier = make()
    sending = threading.Thread(target=slow.append, args=(Append(shard, (earlier,)),))
    sending.start()
    assert session.begun.wait(60)
    store.append(Append(shard, (make(), make())))
    take(store, shard, 2)
    # When it has returned, and more is sent
    session.go_on.set()
    sending.join()
    later = make()
    store.append(Append(shard, (later,)))
    # Then the next claim has it first, however many claims there were meanwhile
    assert take(store, shard, 2)[0] == [earlier, later]


def test_singles_that_are_due_at_one_moment_are_passed_by_the_floors_one_by_one(
    store: CassandraStore, open_store: Opens, shard: Shard
) -> None:
    # Given a thousand messages that are due at one moment, some of which are consumed
    make = BundleFactory(store.now)
    due = store.now() - 20 * SECOND
    batch = [make() for _ in range(1200)]
    alike = [Bundle(each.id, 0, due, each.enqueued_at, 1, each.data) for each in batch]
    for start in range(0, len(alike), 100):
        store.append(Append(shard, tuple(alike[start : start + 100])))
    for _ in range(2):
        _, spans = take(store, shard, 500)
        store.acknowledge(Acknowledge(shard, spans))
    # Then a client that comes new begins among them
    row = WideRow(store.session, str(store.place(shard)))
    watermark = row.watermarks(store.now()).places[0]
    assert watermark[0] == due
    assert alike[498].id < watermark[1] <= alike[999].id
    assert len(take(open_store(), shard, 500)[0]) == 200

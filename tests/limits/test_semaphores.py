"""A semaphore has at most so many holders at a time, whatever becomes of them."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

import shardq
from shardq.base.shard import MAX_NAME_LENGTH
from shardq.storage.opening import open_store
from shardq.storage.requests import Claim, Claimed
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock
from tests.forking import forked
from tests.processes import eventually

Connect = Callable[[], shardq.Client]
PATIENCE = 30.0  # seconds


def taken(semaphore: shardq.Semaphore, most: int = 100) -> list[shardq.Permit]:
    """Take permits until there are no more."""
    permits: list[shardq.Permit] = []
    while len(permits) < most:
        try:
            permits.append(semaphore.acquire(timeout=0))
        except shardq.PermitTimeout:
            break
    return permits


def test_two_clients_share_its_permits(connect: Connect) -> None:
    one = connect().semaphore("smtp", permits=5)
    other = connect().semaphore("smtp")
    held = taken(one, 3)
    assert len(taken(other)) == 2
    for permit in held:
        permit.release()
    assert len(taken(other)) == 3
    assert one.state() == shardq.SemaphoreState("smtp", 5, 5, 30.0)


def test_the_end_of_a_block_gives_the_permit_back(client: shardq.Client) -> None:
    semaphore = client.semaphore("smtp", permits=1)
    with semaphore.acquire(timeout=0) as permit:
        assert not permit.lost
        with pytest.raises(shardq.PermitTimeout):
            semaphore.acquire(timeout=0)
    permit.release()
    assert not permit.lost
    with pytest.raises(ZeroDivisionError), semaphore.acquire(timeout=0):
        raise ZeroDivisionError
    assert semaphore.state().held == 0


class StandsStill(WrappedStore):
    """Its process stands still for longer than a lease when the first claim that took something is answered."""

    def __init__(self, inner: Store, clock: ManualClock) -> None:
        super().__init__(inner)
        self.clock: ManualClock | None = clock

    def claim(self, request: Claim) -> Claimed:
        claimed = super().claim(request)
        if claimed.slices and self.clock is not None:
            self.clock.advance(60)
            self.clock = None
        return claimed


def test_a_semaphore_is_a_block_that_holds_a_permit(client: shardq.Client) -> None:
    smtp = client.semaphore("smtp", permits=2)
    with client.semaphore("smtp", permits=2) as permit, smtp as inner:
        assert not permit.lost
        assert smtp.state().held == 2
        with pytest.raises(shardq.PermitTimeout):
            smtp.acquire(timeout=0)
        inner.release()
        assert smtp.state().held == 1
    assert smtp.state().held == 0


def test_the_blocks_of_a_semaphore_in_several_threads_hold_a_permit_each(client: shardq.Client) -> None:
    smtp, together, most = client.semaphore("smtp", permits=3), threading.Barrier(3), list[int]()

    def work() -> None:
        with smtp:
            together.wait(60)
            most.append(smtp.state().held)
            together.wait(60)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [3, 3, 3]
    assert smtp.state().held == 0


def test_a_permit_whose_lease_is_over_before_it_is_handed_out_is_not(url: str, clock: ManualClock) -> None:
    with shardq.Client(StandsStill(open_store(url, clock), clock)) as client:
        semaphore = client.semaphore("smtp", permits=1, lease=20)
        with pytest.raises(shardq.PermitTimeout):
            semaphore.acquire(timeout=0)
        assert not semaphore.acquire(timeout=0).lost


def test_a_permit_comes_back_when_its_holder_died_and_a_late_holder_is_told(
    connect: Connect, clock: ManualClock
) -> None:
    # Given a holder that stands still
    late = connect().semaphore("smtp", permits=1, lease=20)
    permit = late.acquire(timeout=0)
    other = connect().semaphore("smtp")
    clock.advance(19)
    assert taken(other) == []
    # When its lease is over
    clock.advance(1)
    assert permit.lost
    (others,) = taken(other)
    # Then it is told, whatever it asks
    with pytest.raises(shardq.PermitLost):
        permit.check()
    with pytest.raises(shardq.PermitLost):
        permit.release()
    assert not others.lost
    others.release()


def test_the_end_of_a_block_tells_that_the_permit_was_lost(connect: Connect, clock: ManualClock) -> None:
    semaphore = connect().semaphore("smtp", permits=1)
    with pytest.raises(shardq.PermitLost), semaphore.acquire(timeout=0):
        clock.advance(31)
        assert len(taken(connect().semaphore("smtp"))) == 1
    clock.advance(31)
    with pytest.raises(ZeroDivisionError), semaphore.acquire(timeout=0):
        clock.advance(31)
        assert len(taken(connect().semaphore("smtp"))) == 1
        raise ZeroDivisionError


def test_a_late_holder_keeps_a_permit_that_nobody_took(client: shardq.Client, clock: ManualClock) -> None:
    with client.semaphore("smtp", permits=1).acquire(timeout=0):
        clock.advance(31)
    assert len(taken(client.semaphore("smtp"))) == 1


def test_a_permit_is_held_for_as_long_as_its_block_runs(client: shardq.Client, clock: ManualClock) -> None:
    semaphore = client.semaphore("smtp", permits=1, lease=0.15)

    def held_until() -> datetime:
        (stored,) = client.queue("_shardq/permits/smtp").peek()
        return stored.due

    with semaphore.acquire(timeout=0) as permit:
        for _ in range(4):
            until = held_until()
            clock.advance(0.1)
            assert eventually(lambda until=until: held_until() > until)  # type: ignore[misc]
            assert not permit.lost
        assert taken(semaphore) == []


def test_a_permit_that_its_program_forgot_comes_back(client: shardq.Client, clock: ManualClock) -> None:
    semaphore = client.semaphore("smtp", permits=1, lease=0.15)
    semaphore.acquire(timeout=0)
    gc.collect()
    clock.advance(0.2)
    assert eventually(lambda: bool(taken(semaphore)))


def test_who_waits_is_woken_by_a_release(connect: Connect) -> None:
    permit = connect().semaphore("smtp", permits=1).acquire()
    other = connect().semaphore("smtp")
    got: list[shardq.Permit] = []
    waiter = threading.Thread(target=lambda: got.append(other.acquire(timeout=PATIENCE)))
    waiter.start()
    permit.release()
    waiter.join(PATIENCE)
    assert len(got) == 1


def test_it_can_be_lowered_and_raised_while_it_is_used(connect: Connect, clock: ManualClock) -> None:
    one, other = connect().semaphore("smtp", permits=4), connect().semaphore("smtp")
    held = taken(one)
    # When it is lowered, holders of before go on, and nobody else comes
    one.alter(permits=2)
    for permit in held[2:]:
        permit.release()
    assert taken(one) == []
    for permit in held[:2]:
        permit.release()
    assert len(taken(one)) == 2
    # When it is raised, there are more, in other clients within ten seconds
    other.alter(permits=40)
    clock.advance(6)
    assert len(taken(other)) == 38
    one.state()  # reads the number of permits again, as happens within a second
    assert taken(one) == []


def test_permits_that_are_removed_while_they_are_held_never_make_too_many(
    connect: Connect, clock: ManualClock
) -> None:
    client = connect()
    semaphore = client.semaphore("smtp", permits=20, lease=600)
    held = taken(semaphore)
    client.queue("_shardq/permits/smtp").purge()
    # As long as a lease of before may last, nobody gets a permit
    other = connect().semaphore("smtp")
    for _ in range(14):
        clock.advance(60)
        assert taken(other) == []
    # Then all are there again, and the holders of before are told
    clock.advance(6 * 60)
    assert len(taken(other)) == 20
    assert all(permit.lost for permit in held)
    with pytest.raises(shardq.PermitLost):
        held[0].release()


def test_a_holder_learns_that_its_permit_was_removed(client: shardq.Client, clock: ManualClock) -> None:
    permit = client.semaphore("smtp", permits=2, lease=0.15).acquire(timeout=0)
    client.queue("_shardq/permits/smtp").purge()
    assert eventually(lambda: permit.lost)


def test_a_semaphore_that_is_deleted_can_be_created_again(connect: Connect) -> None:
    client = connect()
    semaphore = client.semaphore("smtp", permits=1)
    permit = semaphore.acquire(timeout=0)
    client.delete_queue("_shardq/permits/smtp")
    with pytest.raises(shardq.QueueNotFound, match=r"permits=|shardq semaphore"):
        client.semaphore("smtp")
    again = client.semaphore("smtp", permits=3)
    assert len(taken(again)) == 3
    with pytest.raises(shardq.PermitLost):
        permit.release()


def test_opening_changes_nothing_of_a_semaphore_that_exists(connect: Connect) -> None:
    connect().semaphore("smtp", permits=2)
    again = connect().semaphore("smtp", permits=9, lease=5)
    assert (again.permits, again.lease) == (2, 30.0)


def test_no_permits_are_given_out_while_its_queue_is_paused(client: shardq.Client) -> None:
    semaphore = client.semaphore("smtp", permits=2)
    client.queue("_shardq/permits/smtp").pause()
    assert taken(semaphore) == []
    client.queue("_shardq/permits/smtp").resume()
    assert len(taken(semaphore)) == 2


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"permits": 0}, "permits=0"),
        ({"permits": 1025}, "permits=1025"),
        ({"permits": 1.5}, "permits=1.5"),
        ({"permits": True}, "permits=True"),
        ({"permits": 1, "lease": 0}, "lease=0"),
        ({"permits": 1, "lease": 601}, "lease=601"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_stored(
    client: shardq.Client, arguments: dict[str, Any], named: str
) -> None:
    with pytest.raises(shardq.InvalidSetting, match=named):
        client.semaphore("smtp", **arguments)
    with pytest.raises(shardq.InvalidName):
        client.semaphore("a name", permits=1)
    with pytest.raises(shardq.InvalidName):
        client.semaphore("x" * (MAX_NAME_LENGTH - 1), permits=1)
    client.create_schema()
    assert client.queues() == ()


def test_a_queue_of_permits_without_a_number_is_no_semaphore(client: shardq.Client) -> None:
    client.create_queue("_shardq/permits/odd")
    with pytest.raises(shardq.InvalidSetting, match="max_in_flight"):
        client.semaphore("odd").acquire(timeout=0)


def test_a_forked_child_does_not_give_back_its_parents_permit(connect: Connect) -> None:
    semaphore = connect().semaphore("smtp", permits=2)
    with semaphore.acquire(timeout=0) as permit:

        def child() -> str:
            permit.release()
            with semaphore.acquire(timeout=0):
                return str(len(taken(semaphore)))

        assert forked(child) == "0"
        assert semaphore.state().held == 1

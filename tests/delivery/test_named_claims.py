"""Claims with a name: every attempt gets what the first one got."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress

import msgspec
import pytest

import shardq
from shardq.base.clock import microseconds
from shardq.base.shard import Shard, group_shard
from shardq.core.context import retry
from shardq.core.receiving.named_claim_log import SETTLED_AT_ONCE, ClaimName
from shardq.core.receiving.named_claims import NamedClaims
from shardq.core.settling.receipts import dead_letter_receipts
from shardq.storage.opening import open_store
from shardq.storage.requests import Claim, Claimed, DedupeEntry, StoredSlice
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock
from shardq.testing.seam import context_of, store_of
from tests.function_calls import function_calls

LEASE = 30.0


@pytest.fixture
def queue(client: shardq.Client) -> shardq.Queue:
    return client.create_queue("jobs", shards=1, time_shards=1, visibility_timeout=LEASE)


@pytest.fixture
def claims(connect, queue: shardq.Queue):
    """The claims as another process sees them."""

    def opened() -> NamedClaims:
        context = context_of(connect().queue("jobs"))
        return NamedClaims(context, lease=microseconds(LEASE), memory=microseconds(86_400))

    return opened


def named(name: str) -> ClaimName:
    return ClaimName(Shard("jobs", 0, 0), name)


def take(claims: NamedClaims, name: str, limit: int = 100, *, strict: bool = False) -> list[int]:
    taking = claims.take(named(name), limit, owner="test", strict=strict)
    return [int(body) for piece in taking.held for body in piece.messages.bodies]


def fill(queue: shardq.Queue, first: int, last: int) -> None:
    queue.producer(bundle_messages=10).send_many([b"%d" % number for number in range(first, last)])


def test_a_repeated_claim_gives_the_same_messages_in_any_process(queue, claims) -> None:
    fill(queue, 0, 100)
    first = take(claims(), "a", 25)
    assert len(first) == 25
    assert take(claims(), "a", 25) == take(claims(), "a", 99) == first
    assert queue.counts().in_flight == 25
    assert {message.deliveries for message in queue.peek(100)} == {0, 1}


def test_a_repetition_that_cannot_confirm_keys_leaves_the_first_attempt_alone(
    queue, claims, url: str, clock: ManualClock
) -> None:
    queue.producer().send(b"1", dedupe_key="one")
    assert take(claims(), "a") == [1]
    plan = FaultPlan(faults=(Fault("confirm_keys", 1, FaultKind.UNAVAILABLE),))
    with shardq.Client(FaultyStore(open_store(url, clock), plan), retry_seconds=0) as failing:
        repeated = NamedClaims(context_of(failing.queue("jobs")), lease=microseconds(LEASE), memory=10**12)
        with pytest.raises(shardq.StoreUnavailable):
            take(repeated, "a")
    assert len(queue.consumer().receive(10)) == 0
    assert take(claims(), "a") == [1]
    assert claims().ack([named("a")]) == 0


def test_a_claim_that_found_nothing_stays_empty(queue, claims) -> None:
    assert take(claims(), "a") == []
    fill(queue, 0, 10)
    assert take(claims(), "a") == []
    assert (queue.counts().ready, queue.counts().in_flight) == (10, 0)
    assert {message.deliveries for message in queue.peek(100)} == {0}
    assert len(take(claims(), "b")) == 10


def test_an_ack_by_name_finishes_what_the_claim_got_and_nothing_else(queue, claims) -> None:
    fill(queue, 0, 50)
    got = take(claims(), "a", 20)
    assert claims().ack([named("a"), named("never taken")]) == 0
    counts = queue.counts()
    assert counts == shardq.QueueCounts(30, 0, 0, 0, counts.oldest, counts.ready_since)
    assert claims().ack([named("a")]) == 0
    assert sorted(got + take(claims(), "b")) == list(range(50))
    assert len(take(claims(), "never taken")) == 0


def test_a_repetition_after_the_ack_takes_nothing_new(queue, claims) -> None:
    fill(queue, 0, 50)
    take(claims(), "a", 20)
    claims().ack([named("a")])
    assert take(claims(), "a", 20) == []
    assert queue.counts().ready == 30


def test_what_is_damaged_in_the_store_stops_no_claim_and_is_left_where_it_is(
    queue, claims, url, clock, caplog
) -> None:
    fill(queue, 0, 1)
    identity = queue.producer().send(b"damaged")
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database, database:
        database.execute(
            "UPDATE slice SET data = x'c1' WHERE bundle_id = ?", [bytes.fromhex(identity.split(":")[3])]
        )
    for _ in range(2):
        assert take(claims(), "a") == [0]
    assert identity in caplog.text
    assert claims().ack([named("a")]) == 0
    assert queue.counts().in_flight == 1
    assert take(claims(), "b") == []
    clock.advance(LEASE)
    assert take(claims(), "c") == []
    with pytest.raises(shardq.InvalidMessage, match=identity):
        queue.peek()
    assert queue.remove(identity)
    assert queue.peek() == []


def test_what_a_repeated_ack_costs_grows_with_the_messages_and_not_with_their_square(queue, claims) -> None:
    costs = []
    for count in (100, 800):
        queue.producer(bundle_messages=1).send_many([b"0"] * count)
        assert len(take(claims(), f"{count}", count)) == count
        settling = claims()
        assert settling.ack([named(f"{count}")]) == 0
        costs.append(function_calls(lambda: settling.ack([named(f"{count}")])))  # noqa: B023 - called at once
    assert costs[1] < 10 * costs[0]


def test_an_extension_by_name_keeps_the_messages_from_others(queue, claims, clock) -> None:
    fill(queue, 0, 10)
    take(claims(), "a")
    for _ in range(5):
        clock.advance(LEASE * 0.9)
        assert claims().extend([named("a")]) == 0
    assert len(queue.consumer().receive(10)) == 0
    clock.advance(LEASE * 1.1)
    assert len(queue.consumer().receive(10)) == 10


def test_what_many_claims_got_is_settled_some_claims_at_a_time(queue, claims, monkeypatch) -> None:
    fill(queue, 0, 200)
    names = [named(f"a{number}") for number in range(20)]
    got = [number for name in names for number in take(claims(), name.name, 10)]
    assert sorted(got) == list(range(200))
    settling = claims()
    read = []
    reserve = settling.context.store.reserve_keys
    monkeypatch.setattr(
        settling.context.store,
        "reserve_keys",
        lambda *arguments: read.append(len(arguments[1])) or reserve(*arguments),
    )
    assert settling.ack(names) == 0
    assert sorted(read) == [4, 8, 8]
    assert queue.counts() == shardq.QueueCounts(0, 0, 0, 0, None)


def test_claims_are_settled_some_at_the_same_time_and_no_more_than_that(queue, claims, monkeypatch) -> None:
    fill(queue, 0, 100)
    names = [named(f"a{number}") for number in range(100)]
    assert sorted(number for name in names for number in take(claims(), name.name, 1)) == list(range(100))
    settling, another = claims(), threading.Event()
    running, most = [0], [0]
    reserve = settling.context.store.reserve_keys

    def count(*arguments):
        running[0] += 1
        most[0] = max(most[0], running[0])
        if arguments[1][0].key.endswith(named("a0").token.hex()):
            assert another.wait(30)
        else:
            another.set()
        try:
            return reserve(*arguments)
        finally:
            running[0] -= 1

    monkeypatch.setattr(settling.context.store, "reserve_keys", count)
    assert settling.ack(names) == 0
    assert 2 <= most[0] <= SETTLED_AT_ONCE
    assert queue.counts() == shardq.QueueCounts(0, 0, 0, 0, None)


def test_an_extension_by_name_leaves_what_an_application_extended_or_gave_back(queue, claims, clock) -> None:
    fill(queue, 0, 10)
    (piece,) = claims().take(named("a"), 10, owner="test", strict=False).held
    receipts = [f"{piece.shard}:{piece.bundle.id.hex()}:{place}:{piece.token.hex()}" for place in range(10)]
    queue.extend(receipts[:3], LEASE * 10)
    queue.release(receipts[3:5], delay=LEASE * 20)
    context = claims().context
    keeper = NamedClaims(context, lease=microseconds(LEASE), memory=microseconds(86_400))
    assert keeper.extend([named("a")]) == 2
    assert context.counters.read().lease_lost == 0
    clock.advance(LEASE * 1.1)
    assert len(queue.consumer().receive(10)) == 5
    clock.advance(LEASE * 9)
    assert len(queue.consumer().receive(10)) == 8


def test_what_was_lost_is_left_out_or_raised_and_never_replaced(queue, claims, clock) -> None:
    fill(queue, 0, 20)
    first = take(claims(), "a", 20)
    clock.advance(LEASE + 1)
    with queue.consumer() as other:
        stolen = {int(message.body) for message in other.receive(5)}
        again = take(claims(), "a", 20)
        assert again == [number for number in first if number not in stolen]
        assert claims().take(named("a"), 20, owner="test", strict=False).got == 20
        with pytest.raises(shardq.LeaseLost, match="5 messages"):
            take(claims(), "a", 20, strict=True)
        assert claims().ack([named("a")]) == 5


def test_what_was_moved_by_its_receipt_is_not_lost_to_an_ack_by_name(queue, claims) -> None:
    queue.alter(history_retention=60)
    fill(queue, 0, 10)
    (piece,) = claims().take(named("a"), 10, owner="test", strict=False).held
    receipts = [f"{piece.shard}:{piece.bundle.id.hex()}:{place}:{piece.token.hex()}" for place in range(10)]
    queue.ack(receipts[:3])
    dead_letter_receipts(context_of(queue), receipts[3:6], "broken")
    queue.release(receipts[6:8], delay=LEASE)
    for _ in range(2):
        assert claims().ack([named("a")]) == 2
    assert {int(message.body) for message in queue.peek()} == {6, 7}


def test_however_many_were_moved_by_their_receipts_none_is_lost_to_an_ack_by_name(queue, claims) -> None:
    fill(queue, 0, 700)
    held = claims().take(named("a"), 700, owner="test", strict=False).held
    receipts = [
        f"{piece.shard}:{piece.bundle.id.hex()}:{piece.first + place}:{piece.token.hex()}"
        for piece in held
        for place in range(piece.count)
    ]
    dead_letter_receipts(context_of(queue), receipts[:650], "broken")
    queue.release(receipts[650:655], delay=LEASE)
    assert claims().ack([named("a")]) == 5


def test_what_was_lost_and_came_back_is_not_a_part_of_the_claim_any_more(queue, claims, clock) -> None:
    fill(queue, 0, 20)
    assert len(take(claims(), "a")) == 20
    clock.advance(LEASE + 1)
    batch = queue.consumer().receive(20)
    assert take(claims(), "a") == []  # the attempt that counts, maybe
    batch.release()
    assert take(claims(), "a") == []
    assert claims().ack([named("a")]) == 20
    assert len(take(claims(), "b")) == 20


@pytest.mark.parametrize("answered", [0, 1])
def test_a_repetition_gives_all_that_it_holds_though_the_store_tells_of_a_part(
    queue, claims, monkeypatch, answered
) -> None:
    """An ack by name finishes all that the first attempt got."""
    fill(queue, 0, 20)
    first = take(claims(), "a")
    repeated = claims()
    store = repeated.context.store
    claim = store.claim

    def claim_in_part(request: Claim) -> Claimed:
        found = claim(request)
        return msgspec.structs.replace(found, slices=found.slices[:answered], contended=not answered)

    monkeypatch.setattr(store, "claim", claim_in_part)
    monkeypatch.setattr(retry, "_PAUSES", (0, 0))
    assert take(repeated, "a") == first
    assert claims().ack([named("a")]) == 0
    assert queue.peek() == []


def test_a_repetition_gives_the_rest_of_a_bundle_of_which_a_message_is_given_back_meanwhile(
    queue, claims, monkeypatch
) -> None:
    fill(queue, 0, 10)
    (piece,) = claims().take(named("a"), 10, owner="test", strict=False).held
    repeated = claims()
    store = repeated.context.store
    find_many = store.find_many

    def find_later(shard: Shard, places: Sequence[tuple[bytes, int]]) -> tuple[StoredSlice | None, ...]:
        monkeypatch.setattr(store, "find_many", find_many)
        queue.release([f"{shard}:{piece.bundle.id.hex()}:{place}:{piece.token.hex()}" for place in (0, 5)])
        return find_many(shard, places)

    monkeypatch.setattr(store, "claim", lambda request: Claimed((), 0, contended=True))
    monkeypatch.setattr(retry, "_PAUSES", (0, 0))
    monkeypatch.setattr(store, "find_many", find_later)
    assert take(repeated, "a") == [1, 2, 3, 4, 6, 7, 8, 9]
    assert claims().ack([named("a")]) == 2
    assert [int(message.body) for message in queue.peek()] == [0, 5]


@pytest.mark.parametrize("over", [False, True], ids=["held", "lease over"])
def test_a_repetition_gives_all_that_it_holds_though_the_store_has_forgotten_the_claim(
    queue, claims, monkeypatch, clock: ManualClock, url: str, over: bool
) -> None:
    """As MongoDB does after a quarter of an hour: it takes others under the same token."""
    fill(queue, 0, 25)
    first = take(claims(), "a", 15)
    if over:
        clock.advance(2 * LEASE)
    repeated = claims()
    store = repeated.context.store
    claim = store.claim

    def claim_anew(request: Claim) -> Claimed:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///").partition("?")[0])) as file:
            rename = "UPDATE slice SET token = ? WHERE token = ?"
            hidden = bytes(16), request.token
            with file:
                file.execute(rename, hidden)
            claimed = claim(msgspec.structs.replace(request, limit=5))
            with file:
                file.execute(rename, hidden[::-1])
            return claimed

    monkeypatch.setattr(store, "claim", claim_anew)
    assert take(repeated, "a", 15) == first
    assert claims().ack([named("a")]) == 0
    assert sorted(int(message.body) for message in queue.peek(100)) == list(range(15, 25))
    assert queue.counts().ready == 10


def test_when_all_of_it_was_lost_nothing_else_is_taken_instead(queue, claims, clock) -> None:
    fill(queue, 0, 20)
    take(claims(), "a", 20)
    clock.advance(LEASE + 1)
    with queue.consumer() as other:
        assert len(other.receive(20)) == 20
        fill(queue, 20, 40)
        assert take(claims(), "a", 20) == []
        assert (queue.counts().ready, queue.counts().in_flight) == (20, 20)


def test_reading_what_was_never_entered_leaves_room_for_it(queue, claims) -> None:
    fill(queue, 0, 10)
    assert claims().extend([named("a")]) == 0
    assert len(take(claims(), "a")) == 10


def test_a_reader_whose_clock_is_ahead_holds_up_no_claim(queue, claims, url, clock) -> None:
    fill(queue, 0, 10)
    ahead = ManualClock(clock.now())
    ahead.advance(10 * 366 * 86_400)
    with shardq.connect(url, clock=ahead) as reader:
        looking = NamedClaims(context_of(reader.queue("jobs")), lease=microseconds(LEASE), memory=1)
        assert looking.extend([named("a")]) == 0
    assert len(take(claims(), "a")) == 10


def test_a_claim_waits_where_an_older_reader_whose_clock_is_ahead_has_just_looked(
    queue, claims, url, clock
) -> None:
    fill(queue, 0, 10)
    store_of(queue).reserve_keys("jobs", [DedupeEntry(f"shardq-claim:{named('a').key}", "")], 200_000)
    later = threading.Timer(0.1, clock.advance, [0.3])
    later.start()
    assert len(take(claims(), "a")) == 10
    later.join()


def test_what_expires_under_a_named_claim_is_still_its(
    queue: shardq.Queue, claims: Callable[[], NamedClaims], clock: ManualClock
) -> None:
    queue.alter(dead_letter_expired=True)
    queue.producer().send_many([b"1", b"2"], ttl=5)
    assert take(claims(), "a") == [1, 2]
    clock.advance(10)
    assert take(claims(), "a", strict=True) == [1, 2]
    assert claims().ack([named("a")]) == 0
    assert queue.peek() == []


def test_a_named_claim_gets_nothing_that_has_expired_before(
    queue: shardq.Queue, claims: Callable[[], NamedClaims], clock: ManualClock
) -> None:
    queue.producer().send_many([b"1", b"2"], ttl=5)
    queue.producer().send_many([b"3"])
    clock.advance(10)
    assert take(claims(), "a") == [3]


def deliveries(claims: NamedClaims, name: str, run: str) -> dict[int, int]:
    """The messages of a claim, with their deliveries, as a run gets them."""
    held = claims.take(named(name), 100, owner="test", strict=True, run=run).held
    return {int(body): piece.deliveries for piece in held for body in piece.messages.bodies}


@pytest.fixture
def letters(client: shardq.Client, queue: shardq.Queue) -> Callable[[], list[tuple[int, object]]]:
    """The dead letters and the deliveries that their headers tell."""
    dead = client.queue("jobs.dead")
    return lambda: sorted(
        (int(message.body), message.headers["shardq-deliveries"]) for message in dead.peek(100)
    )


def test_each_run_that_comes_back_to_a_claim_is_a_delivery_whatever_attempts_it_makes(queue, claims) -> None:
    fill(queue, 0, 3)
    for number, run in enumerate(["first", "second", "third"], start=1):
        for _ in range(2):
            assert deliveries(claims(), "a", run) == dict.fromkeys(range(3), number)
    assert deliveries(claims(), "a", "first") == dict.fromkeys(range(3), 1)  # it is still at work, late
    assert claims().ack([named("a")]) == 0
    assert queue.peek() == []


def test_what_was_delivered_too_often_becomes_a_dead_letter_and_is_neither_lost_nor_missing(
    queue, claims, letters
) -> None:
    queue.alter(max_deliveries=3)
    fill(queue, 0, 2)
    queue.consumer().receive(2).release()
    fill(queue, 2, 4)
    assert deliveries(claims(), "a", "1") == {0: 2, 1: 2, 2: 1, 3: 1}
    assert deliveries(claims(), "a", "2") == {0: 3, 1: 3, 2: 2, 3: 2}
    for _ in range(2):
        assert deliveries(claims(), "a", "3") == {2: 3, 3: 3}
        assert letters() == [(0, 3), (1, 3)]
    settling = claims()
    assert settling.ack([named("a")]) == 0
    assert settling.context.counters.read().lease_lost == 0
    assert (queue.peek(), len(letters())) == ([], 2)


def test_when_all_of_a_claim_was_given_up_nothing_is_left_to_deliver(queue, claims, letters) -> None:
    queue.alter(max_deliveries=1)
    fill(queue, 0, 2)
    assert len(deliveries(claims(), "a", "1")) == 2
    fill(queue, 2, 5)
    for run in ("2", "2", "3"):
        assert deliveries(claims(), "a", run) == {}
    assert letters() == [(0, 1), (1, 1)]
    assert claims().ack([named("a")]) == 0
    assert {message.deliveries for message in queue.peek()} == {0}


def test_without_a_maximum_the_runs_are_counted_up_to_a_bound(queue, claims) -> None:
    queue.alter(max_deliveries=None)
    fill(queue, 0, 1)
    assert [deliveries(claims(), "a", str(run))[0] for run in range(15)] == [*range(1, 12), 11, 11, 11, 11]


def test_a_maximum_that_is_set_later_counts_the_runs_before_it(queue, claims, letters) -> None:
    queue.alter(max_deliveries=None)
    fill(queue, 0, 1)
    for run in range(15):
        deliveries(claims(), "a", str(run))
    queue.alter(max_deliveries=3)
    assert deliveries(claims(), "a", "last") == {}
    assert [number for number, _ in letters()] == [0]


@pytest.mark.parametrize("dies_in", ["reserve_keys", "forward", "acknowledge"])
@pytest.mark.parametrize("answered", [False, True])
def test_a_run_that_dies_while_it_gives_messages_up_loses_none(
    queue, claims, letters, monkeypatch, dies_in, answered
) -> None:
    queue.alter(max_deliveries=1)
    fill(queue, 0, 3)
    assert len(deliveries(claims(), "a", "1")) == 3
    dying = claims()
    store = dying.context.store
    ask = getattr(store, dies_in)

    class Died(BaseException):
        pass

    def die(*arguments: object) -> None:
        if answered:
            ask(*arguments)
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(store, dies_in, die)
        with suppress(Died):
            deliveries(dying, "a", "2")
    assert deliveries(claims(), "a", "3") == {}
    assert [number for number, _ in letters()] == [0, 1, 2]
    assert claims().ack([named("a")]) == 0
    assert queue.peek() == []


def test_what_a_later_run_gives_up_is_a_dead_letter_where_others_block_their_groups(queue, claims) -> None:
    """An ack of the claim finishes all that is held under its name."""
    queue.alter(on_dead_letter="block", max_deliveries=1)
    queue.producer().send_many([b"1", b"2"], group="a")
    claim = ClaimName(group_shard("jobs", "a"), "batch")
    for run, count in (("first", 2), ("second", 0)):
        taking = claims().take(claim, 100, owner="test", strict=False, run=run)
        assert sum(piece.count for piece in taking.held) == count
    claims().ack([claim])
    assert queue.peek(blocked=True) == []
    assert queue.redrive() == 2

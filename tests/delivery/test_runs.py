"""A part of a run is stored once, whatever happens to its attempts."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

import shardq
from shardq.core.context.decision_log import DecisionLog
from shardq.spark.parts import RunPart
from shardq.spark.runs import Run
from shardq.testing.seam import context_of, store_of

PART = RunPart("0-0", "same", 3, [b"%d" % number for number in range(1_000)])


def run(queue: shardq.Queue, name: str = "job", **options: int | str) -> Run:
    chosen: Any = {"window": 86_400_000_000, "bundle_messages": 100, "bundle_bytes": 262_144} | options
    return Run(context_of(queue), name, **chosen)


def received(queue: shardq.Queue) -> list[bytes]:
    with queue.consumer() as consumer:
        bodies = []
        for batch in consumer.batches(1_000, wait=0):
            bodies += [message.body for message in batch]
            batch.ack()
    return bodies


def test_a_part_that_is_sent_again_is_stored_once(queue: shardq.Queue) -> None:
    assert (run(queue).send(PART), run(queue).send(PART)) == (1_000, 0)
    assert sorted(received(queue)) == sorted(PART.bodies)


def test_a_finished_part_is_known_long_after_the_store_has_forgotten_its_bundles(queue, clock) -> None:
    run(queue).send(PART)
    assert len(received(queue)) == 1_000
    clock.advance(3_600)
    queue.sweep()
    assert run(queue).send(PART) == 0
    assert received(queue) == []


def test_an_interrupted_part_is_completed_and_nothing_of_it_stored_twice(clock, queue, monkeypatch) -> None:
    sender = run(queue)
    appended = []
    append = store_of(queue).append

    def fail_at_the_third(request) -> None:
        appended.append(request)
        if len(appended) == 3:
            raise shardq.QueueNotFound("the process died here")
        append(request)

    monkeypatch.setattr(store_of(queue), "append", fail_at_the_third)
    with pytest.raises(shardq.QueueNotFound):
        sender.send(PART)
    monkeypatch.undo()
    assert 0 < queue.counts().ready < 1_000
    clock.advance(60)
    assert run(queue).send(PART) == 1_000
    assert sorted(received(queue)) == sorted(PART.bodies)


def test_a_part_is_repeated_until_the_keys_of_its_messages_are_confirmed(queue, monkeypatch) -> None:
    part = msgspec.structs.replace(PART, dedupe_keys=[*"abc", *[None] * 997])
    confirm, told = store_of(queue).confirm_keys, []

    def fail_at_the_first(name, entries) -> None:
        told.append(entries)
        if len(told) == 1:
            raise shardq.QueueNotFound("the process died here")
        confirm(name, entries)

    monkeypatch.setattr(store_of(queue), "confirm_keys", fail_at_the_first)
    with pytest.raises(shardq.QueueNotFound):
        run(queue).send(part)
    assert run(queue).send(part) == 1_000
    assert {entry.key for entries in told[1:] for entry in entries} >= set("abc")
    assert sorted(received(queue)) == sorted(PART.bodies)


@pytest.mark.parametrize("overflow", ["reject", "drop_oldest"])
def test_an_interrupted_part_needs_no_room_for_what_of_it_is_stored(
    connect, client, clock, monkeypatch, overflow
) -> None:
    bounds: Any = {"max_messages": len(PART.bodies), "overflow": overflow}
    queue = client.create_queue("bounded", shards=4, **bounds)
    append = store_of(queue).append

    def lose_the_answer(request) -> None:
        append(request)
        raise shardq.OutcomeUnknown("the process died here")

    monkeypatch.setattr(store_of(queue), "append", lose_the_answer)
    with context_of(queue).retry.within(0), pytest.raises(shardq.OutcomeUnknown):
        run(queue).send(PART)
    assert 0 < queue.counts().ready < 1_000
    clock.advance(60)
    other = connect().queue("bounded")
    run(other).send(PART)
    assert sorted(received(other)) == sorted(PART.bodies)


def test_the_first_attempt_decides_on_time_and_layout(queue, clock, monkeypatch) -> None:
    appended = []
    monkeypatch.setattr(store_of(queue), "append", appended.append)
    monkeypatch.setattr(store_of(queue), "confirm_keys", lambda *_: None)  # so that it looks interrupted
    run(queue).send(PART)
    clock.advance(100)
    queue.alter(shards=3, time_shard_seconds=1.0)
    first, appended[:] = list(appended), []
    run(queue).send(PART)
    assert appended == first


def test_a_repetition_with_other_sizes_of_bodies_and_bundles_makes_the_same_bundles(
    queue, monkeypatch
) -> None:
    appended = []
    monkeypatch.setattr(store_of(queue), "append", appended.append)
    monkeypatch.setattr(store_of(queue), "confirm_keys", lambda *_: None)  # so that it looks interrupted
    run(queue).send(PART)
    first = [bundle.id for request in appended for bundle in request.bundles]
    counts = [bundle.count for request in appended for bundle in request.bundles]
    appended.clear()
    longer = RunPart("0-0", "same", 3, [body * 900 for body in PART.bodies])
    run(queue, bundle_messages=7, bundle_bytes=1_000).send(longer)
    again = {bundle.id: bundle.count for request in appended for bundle in request.bundles}
    assert again == dict(zip(first, counts, strict=True))


def test_a_bundle_is_full_by_messages_or_by_bytes(queue, monkeypatch) -> None:
    appended = []
    monkeypatch.setattr(store_of(queue), "append", appended.append)
    bodies = [b"x" * size for size in (10, 10, 10, 10, 100, 10, 95, 5, 1, 1, 1)]

    def counts(**columns) -> list[int]:
        appended.clear()
        part = RunPart(f"{columns}", "x", 0, bodies, **columns)
        run(queue, bundle_messages=3, bundle_bytes=100).send(part)
        bundles = sorted((bundle for each in appended for bundle in each.bundles), key=lambda each: each.id)
        return [bundle.count for bundle in bundles]

    assert counts() == [3, 2, 2, 3, 1]
    assert counts(priorities=[0] * 4 + [1] * 7) == [3, 1, 1, 2, 3, 1]


def test_two_attempts_at_the_same_time_store_one_part(connect, queue) -> None:
    clients = [connect() for _ in range(4)]
    threads = [
        threading.Thread(target=lambda client=client: run(client.queue(queue.name)).send(PART))
        for client in clients
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert queue.counts().ready == 1_000


def part_of(first: int, last: int) -> RunPart:
    return RunPart("0-0", f"{first}-{last}", 3, [b"%d" % number for number in range(first, last)])


def test_another_execution_of_a_run_may_have_lost_messages_and_stores_what_is_left_once(queue) -> None:
    whole, left, less = part_of(0, 1_000), part_of(10, 1_000), part_of(20, 1_000)
    assert run(queue, execution="first").send(whole) == 1_000
    for _ in range(2):
        assert run(queue, execution="second").send(left) == (990 if not _ else 0)
        assert run(queue, execution="third").send(less) == (980 if not _ else 0)
        assert run(queue, execution="fourth").send(left) == 0
        assert run(queue, execution="fifth").send(whole) == 0
    assert queue.counts().ready == 2_970
    assert {int(body) for body in received(queue)} == set(range(1_000))


def test_a_part_that_changes_within_one_execution_is_refused(queue) -> None:
    run(queue, execution="first").send(part_of(0, 100))
    run(queue, execution="second").send(part_of(10, 100))
    for execution in ("first", "second", ""):
        with pytest.raises(shardq.ReplayConflict):
            run(queue, execution=execution).send(part_of(20, 100))
    assert queue.counts().ready == 190


def test_another_run_or_another_part_is_stored_beside_it(queue) -> None:
    run(queue).send(PART)
    run(queue, "other").send(PART)
    run(queue).send(RunPart("0-1", "same", 3, PART.bodies))
    assert queue.counts().ready == 3_000


def test_a_part_that_changed_is_refused_with_nothing_stored(queue) -> None:
    run(queue).send(PART)
    with pytest.raises(shardq.ReplayConflict, match="part 0-0 of run 'job'"):
        run(queue).send(RunPart("0-0", "other", 3, [b"x"]))
    assert queue.counts().ready == 1_000


def test_a_message_that_is_too_large_or_a_paused_queue_stores_nothing(queue) -> None:
    large = RunPart("0-0", "x", 0, [b"x", b"x" * 2_000_000])
    with pytest.raises(shardq.MessageTooLarge):
        run(queue).send(large)
    queue.pause(sends=True, delivery=False)
    with pytest.raises(shardq.QueuePaused):
        run(queue).send(PART)
    queue.resume()
    assert queue.counts().ready == 0


def test_bundles_take_turns_and_lanes_stay_on_their_shard(queue) -> None:
    run(queue).send(PART)
    loads = [state.counts.ready for state in queue.shard_states()]
    assert max(loads) - min(loads) <= 100
    queue.purge()
    run(queue, "lanes").send(RunPart("0-0", "same", 0, PART.bodies, lanes=[5] * 1_000))
    busy = {state.shard.number for state in queue.shard_states() if state.counts.ready}
    assert busy == {5 % queue.settings.shards}


def test_many_tasks_with_little_to_send_spread_over_the_shards(client) -> None:
    queue = client.create_queue("wide", shards=16, time_shards=1)
    sender = run(queue, bundle_messages=500)
    for task in range(200):
        sender.send(RunPart(f"{task}-0", "x", 77 + task, [b"x"] * 700))
    loads = [state.counts.ready for state in queue.shard_states()]
    assert len(loads) == 16
    assert max(loads) / (sum(loads) / 16) <= 1.1


LANES = [number * 7_919 % 500 for number in range(1_000)]  # of two messages each
LANED = RunPart("0-0", "same", 0, PART.bodies, lanes=LANES)


def bundles(queue: shardq.Queue) -> dict[tuple[str, str], list[int]]:
    """The numbers in each bundle, by shard and bundle."""
    found: dict[tuple[str, str], list[int]] = {}
    for message in queue.peek(10_000):
        *shard, bundle, _ = message.id.split(":")
        found.setdefault((":".join(shard), bundle), []).append(int(message.body))
    return found


def test_lanes_of_a_shard_share_bundles_in_which_each_keeps_its_order(client) -> None:
    queue = client.create_queue("lanes", shards=4, time_shards=1)
    assert (run(queue).send(LANED), run(queue).send(LANED)) == (1_000, 0)
    found = bundles(queue)
    assert len(found) == 12  # 250 messages for each of four shards, a hundred to a bundle
    assert all(
        LANES[number] % 4 == int(shard[-1]) for (shard, _), inside in found.items() for number in inside
    )
    for lane in set(LANES):
        of_lane = [number for inside in found.values() for number in inside if LANES[number] == lane]
        assert of_lane == sorted(of_lane)
        assert len(of_lane) == 2


def test_a_part_that_an_older_version_has_begun_is_completed_as_it_was_begun(client, clock) -> None:
    queue = client.create_queue("lanes", shards=4, time_shards=1)
    layout = queue.settings.layout
    begun = msgspec.json.encode(["same", clock.now(), layout, [2] * 500]).decode()
    DecisionLog(context_of(queue), "shardq-run:job:").decide("0-0", begun, 86_400_000_000)
    assert (run(queue).send(LANED), run(queue).send(LANED)) == (1_000, 0)
    found = bundles(queue)
    assert len(found) == 500
    assert all(len({LANES[number] for number in inside}) == 1 for inside in found.values())


def test_messages_that_are_due_at_times_of_their_own_are_sent_together(client, clock, monkeypatch) -> None:
    queue = client.create_queue("due", shards=16, time_shards=5, time_shard_seconds=60)
    dues = [
        clock.now() + number * 300_000 for number in range(1_000)
    ]  # over five minutes: about 200 to a time shard
    requests = []
    append = store_of(queue).append
    monkeypatch.setattr(store_of(queue), "append", lambda one: requests.append(one) or append(one))
    part = RunPart("0-0", "same", 3, PART.bodies, dues=dues)
    assert (run(queue, bundle_messages=500).send(part), run(queue).send(part)) == (1_000, 0)
    assert len(requests) <= 6
    assert sorted(message.due.timestamp() * 1e6 for message in queue.peek(1_000)) == dues
    requests.clear()
    run(queue, "small").send(msgspec.structs.replace(part, fingerprint="other"))
    assert len(requests) <= 12  # a hundred messages to a shard
    loads = [state.counts.ready + state.counts.delayed for state in queue.shard_states()]
    assert len(loads) >= 10


def test_due_times_of_a_part_that_an_older_version_has_begun_stay_where_they_were(client, clock) -> None:
    queue = client.create_queue("due", shards=4, time_shards=2, time_shard_seconds=60)
    begun = msgspec.json.encode(["same", clock.now(), queue.settings.layout, [1] * 8, True]).decode()
    DecisionLog(context_of(queue), "shardq-run:job:").decide("0-0", begun, 86_400_000_000)
    dues = [clock.now() + number * 20_000_000 for number in range(8)]
    assert run(queue).send(RunPart("0-0", "same", 3, PART.bodies[:8], dues=dues)) == 8
    places = {int(message.body): int(message.id.split(":")[2]) for message in queue.peek(10)}
    assert places == {number: (3 + number) % 4 for number in range(8)}

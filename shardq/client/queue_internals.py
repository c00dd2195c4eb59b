"""Operations on queues for the packages that are built on them, beyond the public methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Literal, Protocol, TypeVar, cast

import msgspec

from shardq.base.clock import microseconds, to_datetime
from shardq.base.codec import BYTES, Codec
from shardq.base.outgoing_message import OutgoingMessage
from shardq.base.receipt import MessageId
from shardq.client.batch import Batch
from shardq.client.consumer import Consumer
from shardq.client.observed import consumer_class
from shardq.client.patterns import QueuePattern
from shardq.client.queue import MANY, Queue
from shardq.core.browsing import browse, find_many, messages_in, slices
from shardq.core.context.identity import REGISTRATION_LIFETIME
from shardq.core.context.unique_keys import UniqueKeys
from shardq.core.counts import QueueCounts, total
from shardq.core.held import HeldSlice, Selection, SettleState, in_states
from shardq.core.hooks import Hooks, Observer
from shardq.core.message import Message, StoredMessage
from shardq.core.receiving.discovery import QueueDiscovery
from shardq.core.receiving.several_queues import check_queues, scheduler_of
from shardq.core.sending.appending import prepare
from shardq.core.sending.planned_bundles import plan_bundles
from shardq.core.sending.prepared import prepare_options
from shardq.core.settling.leases import JUMP, shorten_fixed_leases
from shardq.errors import InvalidSetting, StoreUnavailable
from shardq.storage.abilities import SavedStore
from shardq.storage.listening import Waiter
from shardq.storage.records import latest_end
from shardq.storage.requests import EntryState, Peek

__all__ = [
    "QueueState",
    "at_last_delivery",
    "bodies_due",
    "chains_of",
    "consumer_of",
    "count_deliveries",
    "count_queue",
    "fault_of_file",
    "found_in",
    "holders_of",
    "hooks_of",
    "observer_of",
    "one_by_one",
    "placed",
    "queue_of",
    "receive_uncounted",
    "replace_body",
    "sent_ahead",
    "shorten_leases",
    "stored_in",
    "unless",
    "use",
    "waiting_in",
    "waiting_on",
    "without_next_claim",
]

_PAGE = 1_000

# ruff: noqa: SLF001 - it is of the same house

_deliveries = attrgetter("deliveries")
_position = attrgetter("bundle_id", "position")


def consumer_of(
    queues: Sequence[Queue | QueuePattern],
    *,
    weights: Mapping[str, float] | None,
    order: Literal["fair", "strict"],
    codec: Codec,
    name: str | None = None,
    visibility_timeout: float | None = None,
    keep_leases: bool,
    prefetch: int = 0,
) -> Consumer:
    """Make a consumer of several queues of one client: see :meth:`shardq.Client.consumer`. Raises InvalidSetting."""
    scheduler = partial(scheduler_of, check_queues([queue.name for queue in queues]), weights, order)
    scheduler()  # which checks them
    for queue in queues:
        if queue._context.store is not queues[0]._context.store:
            raise InvalidSetting(
                f"queues {queues[0].name!r} and {queue.name!r} are of two clients: open both with one"
            )
    patterns = [queue for queue in queues if isinstance(queue, QueuePattern)]
    wanted = [queue.pattern if isinstance(queue, QueuePattern) else queue.name for queue in queues]
    return consumer_class(hooks_of(queues[0]))(
        [queue._context for queue in queues if isinstance(queue, Queue)],
        scheduler=scheduler,
        follow=partial(QueueDiscovery, patterns[0]._context, wanted) if patterns else None,
        codec=codec,
        name=name,
        visibility_timeout=visibility_timeout,
        keep_leases=keep_leases,
        prefetch=prefetch,
    )


def queue_of(consumer: Consumer, name: str) -> Queue:
    """Return one of the queues that a consumer receives or received from, without a request."""
    return Queue(consumer._receiving.claims(name).context)


def replace_body(message: Message, body: bytes) -> None:
    """Exchange a message that is held for one with another body, with the same due time.

    Raises LeaseLost, with nothing changed, when another client has it.
    """
    message._settler.replace(message._selection, body, 0.0, keeps_due=True)


def hooks_of(queue: Queue | QueuePattern) -> Hooks | None:
    """Return the hooks of the client of a queue, or of the queues that a pattern matches."""
    return queue._contexts.hooks if isinstance(queue, QueuePattern) else queue._context.hooks


def unless(queue: Queue, ended: Callable[[], bool]) -> AbstractContextManager[None]:
    """Raise StoreUnavailable from this thread's requests to the queue's store in the block once ``ended()``."""
    return queue._context.retry.unless(ended)


def holders_of(queue: Queue, keys: Sequence[str]) -> list[str | None]:
    """Return which message holds each unique key of a queue, in one request.

    None where no message was entered for a key. An id may be that of a message that has left the queue. "" means that
    the entry is being changed: ask with :meth:`Queue.get`.
    """
    found = UniqueKeys(queue._context).exchange_all([(key, None, None) for key in keys])
    return [None if one is None else "" if one.incoming or one.replaced else one.current for one in found]


def found_in(queue: Queue, ids: Sequence[str]) -> Mapping[str, StoredMessage]:
    """Find the stored ones of these messages, in any state, by their ids, with one request for each shard."""
    return find_many(queue._context, BYTES, ids)


def one_by_one(batch: Batch) -> list[Batch]:
    """Split a batch into batches of one message, as :meth:`shardq.Batch.part` makes them, many at a time."""
    places = [(selection.held, place) for selection in batch._selections for place in selection.positions]
    return [_alone(batch, held, place, message) for (held, place), message in zip(places, batch, strict=True)]


def _alone(batch: Batch, held: HeldSlice, place: int, message: Message) -> Batch:
    part = Batch((), batch._settler)
    part._selections, part._length = (Selection(held, [place]),), 1
    part.__dict__["_messages"] = [message]  # which it would make
    if len(batch) == 1:
        part._acking = batch._acking
    return part


class _InLane(Protocol):
    @property
    def lane(self) -> str | None: ...


M = TypeVar("M", bound=_InLane)


def chains_of(messages: Iterable[M]) -> list[list[M]]:
    """Divide messages: those of a group in their order, and each of the others alone."""
    chains: dict[object, list[M]] = {}
    for place, message in enumerate(messages):
        chains.setdefault(place if message.lane is None else message.lane, []).append(message)
    return list(chains.values())


def at_last_delivery(batch: Batch) -> Message | None:
    """Return the first message that becomes a dead letter if its holder dies; None if there is none, as usual.

    Reads the settings of the queue only if there may be one.
    """
    settler, pieces = batch._settler, [selection.held for selection in batch._selections]
    if not settler.is_last(max(pieces, key=_deliveries)):
        return None
    return next(
        (message for message in batch if message.last_delivery), None
    )  # settings may change meanwhile


def without_next_claim(batch: Batch) -> Batch:
    """Return the batch with the same messages, whose ack does not begin to claim the next ones."""
    same = Batch((), batch._settler)
    same._selections, same._length = batch._selections, batch._length
    return same


def receive_uncounted(consumer: Consumer, limit: int, wait: float) -> Batch:
    """Receive as :meth:`Consumer.receive` does, beside a thread that settles what was received before.

    No delivery counts before :func:`count_deliveries`. Leases of messages that could not be settled are still extended.
    """
    with consumer._receiving.uncounted():
        return consumer.receive(limit, wait=wait)


def count_deliveries(consumer: Consumer, batch: Batch) -> None:
    """Count the deliveries that are not counted yet, and hold the messages for a lease. It can be repeated.

    Messages that are lost are marked so.
    """
    held = [each for each in in_states(batch._selections, SettleState.OPEN) if not each.held.started]
    if held:
        lease = consumer._receiving.lease_of([each.held for each in held])
        consumer._engines[held[0].held.shard.queue].start(held, lease)


def placed(queue: Queue, messages: Sequence[OutgoingMessage]) -> list[OutgoingMessage]:
    """Return messages, of bytes and without keys, with the ids and due times under which they can be sent repeatedly.

    Messages of one bundle have to be sent together, and all again within 14 minutes, as the ``unsent`` ones after an
    error.
    """
    context = queue._context
    sends = [
        prepare(context, each, each.body, prepare_options(each, context.name), BYTES) for each in messages
    ]
    found = list(messages)
    for planned in plan_bundles(context, sends, context.store.now()):
        due = to_datetime(planned.due)
        for place, identity in planned.ids():
            found[place] = msgspec.structs.replace(found[place], id=str(identity), due=due, delay=0.0)
    return found


def stored_in(queue: Queue, page: int) -> Iterator[StoredMessage]:
    """Read all messages of a queue as :meth:`Queue.peek` shows them, from each shard ``page`` at a time."""
    return browse(queue._context, BYTES, MANY, page)


def bodies_due(queue: Queue, since: int, until: int) -> Iterator[bytes]:
    """Read the bodies of pending messages due at or after ``since`` and before ``until``, in microseconds.

    They come in the order of their due times, from each shard.
    """
    context = queue._context
    for shard in context.retry(context.store.shards, context.name):
        for piece in slices(context, Peek(shard, _PAGE, since=since, until=until)):
            yield from (message.body for message in messages_in(shard, piece, BYTES))


def sent_ahead(queue: Queue, most: int) -> tuple[int, int]:
    """Count the messages, among the first ``most``, that have come later than now.

    Return also by how many microseconds the last one did. Their clock was ahead, or this one is behind.
    """
    context, found, latest = queue._context, 0, 0
    now = context.store.now()
    for shard in context.retry(context.store.shards, context.name):
        for piece in slices(context, Peek(shard, min(most, _PAGE), bodies=False)):
            if piece.bundle.enqueued_at > now + JUMP and piece.state is not EntryState.PROCESSED:
                found, latest = found + piece.count, max(latest, piece.bundle.enqueued_at - now)
            most -= piece.count
            if most <= 0:
                return found, latest
    return found, latest


def shorten_leases(queue: Queue, seconds: float) -> None:
    """Shorten leases of a clock that was ahead to the given seconds, in a queue in which no lease lasts longer."""
    shorten_fixed_leases(queue._context, microseconds(seconds))


def waiting_on(queue: Queue) -> Callable[[float], tuple[str, ...]]:
    """Return a function that sleeps until the queue may have news since its last call, for the given seconds at most.

    It is for one thread. Sends of other processes end the sleep only where the store signals them.
    """
    retry, names = queue._context.retry, (queue.name,)
    waiter = Waiter(queue._context.store, lambda: retry.closed)
    return lambda seconds: retry(waiter.wait, names, seconds)


def observer_of(queue: Queue | QueuePattern) -> Observer | None:
    """Return the observer of the client of a queue, or of a pattern, which asks the store nothing."""
    return queue._contexts.observer if isinstance(queue, QueuePattern) else queue._context.observer


class QueueState(msgspec.Struct, frozen=True):
    """The numbers of a queue at a moment of the store's clock. See :func:`count_queue` on ``consumers``."""

    at: datetime
    counts: QueueCounts
    shards: int
    consumers: int

    @property
    def late_seconds(self) -> float:
        """For how long the first ready message has been due; 0 when there is none."""
        return self.counts.late_seconds(self.at)


def count_queue(queue: Queue) -> QueueState:
    """Count the messages, the shards in use and the live consumers of a queue. Raises QueueNotFound.

    The consumers are 0 exactly when :meth:`Queue.consumers` lists no live one. Their messages are read only if none is
    registered. Otherwise those are left out that have worked on one message for more than 16 seconds.
    """
    context = queue._context
    states, now = queue.shard_states(), context.store.now()
    counts = total([state.counts for state in states])
    seen = context.retry(context.store.seen_consumers, context.name)
    latest = latest_end(now, REGISTRATION_LIFETIME)
    consumers = sum(now < each.until <= latest for each in seen)
    if not consumers and counts.in_flight:
        consumers = sum(each.alive for each in queue.consumers())
    return QueueState(to_datetime(now), counts, len(states), consumers)


def fault_of_file(queues: QueuePattern, most_bytes: int) -> str:
    """Return what is wrong with the file of the store; "" if nothing is, or it has none.

    A file above ``most_bytes`` is not read for damage. Raises StoreUnavailable for one that is in use.
    """
    store, retry = queues._contexts.store, queues._contexts.retry
    if store.capabilities.backup_tools:
        return ""  # it is no file
    if not retry(store.list_queues) and any(each.name == "file" and not each.ok for each in store.diagnose()):
        return "does not exist"
    try:
        cast("SavedStore", store).check_integrity(most_bytes=most_bytes)
    except StoreUnavailable as error:
        if error.retryable:
            raise
        return "is damaged"
    return ""


def use(queue: Queue) -> None:
    """Keep a queue that expires, by using it. Open it anew for each call."""
    queue._context.live.use()


def waiting_in(queue: Queue) -> list[StoredMessage]:
    """Return the ready and delayed messages, in the order in which they were sent by one client."""
    found = [each for each in queue.peek(MANY) if each.state in (EntryState.READY, EntryState.DELAYED)]
    return sorted(found, key=lambda message: _position(MessageId.parse(message.id)))

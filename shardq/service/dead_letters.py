"""Endpoints of dead letters: by reason, sent back to their queues, or removed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import islice

import msgspec

from shardq import MessageFilter, StoredMessage
from shardq.base.shard import DEAD_LETTER_SUFFIX
from shardq.client.queue_internals import stored_in
from shardq.core.settling.dead_letters import dead_letter_name
from shardq.errors import InvalidName, InvalidSetting, QueueNotFound, ShardqError
from shardq.service.messages import (
    DELIVERIES,
    MOST_SHOWN_IN_LISTS,
    ORIGIN,
    PAGE,
    REASON,
    SOURCE,
    remove_each,
    scan,
    shown_message,
    without_hidden,
)
from shardq.service.parameters import MOST_SCANNED, ListDeadLetters, Redrive, RemoveMessages
from shardq.service.store_access import StoreAccess
from shardq.service.views import Changed, DeadLettersView, DeadLetterView, MessageView, Reason

__all__ = ["list_dead_letters", "redrive", "remove_messages"]

NO_REASON = "(none)"


async def list_dead_letters(access: StoreAccess, name: str, given: ListDeadLetters) -> DeadLettersView:
    """Return the dead letters of a dead-letter queue, grouped and counted by reason."""
    await access.store.settings(name)  # so that a wrong name is reported
    _check_source(access, given.source)

    async def read() -> DeadLettersView:
        return await asyncio.to_thread(partial(_scan, access, name, given))

    found = await access.store.shared.read(("dead letters", name, given), read)
    return msgspec.structs.replace(found, dead_letters=[_seen(access, each) for each in found.dead_letters])


def _check_source(access: StoreAccess, source: str) -> None:
    if source:
        access.check("read", source)


def _seen(access: StoreAccess, letter: DeadLetterView) -> DeadLetterView:
    """Return a letter without the name of the queue that it came from, if the key does not see that."""
    shown = msgspec.structs.replace(letter, message=without_hidden(access, letter.message))
    return (
        msgspec.structs.replace(shown, source=None, original_id=None)
        if access.hides(letter.source)
        else shown
    )


def _scan(access: StoreAccess, name: str, given: ListDeadLetters) -> DeadLettersView:
    counted: Counter[str] = Counter()
    newest: dict[str, datetime] = {}

    def matches(message: StoredMessage) -> bool:
        reason = _reason(message)
        if given.source not in ("", message.headers.get(SOURCE)):
            return False
        counted[reason] += 1
        newest[reason] = max(newest.get(reason, message.enqueued_at), message.enqueued_at)
        return _is_for(reason, given.reason)

    stored = islice(stored_in(access.store.sync.queue(name), PAGE), given.scan)
    page, scanned = scan(name, given, stored, matches)
    most = MOST_SHOWN_IN_LISTS if given.bodies else None
    return DeadLettersView(
        reasons=[
            Reason(reason=reason, count=count, newest=newest[reason])
            for reason, count in counted.most_common()
        ],
        dead_letters=[_letter(each, shown_message(access, name, each, most=most)) for each in page],
        **msgspec.structs.asdict(scanned),
    )


def _reason(message: StoredMessage) -> str:
    return str(message.headers.get(REASON, NO_REASON))


def _is_for(reason: str, wanted: str) -> bool:
    """Return whether a reason has the text in it. A message without a reason has only all of ``NO_REASON``."""
    return wanted in ("", reason) or (reason != NO_REASON and wanted in reason)


def _letter(message: StoredMessage, shown: MessageView) -> DeadLetterView:
    headers = message.headers
    deliveries = headers.get(DELIVERIES)
    return DeadLetterView(
        message=shown,
        reason=_reason(message),
        source=_text(headers, SOURCE),
        original_id=_text(headers, ORIGIN),
        deliveries=deliveries if isinstance(deliveries, int) else None,
    )


def _text(headers: Mapping[str, object], name: str) -> str | None:
    value = headers.get(name)
    return value if isinstance(value, str) else None


async def redrive(access: StoreAccess, name: str, given: Redrive) -> Changed:
    """Move dead letters back, out of the dead-letter queue of the path.

    Those stay whose queue the key does not see, was deleted, or has another dead-letter queue by now. Those that
    another redrive holds stay too, and there may be more then. One that was killed holds them until its lease expires.
    """
    every = given.ids is None and not given.reason and not given.source
    found = await _chosen(access, name, given)
    by_source: dict[str, list[str]] = {}
    for identity, source in found:
        if source is not None and access.may("act", source):  # any sender may have written that header
            by_source.setdefault(source, []).append(identity)
    error: ShardqError | None = None
    is_source, wanted = False, 0
    for source, ids in by_source.items():
        where = None if every else MessageFilter(ids=frozenset(ids))
        try:
            queue = await access.client.queue(source)
            if dead_letter_name(source, await queue.settings()) == name:
                is_source, wanted = True, wanted + len(ids)
                await queue.redrive(where=where, progress=access.tally.counting())
        except (InvalidName, QueueNotFound):
            continue
        except ShardqError as raised:  # the dead letters of the other queues go back all the same
            error = error or raised
    if error is not None:
        raise error
    if not is_source:
        await _check_is_dead_letter_queue(access, name)
    more = len(found) >= MOST_SCANNED
    if not more and access.tally.changed < wanted:
        more = (await (await access.client.queue(name)).counts()).in_flight > 0
    return Changed(changed=access.tally.changed, more=more)


async def _check_is_dead_letter_queue(access: StoreAccess, name: str) -> None:
    """Raise QueueNotFound for a queue that has a dead-letter queue and is none itself."""
    if name.endswith(DEAD_LETTER_SUFFIX):
        return
    with suppress(InvalidName):
        dead = dead_letter_name(name, await access.store.settings(name))
        if await access.client.exists(dead):
            raise QueueNotFound(
                f"queue {name!r} is not a dead-letter queue: its dead letters are in {dead!r}"
            )


async def remove_messages(access: StoreAccess, name: str, given: RemoveMessages) -> Changed:
    """Remove messages by their ids, or the dead letters that match."""
    if given.ids is None and not given.reason and not given.source:
        raise InvalidSetting(
            f"ids, reason, source: give one of them; to remove all messages of {name}, purge it"
        )
    ids: Sequence[str] = given.ids or [identity for identity, _ in await _chosen(access, name, given)]
    return await remove_each(access, name, ids, more=given.ids is None and len(ids) >= MOST_SCANNED)


async def _chosen(
    access: StoreAccess, name: str, given: Redrive | RemoveMessages
) -> list[tuple[str, str | None]]:
    """Return the ids of the messages that are meant, and the queues that they came from."""
    _check_source(access, given.source)
    queue = await access.client.queue(name)
    if given.ids is not None:
        found = [await queue.get(identity) for identity in dict.fromkeys(given.ids)]
        messages: Iterable[StoredMessage] = [each for each in found if each is not None]
        return [(each.id, _text(each.headers, SOURCE)) for each in messages]

    def choose() -> list[tuple[str, str | None]]:
        stored = islice(stored_in(access.store.sync.queue(name), PAGE), MOST_SCANNED)
        return [
            (each.id, _text(each.headers, SOURCE))
            for each in stored
            if _is_for(_reason(each), given.reason) and given.source in ("", each.headers.get(SOURCE))
        ]

    return await asyncio.to_thread(choose)

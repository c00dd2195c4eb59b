"""Endpoints of dead letters: by reason, sent back to their queues, or removed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import islice

from shardq import MessageFilter, StoredMessage
from shardq.base.shard import DEAD_LETTER_SUFFIX
from shardq.core.settling.dead_letters import dead_letter_name
from shardq.errors import InvalidName, InvalidSetting, QueueNotFound
from shardq.queue_internals import stored_in
from shardq.service.desk import Desk
from shardq.service.messages import MOST_SHOWN_IN_LISTS, PAGE, page_of, pages_of, shown_message
from shardq.service.parameters import MOST_SCANNED, Letters, Redrive, RemoveMessages
from shardq.service.views import Changed, DeadLettersView, DeadLetterView, MessageView, Reason

__all__ = ["list_letters", "redrive", "remove_messages"]

REASON, SOURCE, ORIGIN, DELIVERIES = "shardq-reason", "shardq-queue", "shardq-id", "shardq-deliveries"
"""The headers of a dead letter."""

NO_REASON = "(none)"
_AT_ONCE = 8


async def list_letters(desk: Desk, name: str, given: Letters) -> DeadLettersView:
    """Return the dead letters of a dead-letter queue, grouped and counted by reason."""
    await desk.queue(name)

    async def read() -> DeadLettersView:
        return await asyncio.to_thread(partial(_scan_letters, desk, name, given))

    return await desk.store.shared.read(("letters", name, given), read)


def _scan_letters(desk: Desk, name: str, given: Letters) -> DeadLettersView:
    counted: Counter[str] = Counter()
    newest: dict[str, datetime] = {}
    start, scanned = (given.page - 1) * given.size, 0
    letters: list[DeadLetterView] = []
    for message in islice(stored_in(desk.store.sync.queue(name), PAGE), given.scan):
        scanned += 1
        reason = _reason(message)
        if given.source and message.headers.get(SOURCE) != given.source:
            continue
        counted[reason] += 1
        newest[reason] = max(newest.get(reason, message.enqueued_at), message.enqueued_at)
        if _is_for(reason, given.reason):
            bodies = given.bodies and start <= len(letters) < start + given.size
            shown = shown_message(desk, name, message, most=MOST_SHOWN_IN_LISTS if bodies else None)
            letters.append(_letter(message, shown, reason))
    return DeadLettersView(
        queue=name,
        reasons=[
            Reason(reason=reason, count=count, newest=newest[reason])
            for reason, count in counted.most_common()
        ],
        letters=page_of(letters, given.page, given.size),
        matching=len(letters),
        scanned=scanned,
        complete=scanned < given.scan,
        page=given.page,
        pages=pages_of(len(letters), given.size),
    )


def _reason(message: StoredMessage) -> str:
    return str(message.headers.get(REASON, NO_REASON))


def _is_for(reason: str, wanted: str) -> bool:
    """Return whether a reason has the text in it. A message without a reason has only all of ``NO_REASON``."""
    return wanted in ("", reason) or (reason != NO_REASON and wanted in reason)


def _letter(message: StoredMessage, shown: MessageView, reason: str) -> DeadLetterView:
    headers = message.headers
    deliveries = headers.get(DELIVERIES)
    return DeadLetterView(
        message=shown,
        reason=reason,
        source=_text(headers, SOURCE),
        original_id=_text(headers, ORIGIN),
        deliveries=deliveries if isinstance(deliveries, int) else None,
    )


def _text(headers: Mapping[str, object], name: str) -> str | None:
    value = headers.get(name)
    return value if isinstance(value, str) else None


async def redrive(desk: Desk, name: str, given: Redrive) -> Changed:
    """Move dead letters back, out of the dead-letter queue of the path.

    Those of queues that the key does not see stay.
    """
    every = given.ids is None and not given.reason and not given.source
    found = await _chosen(desk, name, given)
    if not any(source for _, source in found):
        await _check_is_dead_letter_queue(desk, name)
    by_source: dict[str, list[str]] = {}
    for identity, source in found:
        if source is not None and desk.may("act", source):
            by_source.setdefault(source, []).append(identity)
    moved = 0
    try:
        for source, ids in by_source.items():
            where = None if every else MessageFilter(ids=frozenset(ids))
            moved += await (await desk.queue(source)).redrive(where=where)
    finally:
        desk.store.forget()
    return Changed(changed=moved, more=len(found) >= MOST_SCANNED)


async def _check_is_dead_letter_queue(desk: Desk, name: str) -> None:
    """Raise QueueNotFound for a queue that has a dead-letter queue and is none itself."""
    if name.endswith(DEAD_LETTER_SUFFIX):
        return
    with suppress(InvalidName):
        dead = dead_letter_name(name, await desk.store.settings(name))
        if await desk.client.exists(dead):
            raise QueueNotFound(f"queue {name!r} is no dead-letter queue: its dead letters are in {dead!r}")


async def remove_messages(desk: Desk, name: str, given: RemoveMessages) -> Changed:
    """Remove messages by their ids, or the dead letters that match."""
    if given.ids is None and not given.reason and not given.source:
        raise InvalidSetting(
            f"ids, reason, source: give one of them; to remove all messages of {name}, purge it"
        )
    ids: Sequence[str] = given.ids or [identity for identity, _ in await _chosen(desk, name, given)]
    queue, places = await desk.queue(name), asyncio.Semaphore(_AT_ONCE)

    async def remove(identity: str) -> bool:
        async with places:
            return await queue.remove(identity)

    try:
        removed = sum(await asyncio.gather(*map(remove, dict.fromkeys(ids))))
    finally:
        desk.store.forget()
    return Changed(changed=removed, more=given.ids is None and len(ids) >= MOST_SCANNED)


async def _chosen(desk: Desk, name: str, given: Redrive | RemoveMessages) -> list[tuple[str, str | None]]:
    """Return the ids of the messages that are meant, and the queues that they came from."""
    queue = await desk.queue(name)
    if given.ids is not None:
        found = [await queue.get(identity) for identity in dict.fromkeys(given.ids)]
        messages: Iterable[StoredMessage] = [each for each in found if each is not None]
        return [(each.id, _text(each.headers, SOURCE)) for each in messages]

    def scan() -> list[tuple[str, str | None]]:
        stored = islice(stored_in(desk.store.sync.queue(name), PAGE), MOST_SCANNED)
        return [
            (each.id, _text(each.headers, SOURCE))
            for each in stored
            if _is_for(_reason(each), given.reason) and given.source in ("", each.headers.get(SOURCE))
        ]

    return await asyncio.to_thread(scan)

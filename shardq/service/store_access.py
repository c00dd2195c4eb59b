"""The store as a request sees it, and the rights of its key there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from contextvars import Context
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import islice
from typing import Any, TypeVar

import msgspec

import shardq.aio
from shardq.base.clock import rest_after
from shardq.base.texts import masked
from shardq.client import Client, connect
from shardq.client.queue_internals import fault_of_file
from shardq.core.settings import QueueSettings
from shardq.core.settling.dead_letters import dead_letter_name
from shardq.errors import InvalidSetting, QueueNotFound, ShardqError
from shardq.history.sampler import INTERVAL_SECONDS
from shardq.service.keys import Grant, Role
from shardq.service.sharing import SHARE_OF_TIME, SharedReads, Ticks
from shardq.service.views import QueueRow

__all__ = ["UNREADABLE", "Doctor", "Forbidden", "Mask", "NotFound", "StoreAccess", "StoreReads", "gathered"]

T = TypeVar("T")

Doctor = Callable[[Client, None], tuple[Sequence[Any], Exception | None]]
"""Makes all checks of a store and its queues, as `shardq doctor` does."""

Mask = Callable[[str, Any], Any]
"""Returns what is shown of a body of a queue, by the queue's name and the body."""

RETRY_SECONDS = 1.0
"""For which a request to the store is repeated: a person waits for the page."""

UNREADABLE = QueueNotFound, InvalidSetting
"""Errors of a queue that was deleted since it was listed, or whose settings cannot be read: lists leave it out."""

HISTORY_SECONDS = INTERVAL_SECONDS - 1
"""For these seconds a history is the answer to others: less than those between two samples, at which charts ask."""

CHECKED_BYTES = 64_000_000
"""The size of the largest file that is checked for damage. A larger one takes too long."""

CHECK_SECONDS = 15.0
"""The time between two checks of a file with queues. Each reads all of it."""

THREADS = 24
_PART = 25  # queues that the survey counts together
_WITHIN_THE_PROCESS = "sqlite", "memory"  # stores for which threads only wait for each other
_AT_ONCE = 4  # threads that count queues of other stores, and wait for their servers
_ROUND_PAUSE = 1.5
_LONGEST_REST = 300.0
_REST_AFTER_FAILURE = 15.0  # a round without a store takes long and costs it nothing
_SHORTEST_REST = 0.05


class Forbidden(ShardqError):
    """Raised when a key, or a service that only reads, does not allow an action."""


class NotFound(ShardqError):
    """Raised when a message is not stored, or not any more."""


async def gathered(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Return the results of calls, but for queues that were deleted meanwhile, or whose settings cannot be read.

    Raises the first other error.
    """
    found: list[T] = []
    for each in await asyncio.gather(*calls, return_exceptions=True):
        if not isinstance(each, BaseException):
            found.append(each)
        elif not isinstance(each, UNREADABLE):
            raise each
    return found


class StoreReads:
    """One store, and the reads of it that all viewers of a process share."""

    def __init__(self, url: str) -> None:
        self.kind = url.partition(":")[0]
        self._at_once = 1 if self.kind in _WITHIN_THE_PROCESS else _AT_ONCE
        self.sync: Client = connect(url, retry_seconds=RETRY_SECONDS)
        self.client = shardq.aio.Client(self.sync, threads=THREADS)
        self.shared = SharedReads()
        self.histories = SharedReads(HISTORY_SECONDS)
        self.checks = SharedReads(CHECK_SECONDS)
        self.ticks = Ticks()
        self._had_queues = False
        self.survey = Survey(self)

    async def names(self) -> tuple[str, ...]:
        """Return the names of all queues that are not shardq's own."""
        return await self.shared.read("names", self.client.queues)

    async def file_fault(self) -> str:
        """Return what is wrong with the file of the store; "" if nothing is, or it has none. Read now and then."""
        names = await self.names()
        if not (names or self._had_queues):
            return ""  # the first queue makes the file
        self._had_queues = True
        reads = self.checks if names else self.shared  # a file without queues is small, or missing
        check = partial(asyncio.to_thread, fault_of_file, self.sync.pattern("**"), CHECKED_BYTES)
        try:
            return await reads.read("file", check)
        except ShardqError:
            self.checks.forget()  # it may be in use for a moment, and was not checked
            raise

    async def settings(self, queue: str) -> QueueSettings:
        """Return the settings of a queue. Raises QueueNotFound."""

        async def read() -> QueueSettings:
            return await (await self.client.queue(queue)).settings()

        return await self.shared.read(("settings", queue), read)

    async def row(self, queue: str) -> QueueRow:
        """Return a queue with its counts, or with an error if its settings cannot be read. Raises QueueNotFound."""
        return await self.shared.read(("row", queue), partial(asyncio.to_thread, self.count, queue))

    async def rows(self, queues: Sequence[str]) -> dict[str, QueueRow]:
        """Return queues with their counts, or with what keeps one from being counted; not those that do not exist."""
        parts = min(self._at_once, len(queues))
        found = await asyncio.gather(
            *(
                self.shared.read(("rows", part), partial(asyncio.to_thread, self._rows, part))
                for part in (tuple(queues[first::parts]) for first in range(parts))
            )
        )
        rows = {name: row for part in found for name, row in part.items()}
        return {name: rows[name] for name in queues if name in rows}

    def _rows(self, names: Iterable[str]) -> dict[str, QueueRow]:
        """Count in one thread: to switch between threads for each queue costs several times more than the counts."""
        rows: dict[str, QueueRow] = {}
        for name in names:
            try:
                rows[name] = self.count(name)
            except QueueNotFound:
                continue
            except ShardqError as error:
                rows[name] = QueueRow(name=name, error=masked(str(error)))
        return rows

    def count(self, name: str) -> QueueRow:
        """Return a queue with its counts, in the calling thread. Raises QueueNotFound, or what the store raises."""
        try:
            queue, now = self.sync.queue(name), self.sync.now()
        except InvalidSetting as error:
            return QueueRow(name=name, error=masked(str(error)))
        settings, counts = queue.settings, queue.counts()
        dead_queue = dead_letter_name(name, settings) if settings.has_dead_letters else None
        dead: int | None = None
        if dead_queue is not None:
            with suppress(*UNREADABLE):
                dead = self.sync.queue(dead_queue).counts().backlog
        return QueueRow(
            name=name,
            ready=counts.ready,
            delayed=counts.delayed,
            in_flight=counts.in_flight,
            processed=counts.processed,
            dead=dead,
            dead_letter_queue=dead_queue,
            consumers=sum(each.alive for each in queue.consumers()),
            oldest=counts.oldest,
            late_seconds=counts.late_seconds(now),
            delivery_paused=settings.delivery_paused,
            sends_paused=settings.sends_paused,
        )

    def forget(self) -> None:
        """Have everything read anew, as an action has changed it."""
        self.shared.forget()
        self.survey.hurry()

    async def close(self) -> None:
        """End the streams, the survey and the connections."""
        self.ticks.stop()
        self.survey.stop()
        await self.client.close()


class Survey:
    """Counts of all queues, read again and again while pages show them.

    A round reads some queues at a time. The rest after it lasts 199 times as long, and at most five minutes. So the
    rounds cost the store half a percent of its time, and counts of many queues may be five minutes old. An action
    shortens the rest to the time of a round. It ends no round: a steady stream of actions would keep queues from being
    counted.
    """

    def __init__(self, store: StoreReads) -> None:
        self._store = store
        self._rows: dict[str, QueueRow] = {}
        self._task: asyncio.Task[None] | None = None
        self._counted, self._hurried = asyncio.Event(), asyncio.Event()
        self._asked = False
        self.ended_at: datetime | None = None
        """When the last round ended; None before the first end."""

    async def rows(self, names: Collection[str], wait: float) -> dict[str, QueueRow]:
        """Return those of the queues that are counted, after at most ``wait`` seconds for a round."""
        self._asked = True
        if self._task is None or self._task.done():
            self._counted.clear()
            # Not in the context of the page that began it, whose list of reads would grow for as long as it runs.
            self._task = asyncio.create_task(self._run_rounds(), context=Context())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._counted.wait(), wait)
            if new := [name for name in names if name not in self._rows]:  # which cannot wait
                await asyncio.wait_for(self._count_each(new), wait)
        return {name: row for name in names if (row := self._rows.get(name)) is not None}

    def hurry(self) -> None:
        """Shorten the rest before the next round, for which callers wait. Older counts are shown until then."""
        self._counted.clear()
        self._hurried.set()

    def stop(self) -> None:
        """End the round."""
        if self._task is not None:
            self._task.cancel()

    async def _run_rounds(self) -> None:
        loop = asyncio.get_running_loop()
        while self._asked:
            self._asked, begun = False, loop.time()
            self._hurried.clear()
            done = await self._count_all()
            self._counted.set()
            took = loop.time() - begun
            rest = min(max(_ROUND_PAUSE, rest_after(took, SHARE_OF_TIME / 2)), _LONGEST_REST)
            rest = rest if done else _REST_AFTER_FAILURE
            shortest = max(took, _SHORTEST_REST)
            await asyncio.sleep(shortest)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurried.wait(), max(0.0, rest - shortest))

    async def _count_all(self) -> bool:
        """Count all queues. Returns False if the store answered for none of them."""
        with suppress(ShardqError):
            names = await self._store.names()
            self._rows = {name: self._rows[name] for name in names if name in self._rows}
            await self._count_each(names)
            self.ended_at = datetime.now(UTC)
            return not self._rows or any(row.error is None for row in self._rows.values())
        return False

    async def _count_each(self, names: Collection[str]) -> None:
        rest = iter(names)
        while part := tuple(islice(rest, _PART)):
            rows = await self._store.rows(part)
            for name in part:
                if name in rows:
                    self._rows[name] = rows[name]
                else:
                    self._rows.pop(name, None)


class Tally(msgspec.Struct):
    """How many things an action has changed, also if it fails in the end."""

    changed: int = 0

    def counting(self) -> Callable[[int], None]:
        """Return what a step of the action is to call with its own number so far."""
        before = self.changed

        def count(number: int) -> None:
            self.changed = before + number

        return count


class StoreAccess(msgspec.Struct, frozen=True, dict=True):
    """The store and the rights of a call of an endpoint."""

    store: StoreReads
    grant: Grant
    read_only: bool = False
    mask: Mask | None = None
    doctor: Doctor | None = None
    tally: Tally = msgspec.field(default_factory=Tally)

    @cached_property
    def client(self) -> shardq.aio.Client:
        """The client of the store."""
        return self.store.client

    def may(self, role: Role, queue: str | None = None) -> bool:
        """Return whether the request may act in a role, on a queue or at all."""
        if self.read_only and role != "read":
            return False
        return self.grant.has(role) and (queue is None or self.grant.sees(queue))

    def check(self, role: Role, queue: str | None = None) -> None:
        """Raise Forbidden, or QueueNotFound for a queue that the key does not see."""
        if queue is not None and not self.grant.sees(queue):
            raise QueueNotFound(f"queue {queue!r} does not exist, or the key has no right to see it")
        if self.read_only and role != "read":
            raise Forbidden("this service only reads: start it without --read-only to change something")
        if not self.grant.has(role):
            raise Forbidden(
                f"the key {self.grant.name!r} has the role {self.grant.role}: this needs one with {role}"
            )

    def shown_row(self, row: QueueRow) -> QueueRow:
        """Return a queue without a dead-letter queue that the key does not see."""
        dead = row.dead_letter_queue
        if dead is None or self.grant.sees(dead):
            return row
        return msgspec.structs.replace(row, dead=None, dead_letter_queue=None)

    async def row(self, queue: str) -> QueueRow:
        """Return a queue with its counts. Raises QueueNotFound."""
        return self.shown_row(await self.store.row(queue))

    async def rows(self, queues: Sequence[str]) -> dict[str, QueueRow]:
        """Return queues with their counts, but for those that do not exist."""
        rows = await self.store.rows(queues)
        return {name: self.shown_row(row) for name, row in rows.items()}

    async def counted(self, names: Collection[str], wait: float) -> dict[str, QueueRow]:
        """Return those of the queues that are counted, after at most ``wait`` seconds for the first round."""
        rows = await self.store.survey.rows(names, wait)
        return {name: self.shown_row(row) for name, row in rows.items()}

    def seen(self, names: Iterable[str]) -> list[str]:
        """Return those of the names that the key sees."""
        return [name for name in names if self.grant.sees(name)]

    def hides(self, named: object) -> bool:
        """Return whether the name of a queue, or the id of a message, is of a queue that the key does not see."""
        return isinstance(named, str) and not self.grant.sees(named.partition(":")[0])

    def shown(self, queue: str, body: Any) -> Any:
        """Return what is shown of a body: all of it, or what the mask lets through."""
        return body if self.mask is None else self.mask(queue, body)

"""Creating and deleting queues, with what belongs to them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from shardq.context.queue_context import QueueContexts
from shardq.errors import InvalidSetting, QueueExists, QueueNotFound
from shardq.limits.queue_limits import check_limits
from shardq.receiving.unused import drop_belongings
from shardq.settings import QueueSettings, QueueSettingsArguments, check_store
from shardq.settling.dead_letters import check_dead_letter_queue, create_dead_letter_queue
from shardq.sharding.shard import check_queue_name
from shardq.storage.requests import QueueRecord

__all__ = ["create_queue", "delete_queue"]

_log = logging.getLogger(__name__)


def create_queue(
    contexts: QueueContexts, name: str, given: QueueSettingsArguments, *, exist_ok: bool
) -> None:
    """Create a queue and its dead-letter queue; one that exists is used. See :meth:`shardq.Client.create_queue`."""
    store, retry = contexts.store, contexts.retry
    chosen = _checked(contexts, name, given)
    record = QueueRecord.new(name, chosen.encode())
    created = retry.ask(store.create_queue, record)
    unanswered = created.after_unknown and retry(store.load_queue, name) == record
    if not created.value and not unanswered and not exist_ok:
        raise QueueExists(f"queue {name!r} exists already: use it, or change it with `shardq alter {name}`")
    contexts.forget(name)
    if created.value or unanswered:
        _prepare(contexts, name, chosen, is_new=created.value)
    live = contexts.of(name).live
    live.use()
    _tell_of_others(name, live.known, given)
    if live.known.has_dead_letters:
        create_dead_letter_queue(store, retry, name, live.known)


def delete_queue(contexts: QueueContexts, name: str) -> None:
    """Remove a queue and what belongs to it. See :meth:`shardq.Client.delete_queue`."""
    store, retry = contexts.store, contexts.retry
    record = retry(store.load_queue, check_queue_name(name))
    dropped = retry.ask(store.drop_queue, name)
    contexts.forget(name)
    # Also of a queue that is gone: the call that deleted it may have ended here.
    for other in drop_belongings(store, retry, record or QueueRecord(name, b"", 0), contexts.dismiss):
        contexts.forget(other)
    if not dropped.value and not dropped.after_unknown:
        raise QueueNotFound(f"queue {name!r} does not exist: `shardq list` shows those that do")


def _checked(contexts: QueueContexts, name: str, given: QueueSettingsArguments) -> QueueSettings:
    check_queue_name(name)
    chosen = QueueSettings().change(given)
    check_dead_letter_queue(name, chosen)
    check_limits(name, chosen)
    check_store(chosen, contexts.store.capabilities)
    return chosen


def _tell_of_others(name: str, settings: QueueSettings, given: Mapping[str, object]) -> None:
    """Warn of settings that were given for a queue that existed with others."""
    for setting, value in given.items():
        if (kept := getattr(settings, setting)) != value:
            _log.warning(
                "queue %r exists with %s=%r: %r was not applied; `alter` changes it",
                name,
                setting,
                kept,
                value,
            )


def _prepare(contexts: QueueContexts, name: str, settings: QueueSettings, *, is_new: bool) -> None:
    """Make what the queue's shards need, or a new one is not created; one that may be older stays."""
    try:
        contexts.retry(contexts.store.prepare, settings.layout.all_shards(name))
    except InvalidSetting:
        if is_new:
            contexts.retry(contexts.store.drop_queue, name)
        raise

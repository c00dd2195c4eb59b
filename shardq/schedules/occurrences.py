"""Keeping a schedule going: due occurrences are decided in its record, and then sent.

Any number of consumers do this at the same time. The consumer that replaces the record first decides that an
occurrence takes place, and in the same step when the next one is. Then its message is sent, once under the
occurrence's key, and that is noted. A consumer that finds an occurrence decided upon and not noted as sent sends it
again, under the same key. So a crash between any two steps neither loses nor doubles an occurrence.
"""

from __future__ import annotations

import msgspec

from shardq.base.log import Log
from shardq.client.queue import Queue
from shardq.core.context.queue_context import QueueContext
from shardq.core.sending.storing import send_once
from shardq.schedules.plans import Plans, Seen, id_of
from shardq.schedules.schedule import Plan
from shardq.storage.requests import EntryState

__all__ = ["keep_going"]

_log = Log(__name__)

_FAR = 2**62  # microseconds
_PATIENCE = 2_000_000  # for which who has decided upon an occurrence is given time to send it


def keep_going(context: QueueContext, name: str) -> int:
    """Send the due occurrence of a schedule of the queue. Returns when it has something to do again, in microseconds.

    One occurrence at most is sent, so that a schedule faster than its store does not keep its consumers from receiving.
    """
    plans, own, done = Plans(context.store, context.retry), False, False
    seen = plans.load(name)
    while seen is not None and seen.plan.queue == context.name:
        plan, now = seen.plan, context.store.now()
        if plan.pending is not None:
            if not own and plan.decided <= now < plan.decided + _PATIENCE:
                return plan.decided + _PATIENCE
            changed = _sent(context, name, plan)
        elif plan.paused or context.settings.sends_paused:
            return _FAR
        elif plan.next is None:
            changed = plan.reopened(now)
            if changed == plan:
                return _FAR
        elif plan.next > now:
            changed = plan.brought_near(now)
            if changed == plan:
                return plan.next
        elif done:
            return now
        else:
            changed = plan.turned(now, waits=_waits(context, plan))
        replaced = plans.replace(seen, changed)
        own = replaced is not None
        done = done or changed.pending is None
        seen = replaced or _again(plans, name, seen)
    return _FAR


def _again(plans: Plans, name: str, before: Seen) -> Seen | None:
    _log.debug("schedule %s was turned over by another consumer at version %d", name, before.record.version)
    return plans.load(name)


def _sent(context: QueueContext, name: str, plan: Plan) -> Plan:
    """Send the message of the pending occurrence, unless another call has done so, and return the schedule after it."""
    assert plan.pending is not None
    message = plan.message(id_of(name), plan.pending)
    identity = send_once(context, message, f"{plan.life}:{plan.pending}")
    return msgspec.structs.replace(plan, pending=None, last_message=identity)


def _waits(context: QueueContext, plan: Plan) -> bool:
    """Return whether the due occurrence is to be skipped: the message of the last one is not finished."""
    if plan.overlap == "allow" or plan.last_message is None:
        return False
    found = Queue(context).get(plan.last_message)
    return found is not None and found.state is not EntryState.PROCESSED

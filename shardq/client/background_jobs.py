"""Background jobs of queues, which their consumers attend to: topics to relay, and schedules."""

from __future__ import annotations

from shardq.base.shard import TOPICS_FOLDER
from shardq.core.context.queue_context import QueueContext, QueueContexts

__all__ = ["attend", "dismiss"]


def attend(contexts: QueueContexts, context: QueueContext, job: str) -> int:
    """Attend to a background job of a queue: a topic that is to be relayed, or a schedule."""
    if job.startswith(TOPICS_FOLDER):
        from shardq.topics.background import relay_beside  # noqa: PLC0415 - loaded when there is such a background job

        return relay_beside(contexts, context, job)
    from shardq.schedules import send_due_occurrence  # noqa: PLC0415 - as above

    return send_due_occurrence(context, job)


def dismiss(contexts: QueueContexts, job: str) -> None:
    """Remove the schedule of a background job whose queue is gone."""
    if not job.startswith(TOPICS_FOLDER):
        from shardq.schedules import forget  # noqa: PLC0415 - as above

        forget(contexts, job)

"""Clients of the topic: they publish under two subjects, and receive from its subscriptions."""

from __future__ import annotations

import shardq

from .asking import AT_THE_END, Answering
from .history import Phase
from .published import SUBJECTS
from .role import Role

__all__ = ["Publishing", "Subscribing"]


class Publishing(Role):
    """Publishes one by one, under one subject after the other."""

    def run(self) -> None:
        topic = self.patiently(lambda: self.client.topic(self.assignment.queue))
        number, last = self.assignment.first, self.assignment.first + self.assignment.messages
        while number < last and not self.stopped.is_set():
            self._publish(topic, number)
            number += 1
            if self.dial.hurry:
                last = min(last, number + AT_THE_END)
            self.pause(self.dice.uniform(0.5, 1.5) / self.assignment.rate)

    def _publish(self, topic: shardq.topics.Topic, number: int) -> None:
        subject = SUBJECTS[number % len(SUBJECTS)]
        body = f"{subject} {self.assignment.name.partition('.')[0]}-{number}"
        self.record.invoke("publish", [body])
        try:
            topic.publish(body.encode(), subject=subject)
        except shardq.ShardqError as error:
            sure = isinstance(error, shardq.StoreUnavailable)
            self.record.outcome("publish", Phase.FAILED if sure else Phase.UNKNOWN, [body], note=error)
        else:
            self.record.outcome("publish", Phase.OK, [body])


class Subscribing(Answering):
    """Receives from the queue of a subscription, as a client that knows of no topic does."""

    verb, ended = "hear", "heard"

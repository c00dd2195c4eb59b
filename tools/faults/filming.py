"""Clients of the queue of large bodies: they send them in parts, and read them before they ack."""

from __future__ import annotations

import io

import shardq
from shardq.core.large import bodies

from .films import PART, content_of
from .history import Delivery, Phase
from .receiving import Receiving
from .role import Role

__all__ = ["Filming", "Watching"]

AT_THE_END = 10  # large bodies of each sender, when the faults are over
FORGOTTEN, MOVED = 0.05, 0.2  # of what was read
SLOW = 0.2  # of the streams and of the readers


class Filming(Role):
    """Sends large bodies one by one, of which each follows from its name."""

    def run(self) -> None:
        bodies.PART_BYTES = PART  # type: ignore[attr-defined]
        number, last = self.assignment.first, self.assignment.first + self.assignment.messages
        with self.queue.producer() as producer:
            while number < last and not self.stopped.is_set():
                self._send(producer, f"{self.assignment.name.partition('.')[0]}-{number}")
                number += 1
                if self.dial.hurry:
                    last = min(last, number + AT_THE_END)
                self.pause(self.dice.uniform(0.5, 1.5) / self.assignment.rate)

    def _send(self, producer: shardq.Producer, name: str) -> None:
        self.record.invoke("film", [name])
        try:
            producer.send_stream(_Reel(self, name), headers={"name": name})
        except shardq.ShardqError as error:
            sure = isinstance(error, shardq.StoreUnavailable | shardq.BodyNotFound)
            self.record.outcome("film", Phase.FAILED if sure else Phase.UNKNOWN, [name], note=error)
        else:
            self.record.outcome("film", Phase.OK, [name])


class _Reel(io.BytesIO):
    """A stream that now and then waits between two parts."""

    def __init__(self, role: Role, name: str) -> None:
        super().__init__(content_of(name))
        self._role, self._slow = role, role.dice.random() < SLOW

    def read(self, size: int | None = -1, /) -> bytes:
        if self._slow:
            self._role.pause(self._role.dice.random() * 0.2)
        return super().read(size)


class Watching(Receiving):
    """Reads what it receives, and acks it, moves it to the end of the queue, or forgets it."""

    verb = "watch"
    limits = (1, 3)

    def run(self) -> None:
        with self.queue.consumer(visibility_timeout=self.assignment.lease) as consumer:
            while not self.stopped.is_set():
                for message in self.receive(consumer) or ():
                    self._watch(message)

    def delivery(self, message: shardq.Message) -> Delivery:
        return Delivery(str(message.headers["name"]), message.id, message.priority, 0, message.deliveries)

    def _watch(self, message: shardq.Message) -> None:
        name = str(message.headers["name"])
        self.record.invoke("view", [name])
        try:
            found = self._read(message, content_of(name))
        except shardq.BodyNotFound:
            found = "gone"
        except shardq.InvalidMessage as error:
            found = f"cut: {error}"
        except shardq.ShardqError as error:
            self.record.outcome("view", Phase.UNKNOWN, [name], note=error)
            self.pause(0.1)
            return
        self.record.outcome("view", Phase.OK, [name], note=found)
        self._finish(message, name)

    def _read(self, message: shardq.Message, sent: bytes) -> str:
        slow, content = self.dice.random() < SLOW, b""
        with message.open() as body:
            while some := body.read(PART):
                content += some
                if slow:
                    self.pause(self.dice.random() * self.assignment.lease / 4)
        return "whole" if content == sent else f"cut: {len(content)} of {len(sent)} bytes"

    def _finish(self, message: shardq.Message, name: str) -> None:
        way = 1.0 if self.dial.hurry else self.dice.random()
        if way < FORGOTTEN:
            return
        verb = "pass" if way < FORGOTTEN + MOVED else "watched"
        self.record.invoke(verb, [name])
        try:
            message.forward(self.queue.name, atomic=False) if verb == "pass" else message.ack()
        except shardq.LeaseLost as error:
            self.record.outcome(verb, Phase.LOST, [name], note=error)
        except shardq.ShardqError as error:
            self.record.outcome(verb, Phase.UNKNOWN, [name], note=error)
        else:
            self.record.outcome(verb, Phase.OK, [name])

"""A quorum queue of RabbitMQ, of one server: its log is fsynced before it confirms."""

from __future__ import annotations

from typing import ClassVar

from .rabbitmq_confirmed import RabbitmqConfirmed


class RabbitmqQuorum(RabbitmqConfirmed):
    name = "RabbitMQ, quorum queue"
    sends = "a quorum queue, confirmed by the server after its fsync; asynchronous confirms in bulk"
    arguments: ClassVar[dict[str, str]] = {"x-queue-type": "quorum"}

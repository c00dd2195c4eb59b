"""RabbitMQ without confirms: a message may be lost between the call and the server's disk."""

from __future__ import annotations

from .rabbitmq_confirmed import RabbitmqConfirmed


class RabbitmqUnconfirmed(RabbitmqConfirmed):
    name = "RabbitMQ, no confirms"
    durability = "not waited for"
    sends = "persistent, not confirmed: done when the server has read them"
    wins = "nothing is waited for: neither the disk nor an answer to an ack"
    confirms = False

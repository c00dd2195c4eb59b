"""Clients of the queue that a schedule sends to: they keep it going while they receive."""

from __future__ import annotations

import msgspec

import shardq
from shardq.base.clock import from_datetime
from shardq.schedules.schedule import MOMENT_HEADER

from .asking import Answering
from .history import Delivery

__all__ = ["Ticking"]


class Ticking(Answering):
    """Receives occurrences, and writes down the moment of each and when it was sent."""

    verb, ended = "tick", "ended-tick"

    def delivery(self, message: shardq.Message) -> Delivery:
        return msgspec.structs.replace(
            super().delivery(message),
            body=str(message.headers[MOMENT_HEADER]),
            due=from_datetime(message.enqueued_at),
        )

"""What the actors wrote down, and whether the promises held."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

__all__ = ["Ledger"]


class Ledger:
    """All events of a round, by message."""

    def __init__(self, logs: list[Path]) -> None:
        self.times: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for log in logs:
            *lines, _ = log.read_text().split("\n")  # a kill may cut the last one where a page ends
            for line in lines:
                at, event, *bodies = line.split(" ")
                for body in filter(None, bodies):
                    self.times[event][body].append(int(at))

    def lost(self) -> set[str]:
        """Messages whose send was confirmed and that nobody ever tried to ack: actors may die while they do."""
        return set(self.times["sent"]) - set(self.times["acking"])

    def unexpected(self) -> set[str]:
        """Messages that were received and that nobody began to send."""
        return set(self.times["received"]) - set(self.times["sending"])

    def acked_twice(self) -> set[str]:
        """Messages of which two acks took effect."""
        return {body for body, acks in self.times["acked"].items() if len(acks) > 1}

    def redelivered_after_ack(self) -> set[str]:
        """Messages that a consumer got although it asked only after their ack had returned."""
        acked = self.times["acked"]
        return {
            body
            for body, asked in self.times["received"].items()
            if body in acked and max(asked) > min(acked[body])
        }

    def problems(self) -> dict[str, list[str]]:
        """Every broken promise, with examples of the messages."""
        found = {
            "lost": self.lost(),
            "unexpected": self.unexpected(),
            "acked twice": self.acked_twice(),
            "redelivered after ack": self.redelivered_after_ack(),
        }
        return {name: sorted(bodies)[:5] for name, bodies in found.items() if bodies}

"""The end of a campaign's moves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tools.faults.side import finish_moves


def test_a_message_between_two_counts_is_moved_before_the_movers_leave_for_good() -> None:
    """It is not seen: redriven to the side queue, that was counted before, and away from the dead letters."""
    side = {"q.side": [0, 1, 0, 0], "q.side.dead": [0, 0, 0, 0]}
    done: list[str] = []

    def queue(name: str) -> Any:
        return SimpleNamespace(
            counts=lambda: SimpleNamespace(ready=side[name].pop(0), delayed=0, in_flight=0)
        )

    stage: Any = SimpleNamespace(
        end=lambda role: done.append(f"end {role}"),
        start=lambda _role, place, queue: done.append(f"{place} {queue}"),
    )
    client: Any = SimpleNamespace(queue=queue)
    assert finish_moves(stage, client, "q", 5) == []
    assert done == ["end move", "m1 q.side", "m2 q.side", "end move"]


def test_what_is_never_moved_is_told() -> None:
    counts = SimpleNamespace(ready=1, delayed=0, in_flight=0)
    client: Any = SimpleNamespace(queue=lambda _: SimpleNamespace(counts=lambda: counts))
    (told,) = finish_moves(SimpleNamespace(end=lambda _: None), client, "q", 0.3)  # type: ignore[arg-type]
    assert "not moved in time" in told

"""What a random history did, for whoever has to explain why it failed: threads make that another one each time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeVar

import msgspec

from shardq.storage.store import Store
from shardq.testing import FaultPlan, FaultyStore, ManualClock

__all__ = ["Record", "RecordedStore", "told"]

P = ParamSpec("P")
T = TypeVar("T")

KEPT = 200  # lines
CHANGES = {"append", "claim", "extend", "acknowledge", "release", "forward", "remove", "purge"}


class Record:
    """The last things that were done, with the time of the clock and the thread."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._lines: deque[str] = deque(maxlen=KEPT)

    def add(self, what: str, *details: object) -> None:
        text = " ".join(map(told, details))
        now = f"{datetime.fromtimestamp(self._clock.now() / 1e6, UTC):%H:%M:%S.%f}"[:-4]
        self._lines.append(f"{now} {threading.current_thread().name}: {what} {text}")

    def __str__(self) -> str:
        return "\n".join(["The last things that were done:", *self._lines.copy()])


class RecordedStore(FaultyStore):
    """A store with faults that records every change it is asked for, and the answer."""

    def __init__(self, inner: Store, plan: FaultPlan, record: Record) -> None:
        super().__init__(inner, plan)
        self._record_of_changes = record

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        answer: object = None
        try:
            answer = result = super().call(method, do, *args, **kwargs)
        except Exception as error:
            answer = error
            raise
        finally:
            if method in CHANGES:
                self._record_of_changes.add(method, *args, "->", answer)
        return result


def told(value: object) -> str:
    """A value in short: only fields that are not as by default, the ends of tokens and ids, and of times the clock."""
    match value:
        case bytes():
            return value.decode() if value.isalnum() and value.isascii() else f"..{value[-3:].hex()}"
        case int() if value > 10**15:
            return f"{datetime.fromtimestamp(min(value / 1e6, 1e11), UTC):%H:%M:%S}"
        case msgspec.Struct():
            return f"{type(value).__name__}({', '.join(_fields(value))})"
        case tuple() | list():
            return f"[{', '.join(map(told, value))}]"
        case _:
            return str(value)


def _fields(value: msgspec.Struct) -> list[str]:
    """``data`` is left out: it is as long as what was sent, and the id tells which it is."""
    found: list[str] = []
    for field in msgspec.structs.fields(value):
        content: Any = getattr(value, field.name)
        if field.name != "data" and content != field.default:
            found.append(f"{field.name}={told(content)}")
    return found

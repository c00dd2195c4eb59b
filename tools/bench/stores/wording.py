"""Loads and figures in words."""

from __future__ import annotations

from .load import Load
from .result import Result

__all__ = [
    "FIXED_RATE",
    "IDLE",
    "IDLE_WITH_SERVER",
    "LOADED",
    "figure",
    "load_in_words",
    "spread",
]

FIXED_RATE = "latency at a fixed rate"
LOADED = "latency under load"
IDLE = "idle consumers"
IDLE_WITH_SERVER = "idle consumers and what the server does for them"


def figure(value: float) -> str:
    """A number with three or more digits that mean something."""
    if value >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def spread(result: Result) -> str:
    """The lowest and the highest round."""
    return f"{figure(result.low)} .. {figure(result.high)}" if len(result.rounds) > 1 else ""


def load_in_words(name: str, load: Load) -> str:
    """What tells this load from others of the same measurement."""
    parts = _SAID[name](load) if name in _SAID else [f"{load.messages:,} messages of {load.body_bytes} B"]
    return ", ".join(parts)


def _sends(load: Load) -> list[str]:
    return [_count(load.processes, "process"), _bodies(load)]


def _threads(load: Load) -> list[str]:
    return [f"{load.threads} threads", f"linger {load.linger * 1_000:g} ms", _bodies(load)]


def _reads(load: Load) -> list[str]:
    return [_count(load.processes, "process"), f"by {load.batch}", _bodies(load)]


def _both(load: Load) -> list[str]:
    return [f"{_count(load.processes, 'producer')} and {_count(load.processes, 'consumer')}", _bodies(load)]


def _fixed_rate(load: Load) -> list[str]:
    return [f"{load.rate:g} messages/s for {load.seconds:g} s", _bodies(load)]


def _claims(load: Load) -> list[str]:
    return [f"by {load.batch}", f"{load.backlog:,} waiting"]


def _past(load: Load) -> list[str]:
    kept = " and kept in the history" if load.history else ""
    return [*_claims(load), f"{load.consumed:,} consumed before{kept}"]


def _idle(load: Load) -> list[str]:
    return [f"{load.processes} processes", f"{load.seconds:g} s"]


def _bodies(load: Load) -> str:
    return f"{load.body_bytes:,} B"


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}{'es' if noun.endswith('s') else 's'}"


_SAID = {
    "send bulk": _sends,
    "send singles": _sends,
    "send singles from threads": _threads,
    "receive and ack": _reads,
    "receive and ack singles": _reads,
    "end to end": _both,
    FIXED_RATE: _fixed_rate,
    LOADED: _fixed_rate,
    "claim": _claims,
    "claim of singles": _claims,
    "claim after consumption": _past,
    IDLE: _idle,
    IDLE_WITH_SERVER: _idle,
}

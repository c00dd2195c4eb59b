"""A layout for a load: each number with its reason, and the resource that is used up first."""

from __future__ import annotations

import math

import msgspec

from shardq.base.texts import shown
from shardq.errors import InvalidSetting
from shardq.planning.load import (
    BUNDLE_BYTES,
    BUNDLE_MESSAGES,
    PLANNED,
    Load,
    UnitCosts,
    Wanted,
    load,
    unit_costs,
)

__all__ = ["Choice", "Plan", "Use", "plan"]

_CONDITIONS = (
    "whole bundles in one send_many at a steady rate, batches that are read and acked whole by consumers that keep up; "
    "no groups, keys, history, results or handlers; processes that share their cores with others"
)
"""Under which the unit costs were measured. Under others a message costs more."""

_SHARD_BYTES = 128_000_000  # of a partition; more of them makes compaction and repair slow
_CROSSABLE = 100_000  # tombstones; the server refuses a read that crosses more
_CROSSED_SECONDS = 6.0  # a claim crosses what was consumed in this time, see docs/design/cassandra.md
_LAP = 300.0  # seconds until a partition is written again, at least
_MOST_SHARDS = 10_000  # of a queue on Cassandra
_SHORTEST_TURN, _LONGEST_TURN = 5.0, 30.0
_EACH = 8  # the busiest has half as much again as the mean, see docs/scaling.md
_DEFAULT_RING = (("time_shard_seconds", 30.0), ("time_shards", 10))
_EMBEDDED = frozenset({"sqlite"})  # one file, written by one at a time
_ONE_PRIMARY = frozenset({"mongodb", "postgresql"})  # it answers every request
_MOST_ON_DEFAULT_RING = 1_000 // 10  # a queue there has 1,000 at most, in 10 time shards by default


class Choice(msgspec.Struct, frozen=True):
    """A number of the layout, and the reason for it."""

    name: str
    value: float
    reason: str


class Use(msgspec.Struct, frozen=True):
    """The share of a resource that the load takes. Above 1 the layout cannot carry the load."""

    resource: str
    share: float
    reason: str
    cores: float = 0.0  # of processors: how many are busy


class Plan(msgspec.Struct, frozen=True):
    """The layout for a load: settings, processes and nodes, and their use."""

    wanted: Wanted
    choices: tuple[Choice, ...]
    uses: tuple[Use, ...]  # the greatest first
    source: str  # of the unit costs

    @property
    def conditions(self) -> str:
        """Under which the unit costs were measured, and hold."""
        return _CONDITIONS

    @property
    def limit(self) -> Use:
        """The resource that would be used up first if the load grew: the one with the greatest share."""
        return self.uses[0]

    @property
    def feasible(self) -> bool:
        """True when no resource is used up."""
        return self.uses[0].share <= 1

    def value(self, name: str) -> float:
        """Return the number of the choice with this name."""
        return next(choice.value for choice in self.choices if choice.name == name)


def plan(wanted: Wanted, costs: UnitCosts | None = None) -> Plan:
    """Plan the layout of a queue. Raises InvalidSetting for a store whose unit costs are not known."""
    if not isinstance(wanted, Wanted) or not isinstance(costs, UnitCosts | None):
        raise InvalidSetting(
            f"wanted={shown(wanted)}, costs={shown(costs)}: give a Wanted, and UnitCosts or None"
        )
    costs = costs or unit_costs(wanted.store)
    found = load(wanted, costs)
    if wanted.store in _EMBEDDED:
        nodes, shards = Choice("nodes", 1, "no server"), Choice("shards", 1, "the file has one writer")
        seconds, ring = (Choice(name, value, "as it is by default") for name, value in _DEFAULT_RING)
    elif wanted.store in _ONE_PRIMARY:
        nodes = Choice("nodes", wanted.copies, "a primary and its copies")
        shards = _most(_needs_of_clients(found), _MOST_ON_DEFAULT_RING)
        seconds, ring = (Choice(name, value, "as it is by default") for name, value in _DEFAULT_RING)
    else:
        nodes = _nodes(found)
        shards = _shards(found, int(nodes.value))
        seconds, ring = _ring(found, int(shards.value))
    uses = [*_client_uses(found), *_store_uses(found, nodes.value, shards.value, seconds.value)]
    return Plan(
        wanted,
        (shards, ring, seconds, *_sizes(found), nodes),
        tuple(sorted(uses, key=lambda use: -use.share)),
        costs.source,
    )


def _sizes(found: Load) -> tuple[Choice, ...]:
    part, cores = f"in a quarter of {found.wanted.latency:g} s", f"{PLANNED:.0%} of a core planned for"
    if (found.bundle + 1) * found.wanted.size > BUNDLE_BYTES:
        reason = f"{BUNDLE_BYTES:,} bytes"
    elif found.bundle == BUNDLE_MESSAGES:
        reason = "more would save little"
    else:
        reason = f"what a producer gets {part}"
    asked = " (as given)" if found.wanted.consumers else ""
    return (
        Choice("bundle_messages", found.bundle, reason),
        Choice("claim_messages", found.per_claim, _claimed(found)),
        Choice("producers", found.producers, f"{found.send_cost:.3g} us of a core a message, {cores}"),
        Choice(
            "consumers", found.consumers, f"{found.receive_cost:.3g} us of a core a message, {cores}{asked}"
        ),
    )


def _claimed(found: Load) -> str:
    if found.per_claim == found.bundle:
        return "a bundle: consumers that keep up claim each as it comes"
    return "messages that reach a consumer while it is at work"


def _nodes(found: Load) -> Choice:
    wanted = found.wanted
    needed = math.ceil(found.serving / 1e6 / (wanted.cores * PLANNED))
    if needed <= wanted.copies:
        return Choice("nodes", wanted.copies, "one for each copy")
    reason = f"{found.server_cost:.3g} us of a core a message with {wanted.copies} copies"
    return Choice("nodes", needed, f"{reason}, {PLANNED:.0%} of {wanted.cores} cores planned for")


def _needs_of_clients(found: Load) -> list[tuple[float, str]]:
    """Compute how many shards are needed, and why."""
    round_ms = found.costs.claim_and_ack_ms
    return [
        (
            found.claims_a_second * round_ms / 1e3 / PLANNED,
            f"a shard's claims and acks follow each other, {round_ms:g} ms for both",
        ),
        (_EACH * found.consumers, f"{_EACH} for each consumer, so that all own about as much"),
    ]


def _shards(found: Load, nodes: int) -> Choice:
    crossed = found.tombstones_a_second * _CROSSED_SECONDS
    written = found.bytes_a_second * _SHORTEST_TURN
    return _most(
        [
            *_needs_of_clients(found),
            (crossed / _CROSSABLE / PLANNED, f"a read crosses what was consumed in {_CROSSED_SECONDS:g} s"),
            (written / _SHARD_BYTES / PLANNED, f"bytes written to a shard in a turn of {_SHORTEST_TURN:g} s"),
            (_EACH * nodes, f"{_EACH} for each node, so that all hold about as much"),
        ]
    )


def _most(needs: list[tuple[float, str]], most: int = _MOST_SHARDS // 2) -> Choice:
    count, reason = max(needs)
    return Choice("shards", min(math.ceil(count), most), reason)


def _ring(found: Load, shards: int) -> tuple[Choice, Choice]:
    full = _SHARD_BYTES * PLANNED * shards / found.bytes_a_second
    seconds = float(max(_SHORTEST_TURN, min(_LONGEST_TURN, math.floor(full))))
    megabytes = found.bytes_a_second * seconds / shards / 1e6
    count = max(2, min(math.ceil(_LAP / seconds), _MOST_SHARDS // shards))
    return (
        Choice("time_shard_seconds", seconds, f"a shard gets {megabytes:.3g} MB until the ring moves on"),
        Choice(
            "time_shards",
            count,
            f"a shard rests for {(count - 1) * seconds:g} s; {count * shards:,} shards in all",
        ),
    )


def _client_uses(found: Load) -> tuple[Use, ...]:
    rate = found.wanted.rate
    return (
        _processors("producers' processors", rate * found.send_cost, found.producers),
        _processors("consumers' processors", found.receiving, found.consumers),
    )


def _processors(name: str, microseconds_a_second: float, cores: int) -> Use:
    busy = microseconds_a_second / 1e6
    return Use(name, busy / cores, f"{busy:.3g} of {cores:,} cores are busy", busy)


def _store_uses(found: Load, nodes: float, shards: float, turn: float) -> tuple[Use, ...]:
    wanted, costs = found.wanted, found.costs
    rounds = found.claims_a_second * costs.claim_and_ack_ms / 1e3
    if wanted.store in _EMBEDDED:
        appends = wanted.rate / found.bundle * costs.append_ms / 1e3
        return (Use("the file's one writer", appends + rounds, "appends, claims and acks follow each other"),)
    if wanted.store in _ONE_PRIMARY:
        return (
            _processors("the primary's processors", found.serving / wanted.copies, wanted.cores),
            Use("rounds of a shard", rounds / shards, "its claims and acks follow each other"),
        )
    cores = int(nodes * wanted.cores)
    crossed = found.tombstones_a_second * _CROSSED_SECONDS / shards / _CROSSABLE
    written = found.bytes_a_second * turn / shards / _SHARD_BYTES
    return (
        _processors("servers' processors", found.serving, cores),
        Use("rounds of a shard", rounds / shards, "its claims and acks follow each other"),
        Use("tombstones of a read", crossed, f"the server refuses one that crosses {_CROSSABLE:,}"),
        Use(
            "bytes of a shard",
            written,
            f"more than {_SHARD_BYTES // 10**6} MB in a partition make compaction slow",
        ),
    )

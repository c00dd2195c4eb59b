"""Who takes part in a run: every queue, or shardq on one store and what people would use instead of it there."""

from __future__ import annotations

import msgspec

from .asked import NEEDED
from .group import CASSANDRA, ELASTICMQ, FILES, KAFKA, MONGODB, POSTGRESQL, SERVERS, Group
from .rounds import Rounds

FEWEST = 160  # ten for each of 16 threads
SINGLES = 1_000  # twice what is received at a time
ENOUGH = 4  # a part of the messages, for a processor time that is not that of the first of them


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """The first queue of ``groups`` is shardq's.

    ``batch`` and ``single_batch`` are those of receives. ``measured`` names the measurements of shardq's stores that
    belong to it; all without any. ``short``: nothing grows, and there are as many rounds when it is to be quick.
    """

    store: str
    name: str  # of its page, and of the folder beside it
    title: str
    groups: tuple[Group, ...]
    batch: int = 500
    single_batch: int = 500
    messages: int = 50_000  # in bulk, in each round
    singles: int = 1_000
    warm_ups: int = 1  # rounds that are not counted
    measured: tuple[str, ...] = ()
    short: bool = False

    @property
    def several(self) -> bool:
        """True when it has several of shardq's stores."""
        return sum(1 for group in self.groups if group.store) > 1

    def rounds(self, *, quick: bool) -> Rounds:
        """How often and how much its queues are asked for; a tenth of it when it is to be quick."""
        share = 10 if quick else 1
        return Rounds(
            rounds=3 if quick and not self.short else 5,
            warm_ups=1 if quick else self.warm_ups,
            messages=self.messages // (ENOUGH if self.short and quick else share),
            singles=max(self.singles // share, SINGLES if self.short else 0),
            few=max(FEWEST, self.singles // share // 5),
            batch=self.batch,
            single_batch=self.single_batch,
            latency_rounds=1 if quick and not self.short else 3,
            rate=100.0,
            seconds=1.0 if quick and not self.short else 5.0,
            load_seconds=0.0 if self.short else 0.5 if quick else 2.0,
        )

    def of(self, modules: tuple[str, ...]) -> Field:
        """The same with these peers only, and no stores to measure; raises ValueError for one that is not in it."""
        unknown = set(modules) - {name for group in self.groups for name in group.peers}
        if unknown:
            raise ValueError(f"no such peers in the field {self.store}: {', '.join(sorted(unknown))}")
        groups = (msgspec.structs.replace(group.of(modules), store="") for group in self.groups)
        return msgspec.structs.replace(self, groups=tuple(group for group in groups if group.peers))

    def asked(self) -> Field:
        """The same with the peers that shardq is to reach, and of its stores only what their consumers take idle."""
        groups = (group.of(NEEDED) for group in self.groups)
        return msgspec.structs.replace(
            self, short=True, groups=tuple(group for group in groups if group.peers)
        )


ALL = Field(
    store="all",
    name="benchmarks",
    title="Benchmarks",
    groups=(
        *(FILES, CASSANDRA, MONGODB, POSTGRESQL.of(("shardq_postgresql", "postgres_skip_locked"))),
        *(SERVERS, KAFKA, ELASTICMQ),
    ),
    measured=("latency",),
)
ON_SQLITE = Field(
    store="sqlite",
    name="benchmarks-sqlite",
    title="Benchmarks on SQLite",
    groups=(FILES, SERVERS, POSTGRESQL.of(("postgres_skip_locked",)), KAFKA, ELASTICMQ),
)
ON_CASSANDRA = Field(
    store="cassandra",
    name="benchmarks-cassandra",
    title="Benchmarks on Cassandra",
    groups=(CASSANDRA,),
    batch=1000,
    messages=200_000,
    singles=5_000,
    warm_ups=2,
)
ON_MONGODB = Field(
    store="mongodb",
    name="benchmarks-mongodb",
    title="Benchmarks on MongoDB",
    groups=(MONGODB,),
    batch=1000,
    messages=200_000,
    singles=5_000,
    warm_ups=2,
)
ON_POSTGRESQL = Field(
    store="postgresql",
    name="benchmarks-postgresql",
    title="Benchmarks on PostgreSQL",
    groups=(POSTGRESQL,),
    batch=500,
    messages=200_000,
    singles=5_000,
    warm_ups=2,
)
FIELDS = {field.store: field for field in (ALL, ON_SQLITE, ON_CASSANDRA, ON_MONGODB, ON_POSTGRESQL)}

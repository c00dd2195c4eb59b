"""Receiving messages as a stream: each micro-batch is some claims of shards.

Nothing is claimed when a batch is planned. Its offset names the shards of each task and how many messages it claims.
The tasks claim under names that follow from it. So a retried task, a second action on the batch and a restarted query
find the same messages. They are acked when the batch is committed, where the checkpoint can be read. Elsewhere they
are acked when Spark asks for the batch after it, which it does only once the batch is done. It asks also on idle
ticks, and before a query with the trigger AvailableNow ends. Spark calls ``commit`` later than that, and not at all
for the last batch.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from shardq.base.clock import microseconds
from shardq.base.log import Log
from shardq.base.shard import Shard
from shardq.core.context.queue_context import QueueContext
from shardq.core.held import HeldSlice
from shardq.core.limits.queue_limits import check_unlimited
from shardq.core.receiving.named_claim_log import CLAIMS_AT_ONCE, ClaimName
from shardq.core.receiving.named_claims import NamedClaimResult, NamedClaims
from shardq.errors import LeaseLost
from shardq.spark.bodies import BodyReader
from shardq.spark.connection import context_of, task_context
from shardq.spark.options import ClaimStreamOptions
from shardq.spark.planning import Planner, Sizes
from shardq.spark.rows import arrow_schema, batches_of, check_schema, piece_of_claim, schema_of
from shardq.spark.stream_upkeep import Backlog, CommitLog, Heartbeat, StreamUpkeep, interval_of, task_slots

__all__ = ["ClaimPartition", "ClaimStream", "claims_for", "partitions_of"]

_log = Log(__name__)

CLAIM_MESSAGES = 10_000
_GO_ON = "; to continue without them, restart the query once with failOnLeaseLoss=false"


@dataclass
class ClaimPartition(InputPartition):
    """The claims of one task of a micro-batch: a number of messages, from one shard after the other."""

    shards: tuple[Shard, ...]
    name: str
    limit: int
    run: str = ""  # of the query: one that is restarted delivers its last batch again

    @property
    def claims(self) -> list[ClaimName]:
        """All claims that the task may make: it holds the bodies of one in memory."""
        return [self.claim(shard, start) for shard in self.shards for start in self.starts]

    @property
    def starts(self) -> range:
        """Where the claims of a shard begin, in messages of that shard."""
        return range(0, self.limit, CLAIM_MESSAGES)

    def claim(self, shard: Shard, start: int) -> ClaimName:
        """Name one of the claims."""
        return ClaimName(shard, f"{self.name}:{start}")


class ClaimStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are ``{"incarnation", "seq", "plan": {"<time shard>:<shard>,...": limit}}``, kept by Spark alone."""

    def __init__(self, options: ClaimStreamOptions, schema: StructType) -> None:
        check_schema(schema, schema_of(options))
        self._options, self._schema = options, schema
        self._heartbeat: Heartbeat | None = None
        check_unlimited(options.queue, context_of(options).settings)
        self._log = None if options.checkpoint_location is None else CommitLog(options.checkpoint_location)
        self._run = secrets.token_hex(8)
        self._finished = -1  # the batch that was finished last, by its number
        self._lost: LeaseLost | None = None  # what fails the query at its next trigger
        self._last: int | None = None  # with AvailableNow: messages that are due later are left alone
        self._planned = -1  # the batch that was planned last, by its number

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first batch of a new query."""
        return {"incarnation": secrets.token_hex(8), "seq": 0, "plan": {}}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Limit the number of messages in a batch."""
        return ReadMaxRows(self._options.max_messages_per_trigger)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Ack the batch that ends at the start, as it is done; then plan the next one."""
        self._finish(start)
        self._exclude_unread(start)
        self._upkeep.attend()
        most = self._options.max_messages_per_trigger
        if isinstance(limit, ReadMaxRows):
            most = limit.max_rows
        elif isinstance(limit, ReadAllAvailable):
            most = max(most, 10_000_000)
        # It waits, unless this trigger is the last one.
        patient = isinstance(limit, ReadMaxRows) and self._last is None
        plan = self._planner.plan(most, self._last, patient=patient)
        if not plan:
            return start
        self._planned = start["seq"] + 1
        return {
            "incarnation": start["incarnation"],
            "seq": self._planned,
            "plan": {",".join(map(_place, shards)): count for shards, count in plan.items()},
        }

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Count pending messages, for the progress of the query; None: this is turned off."""
        if self._options.backlog_seconds is None:
            return None
        return self._backlog.report(self._options.backlog_seconds)

    def prepareForTriggerAvailableNow(self) -> None:
        """End when everything that is due by now is done."""
        self._last = context_of(self._options).store.now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the planned tasks. Depends on the end only."""
        if start == end:
            return []
        planned = [replace(planned, run=self._run) for planned in partitions_of(end, self._options)]
        self._keep(_names(planned), end)
        return planned

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Claim the messages, or find those that were claimed before."""
        if not isinstance(partition, ClaimPartition):
            return iter(())
        return self._batches(partition)

    def _batches(self, partition: ClaimPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task, which extends the leases of its claims while it reads."""
        with task_context(self._options) as context:
            claims, taken = claims_for(self._options, context), list[ClaimName]()
            interval = interval_of(self._options.lease_seconds)
            with Heartbeat(claims, taken, interval, at_once=CLAIMS_AT_ONCE):
                held = map(piece_of_claim, self._held(partition, claims, taken))
                yield from batches_of(held, arrow_schema(self._schema), BodyReader(self._options))

    def _held(
        self, partition: ClaimPartition, claims: NamedClaims, taken: list[ClaimName]
    ) -> Iterator[HeldSlice]:
        """Yield the messages of one claim after the other, until the task has enough.

        The messages of an earlier attempt count, whether they are still held or not: so every attempt makes the same
        claims.
        """
        missing = partition.limit
        for shard in partition.shards:
            for start in partition.starts:
                asked = min(CLAIM_MESSAGES, missing)
                claim = partition.claim(shard, start)
                taking = self._take(claims, claim, asked, partition.run)
                taken.append(claim)
                yield from taking.held
                missing -= taking.got
                if not missing:
                    return
                if taking.got < asked:
                    break

    def _take(self, claims: NamedClaims, claim: ClaimName, limit: int, run: str) -> NamedClaimResult:
        options = self._options
        strict = options.fail_on_lease_loss and options.ack_mode == "commit"
        try:
            return claims.take(claim, limit, owner=f"spark-{options.group}", strict=strict, run=run)
        except LeaseLost as error:
            raise LeaseLost(f"{error}{_GO_ON}", error.messages) from error

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: see ``latestOffset``, which is called earlier and for every batch."""

    def stop(self) -> None:
        """Keep no lease any more. A batch that was committed a moment ago is acked, if Spark leaves the time for it."""
        if self._heartbeat is not None:
            self._heartbeat.close_finishing()
            self._heartbeat = None
        if "_upkeep" in self.__dict__:
            self._upkeep.close()

    @cached_property
    def _planner(self) -> Planner:
        """Made where batches are planned: Spark copies a reader to its tasks."""
        options = self._options
        sizes = Sizes(
            min_messages=options.min_messages_per_trigger,
            max_delay=microseconds(options.max_trigger_delay_seconds),
            min_tasks=options.min_partitions,
            max_tasks=options.max_partitions,
            slots=task_slots(),
        )
        return Planner(context_of(options), f"spark-{options.group}", sizes)

    @cached_property
    def _upkeep(self) -> StreamUpkeep:
        return StreamUpkeep(context_of(self._options))

    @cached_property
    def _backlog(self) -> Backlog:
        return Backlog(context_of(self._options))

    def _finish(self, start: dict[str, Any]) -> None:
        """Ack the batch that ends here, once; raises LeaseLost, if that fails the query."""
        self._end_heartbeat()
        if start["seq"] != self._finished:
            self._ack(start)
        if self._lost is not None:
            raise self._lost

    def _exclude_unread(self, end: dict[str, Any]) -> None:
        """Let a query with AvailableNow end though the function of its foreachBatch did not read the batch.

        Otherwise each batch would be planned over the same messages, which stay in the queue.
        """
        if self._last is None or end["seq"] != self._planned:
            return
        self._planned = -1
        tasks = partitions_of(end, self._options)
        first = [task.claim(shard, 0) for task in tasks for shard in task.shards]
        if not claims_for(self._options, context_of(self._options)).is_any_made(first):
            _log.warning(
                "batch %d from queue %r was committed, but nothing has read it: its messages stay in the queue, and "
                "this query leaves its %d shards out; run an action on the batch in foreachBatch, such as a write",
                end["seq"], self._options.queue, len(first),
            )  # fmt: skip
            self._planner.exclude(claim.shard for claim in first)

    def _finish_if_committed(self, log: CommitLog, end: dict[str, Any]) -> bool:
        """Ack the batch that ends here, if Spark has committed it."""
        committed = log.has(end)
        if committed:
            self._ack(end)
        return committed

    def _ack(self, end: dict[str, Any]) -> None:
        """Ack the batch that ends here, if that is not up to the job."""
        claims = _names(partitions_of(end, self._options))
        lost = 0
        if claims and self._options.ack_mode == "commit":
            lost = claims_for(self._options, context_of(self._options)).ack(claims)
        self._finished = end["seq"]
        if lost:
            text = (
                f"{lost} messages of batch {end['seq']} from queue {self._options.queue!r} were not acked: their "
                "lease was over and they are delivered again; raise leaseSeconds"
            )
            _log.warning("%s", text)
            self._lost = LeaseLost(text + _GO_ON) if self._options.fail_on_lease_loss else None

    def _keep(self, claims: Sequence[ClaimName], end: dict[str, Any]) -> None:
        """Extend the leases of these claims from now on, and of no others, until their batch is finished."""
        self._end_heartbeat()
        if claims:
            finish = None if self._log is None else partial(self._finish_if_committed, self._log, end)
            kept = claims_for(self._options, context_of(self._options))
            self._heartbeat = Heartbeat(kept, claims, interval_of(self._options.lease_seconds), finish)

    def _end_heartbeat(self) -> None:
        """Extend no lease any more, and ack nothing behind the back of the caller."""
        if self._heartbeat is not None:
            self._heartbeat.close()
            self._heartbeat = None


def partitions_of(offset: dict[str, Any], options: ClaimStreamOptions) -> list[ClaimPartition]:
    """Return the tasks of the batch that ends at an offset."""
    name = f"{options.group}:{offset['incarnation']}:{offset['seq']}"
    return [
        ClaimPartition(tuple(_shard(options.queue, place) for place in places.split(",")), name, limit)
        for places, limit in offset["plan"].items()
    ]


def _place(shard: Shard) -> str:
    return f"{shard.time_shard}:{shard.number}"


def _shard(queue: str, place: str) -> Shard:
    time_shard, _, number = place.partition(":")
    return Shard(queue, int(time_shard), int(number))


def _names(planned: Sequence[ClaimPartition]) -> list[ClaimName]:
    return [claim for partition in planned for claim in partition.claims]


def claims_for(options: ClaimStreamOptions, context: QueueContext) -> NamedClaims:
    """Open the claims of a stream's queue."""
    return NamedClaims(
        context,
        lease=microseconds(options.lease_seconds),
        memory=microseconds(options.replay_window_seconds),
    )

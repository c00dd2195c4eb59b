"""Which messages make a batch fail: what ``foreachBatch`` does is tried on smaller and smaller pieces of the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
from pyspark.sql import Column, DataFrame, functions

from shardq.base.log import Log
from shardq.errors import InvalidSetting
from shardq.spark.jobs.job import QueueLocation

__all__ = ["isolate_failures"]

_log = Log(__name__)

Work = Callable[[DataFrame, int], None]

MOST_HALVINGS = 40  # messages that are in one piece after this number have the same hash
REASON_LETTERS = 200


class _Piece(msgspec.Struct, frozen=True):
    """The rows whose id has a hash that ends with these bits."""

    halvings: int = 0
    bits: int = 0

    @property
    def halves(self) -> tuple[_Piece, _Piece]:
        deeper = self.halvings + 1
        return _Piece(deeper, self.bits), _Piece(deeper, self.bits | 1 << self.halvings)

    @property
    def where(self) -> Column:
        hashed = functions.xxhash64("id")
        return functions.pmod(hashed, functions.lit(1 << self.halvings)) == functions.lit(self.bits)


class _Failed(msgspec.Struct, frozen=True):
    piece: _Piece
    error: Exception


def isolate_failures(work: Work, *, url: str, queue: str, most: int = 10) -> Work:
    """Wrap ``work`` for ``foreachBatch``, for a stream with ``ackMode=manual``.

    ``work(batch, batch_id)`` gets the whole batch, which is acked after it. If it raises, it gets both halves of the
    batch, and so on, down to the single messages that make it fail twice. These become dead letters. So it has to be
    harmless where it is repeated after it failed. When more than ``most`` messages fail, something else is wrong and
    the first error is raised. Nothing is acked or a dead letter, and the batch is delivered again when the query is
    restarted. The rows need their columns ``id`` and ``receipt``.
    """
    place = QueueLocation(url, queue)

    def isolated(batch: DataFrame, batch_id: int) -> None:
        missing = {"id", "receipt"} - set(batch.columns)
        if missing:
            raise InvalidSetting(f"the batch has no column {min(missing)!r}: select it, too")
        rows = batch.persist()  # a task that is repeated would claim its messages again
        try:
            failed = []
            for failure in _failures(work, rows, batch_id, _Piece()):
                failed.append(failure)
                if len(failed) > most:
                    raise failed[0].error
            _settle(rows, failed, place)
        finally:
            rows.unpersist()

    return isolated


def _failures(work: Work, rows: DataFrame, batch_id: int, piece: _Piece) -> Iterator[_Failed]:
    """Do the work of a piece; gives the single messages of it that fail."""
    chosen = rows.where(piece.where) if piece.halvings else rows
    try:
        work(chosen, batch_id)
    except Exception as error:  # whatever the work raises
        count = len(chosen.select("id").take(2))
        if count == 1 or piece.halvings == MOST_HALVINGS:
            yield from _once_more(work, chosen, batch_id, _Failed(piece, error))
        elif count:
            _log.warning("a piece of batch %d failed and is halved: %s", batch_id, _first_line(error))
            for half in piece.halves:
                yield from _failures(work, rows, batch_id, half)


def _once_more(work: Work, chosen: DataFrame, batch_id: int, failure: _Failed) -> Iterator[_Failed]:
    """Try a batch of a single message again, as others are: what failed may have been a job that a stop has ended."""
    if not failure.piece.halvings:
        try:
            work(chosen, batch_id)
        except Exception as error:
            failure = _Failed(failure.piece, error)
        else:
            return
    yield failure


def _settle(rows: DataFrame, failed: Sequence[_Failed], place: QueueLocation) -> None:
    done = rows
    for failure in failed:
        reason = f"fails its batch: {_first_line(failure.error)}"[:REASON_LETTERS]
        receipts = rows.where(failure.piece.where).select("receipt")
        place.writer(receipts, operation="dead_letter", reason=reason).save()
        done = done.where(~failure.piece.where)
    place.writer(done.select("receipt"), operation="ack").save()


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__

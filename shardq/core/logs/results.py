"""The results that messages were acked with, in the logs of queues that keep results with their history.

A result is stored before its message is acked. So a reader that sees the ack can see the result. A result of which the
message was not acked is not shown: another delivery has another number. One whose ack came too late is taken back, as
an uncounted delivery has its number again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from shardq.base.clock import from_datetime
from shardq.base.codec import Codec
from shardq.base.receipt import MessageId
from shardq.core.context.queue_context import QueueContext
from shardq.core.held import Selection
from shardq.core.logs.log_queues import RESULTS, Line, logs_of, read, write
from shardq.core.message import StoredMessage
from shardq.errors import InvalidMessage, InvalidSetting, MessageTooLarge
from shardq.storage.requests import EntryState

__all__ = ["Result", "encode_result", "take_back", "with_results", "write_results"]

MOST_RESULT_BYTES = 65_536


class Result(msgspec.Struct, array_like=True, frozen=True):
    """The result that one delivery of a message is to be acked with. ``data`` None: there was none."""

    message_id: str
    delivery: int
    token: bytes
    data: bytes | None
    at: int  # microseconds, by the store's clock


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Result).decode


def encode_result(codec: Codec, value: Any) -> bytes:
    """Encode a result as it is stored. Raises InvalidMessage or MessageTooLarge."""
    try:
        data = codec.encode(value)
    except InvalidMessage as error:
        raise InvalidMessage(str(error).replace("body ", "result ", 1)) from error
    if len(data) > MOST_RESULT_BYTES:
        raise MessageTooLarge(
            f"result of {len(data):,} bytes: at most {MOST_RESULT_BYTES:,} are kept; "
            "store it elsewhere and give a reference"
        )
    return data


def write_results(
    context: QueueContext, codec: Codec, results: Sequence[tuple[Selection, Any]]
) -> list[Result]:
    """Store the results that single messages, which are held, are to be acked with.

    Nothing is stored when one cannot be. Raises InvalidSetting when their queue keeps no results, QueueNotFound when
    it is gone.
    """
    at = context.store.now()
    made = [
        Result(str(held.message_id(position)), held.deliveries, held.token, encode_result(codec, value), at)
        for (held, position), value in (((each.held, each.positions[0]), value) for each, value in results)
    ]
    if not context.settings.keep_results or not write(RESULTS, context, [_line(each) for each in made]):
        context.live.refresh()
        raise InvalidSetting(
            f"queue {context.name!r} keeps no results: `shardq alter {context.name} --keep-results "
            "--history-retention 7d` changes that"
        )
    return made


def take_back(
    context: QueueContext,
    results: Sequence[Result],
    *,
    settled: Sequence[Selection],
    own: Sequence[Selection],
) -> None:
    """Take back the results of messages that are settled, and were acked by others than the own acks."""
    others = _ids(settled) - _ids(own)
    over = [msgspec.structs.replace(each, data=None) for each in results if each.message_id in others]
    if over:
        write(RESULTS, context, [_line(each) for each in over])


def with_results(
    context: QueueContext, codec: Codec, messages: Iterable[StoredMessage]
) -> Iterator[StoredMessage]:
    """Yield the messages, with the results that they were acked with, if their queue keeps results."""
    reader: _Reader | None = None
    for message in messages:
        data = None
        if message.state is EntryState.PROCESSED and context.settings.keep_results:
            reader = reader or _Reader(context)
            data = reader.find(message)
        yield message if data is None else msgspec.structs.replace(message, result=codec.decode(data))


class _Reader:
    """Finds results; those of one bundle are read at once."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._logs = logs_of(context.store, context.retry, RESULTS, context.name)
        self._bundle = b""
        self._known: dict[str, list[Result]] = {}  # by log, of the bundle

    def find(self, message: StoredMessage) -> bytes | None:
        """Find the result that a message was acked with. The log of the moment is read first."""
        identity, moment = MessageId.parse(message.id), from_datetime(message.due)
        if identity.bundle_id != self._bundle:
            self._bundle, self._known = identity.bundle_id, {}
        later = [name for until, name in self._logs if until > moment]
        earlier = [name for until, name in reversed(self._logs) if until <= moment]
        for name in later + earlier:
            found = [
                each
                for each in self._read(name, identity)
                if each.message_id == message.id and each.delivery == message.deliveries
            ]
            over = {each.token for each in found if each.data is None}
            if kept := [each for each in found if each.token not in over]:
                return max(kept, key=lambda each: each.at).data
        return None

    def _read(self, log: str, identity: MessageId) -> list[Result]:
        if log not in self._known:
            self._known[log] = list(map(_decode, read(self._context, log, identity)))
        return self._known[log]


def _ids(selections: Sequence[Selection]) -> set[str]:
    return {str(each.held.message_id(position)) for each in selections for position in each.positions}


def _line(result: Result) -> Line:
    return Line([MessageId.parse(result.message_id)], _encode(result))

"""What could not be done in some shards, while the others went on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shardq.errors import OutcomeUnknown, ShardqError, StoreUnavailable
from shardq.sharding.shard import Shard

__all__ = ["Failures"]

_NAMED = 3  # shards that an error names


class Failures:
    """The errors that shards met with, by shard; one error tells of all of them at the end."""

    def __init__(self) -> None:
        self._errors: dict[Shard, ShardqError] = {}

    def __bool__(self) -> bool:
        return bool(self._errors)

    def __iter__(self) -> Iterator[Shard]:
        return iter(self._errors)

    def __contains__(self, shard: object) -> bool:
        return shard in self._errors

    def add(self, shard: Shard, error: ShardqError) -> None:
        """Take note of a shard's error; where one attempt was not answered, a later refusal does not undo it."""
        if isinstance(error, StoreUnavailable) and isinstance(self._errors.get(shard), OutcomeUnknown):
            return
        self._errors[shard] = error

    def take_over(self, other: Failures) -> None:
        """Take note of what others found."""
        for shard, error in other._errors.items():
            self.add(shard, error)

    def forget(self, shard: Shard) -> None:
        """The shard did well since."""
        self._errors.pop(shard, None)

    @property
    def passing(self) -> list[Shard]:
        """Those that may do well when they are asked again."""
        return [shard for shard, error in self._errors.items() if error.retryable]

    def error(self, what: str) -> ShardqError:
        """One error for all: what tells of more than the store as it is, else what happened and in which shards."""
        for error in self._errors.values():
            if not isinstance(error, StoreUnavailable | OutcomeUnknown):
                return error
        unknown = [shard for shard, error in self._errors.items() if isinstance(error, OutcomeUnknown)]
        cause = self._errors[min(unknown or self._errors)]
        text = f"{what} in {_names(self._errors)}: {cause}"
        if unknown:
            joined: ShardqError = OutcomeUnknown(text)
        else:
            retryable = all(error.retryable for error in self._errors.values())
            joined = StoreUnavailable(text, retryable=retryable)
        joined.__cause__ = cause
        return joined


def _names(shards: Iterable[Shard]) -> str:
    names = sorted(shards)
    if len(names) == 1:
        return f"shard {names[0]}"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{len(names)} shards ({', '.join(map(str, names[:_NAMED]))}{more})"

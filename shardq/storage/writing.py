"""An append that is too large for one write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.storage.requests import Append, Bundle

__all__ = ["append_in_parts", "parts"]


def append_in_parts(
    request: Append, put: Callable[[list[Bundle]], object], *, most_bytes: int, most_bundles: int
) -> None:
    """Store the bundles in parts of bounded size; a part that fails makes the outcome of the whole unknown."""
    for index, part in enumerate(parts(request.bundles, most_bytes, most_bundles)):
        try:
            put(part)
        except StoreUnavailable as error:
            if index and error.retryable:
                raise OutcomeUnknown(
                    f"a part of an append to shard {request.shard} is stored: repeat it"
                ) from error
            raise


def parts(bundles: Iterable[Bundle], most_bytes: int, most_bundles: int) -> Iterator[list[Bundle]]:
    """Cut them into parts of so many bytes and bundles at most."""
    part: list[Bundle] = []
    size = 0
    for bundle in bundles:
        if part and (size + len(bundle.data) > most_bytes or len(part) == most_bundles):
            yield part
            part, size = [], 0
        part.append(bundle)
        size += len(bundle.data)
    if part:
        yield part

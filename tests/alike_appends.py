"""In all tests: what stores a bundle again stores it in the same place, as a store may know a bundle by its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from shardq.base.shard import Shard
from shardq.core.sending import appending
from shardq.storage.requests import Bundle

__all__ = ["alike_appends"]


@pytest.fixture(autouse=True)
def alike_appends(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compare all appends of one bundle id during a test, whoever makes them."""
    places: dict[bytes, object] = {}
    unlike: list[str] = []
    attempt: Callable[[appending._Attempts], None] = appending._Attempts.__call__

    def checked(attempts: appending._Attempts) -> None:
        request = attempts.request
        for bundle in request.bundles:
            place = _place(request.shard, bundle)
            if places.setdefault(bundle.id, place) != place:
                unlike.append(f"{bundle.id.hex()}: {places[bundle.id]} and {place}")
        attempt(attempts)

    monkeypatch.setattr(appending._Attempts, "__call__", checked)
    yield
    assert not unlike, f"appends of one id to several places: {unlike[:3]}"


def _place(shard: Shard, bundle: Bundle) -> object:
    return str(shard), bundle.priority, bundle.due, bundle.count, bundle.group

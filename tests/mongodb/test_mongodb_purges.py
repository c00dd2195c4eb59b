"""A purge that fails at any of its requests says what is known of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from shardq.errors import OutcomeUnknown, ShardqError, StoreUnavailable
from shardq.sharding.shard import GROUP_TIME_SHARD, Shard
from shardq.storage.mongodb import group_changes, removal
from shardq.storage.mongodb.session import Session
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.requests import Append
from shardq.testing import BundleFactory

pytestmark = pytest.mark.mongodb


@contextmanager
def failing_from(request: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the server be away from the n-th request on."""
    translated, made = Session.translated, count()

    @contextmanager
    def counted(session: Session, *, writing: bool) -> Iterator[None]:
        if next(made) >= request:
            raise StoreUnavailable("the server is away")
        with translated(session, writing=writing):
            yield

    with monkeypatch.context() as patched:
        patched.setattr(Session, "translated", counted)
        yield


@pytest.mark.parametrize("grouped", [False, True])
def test_a_purge_says_that_nothing_was_changed_only_where_that_is_so(
    store: MongoStore, shard: Shard, monkeypatch: pytest.MonkeyPatch, grouped: bool
) -> None:
    if grouped and not store.capabilities.groups:
        pytest.skip("a single server has no groups")
    monkeypatch.setattr(removal, "_AT_ONCE", 2)
    monkeypatch.setattr(group_changes, "_AT_ONCE", 2)
    place = Shard(shard.queue, GROUP_TIME_SHARD, 3) if grouped else shard
    make = BundleFactory(store.now)
    errors: list[type[ShardqError]] = []
    for request in count():
        store.purge(place)
        store.append(Append(place, tuple(make(group="a" if grouped else "") for _ in range(5))))
        try:
            with failing_from(request, monkeypatch):
                purged = store.purge(place)
        except (OutcomeUnknown, StoreUnavailable) as error:
            errors.append(type(error))
            assert (type(error) is OutcomeUnknown) == (store.count(place).ready < 5)
        else:
            assert purged == 5
            break
    assert {OutcomeUnknown, StoreUnavailable} == set(errors)

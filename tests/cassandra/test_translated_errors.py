"""A read that some replicas cannot answer is repeated by its caller, or split; the store says so."""

from __future__ import annotations

import pytest

cassandra = pytest.importorskip("cassandra", reason="the extra `cassandra` is not installed")

from shardq.errors import OutcomeUnknown, StoreUnavailable  # noqa: E402
from shardq.storage.cassandra.faults import translate  # noqa: E402

pytestmark = pytest.mark.server


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(cassandra.ReadFailure("too many tombstones", failures=1), id="tombstones"),
        pytest.param(cassandra.ReadTimeout("no answer in time"), id="replicas that hang"),
        pytest.param(
            cassandra.Unavailable("down", required_replicas=2, alive_replicas=1), id="replicas that are down"
        ),
        pytest.param(cassandra.OperationTimedOut(), id="a coordinator that hangs"),
    ],
)
def test_a_read_of_shards_that_cannot_be_read_is_unavailable_for_now(error: Exception) -> None:
    told = translate(error, "Cassandra at one:9042", writing=False)
    assert isinstance(told, StoreUnavailable)
    assert told.retryable


def test_no_remedy_is_to_read_less() -> None:
    down = cassandra.Unavailable("down", required_replicas=2, alive_replicas=1)
    told = str(translate(down, "Cassandra at one:9042", writing=True))
    assert "start the others" in told
    assert "lower" not in told


@pytest.mark.parametrize(
    ("conditional", "level", "told"),
    [
        pytest.param(True, "QUORUM", OutcomeUnknown, id="at the commit of what was accepted"),
        pytest.param(True, "SERIAL", StoreUnavailable, id="before anything was accepted"),
        pytest.param(True, "LOCAL_SERIAL", StoreUnavailable, id="the same, in one data centre"),
        pytest.param(False, "QUORUM", StoreUnavailable, id="before a plain write"),
    ],
)
def test_what_replicas_may_have_accepted_is_not_called_undone(
    conditional: bool, level: str, told: type[Exception]
) -> None:
    down = cassandra.Unavailable("down", cassandra.ConsistencyLevel.name_to_value[level], 2, 1)
    error = translate(down, "Cassandra at one:9042", writing=True, conditional=conditional)
    assert type(error) is told

"""What the settings of the nodes mean for messages."""

from __future__ import annotations

import pytest

from shardq.storage.cassandra.guarantees import check_settings
from shardq.storage.cassandra.store import CassandraStore

pytestmark = pytest.mark.server

SOUND = {
    "commitlog_sync": "batch",
    "commitlog_sync_period": "10000ms",
    "hinted_handoff_enabled": "true",
    "max_hint_window": "3h",
    "paxos_variant": "v2",
    "tombstone_failure_threshold": "100000",
}
GRACE = {"entry": 10_800, "queue": 10_800}


def wrong(*nodes: dict[str, str], grace: dict[str, int] = GRACE) -> dict[str, str]:
    found = list(check_settings(nodes, grace))
    assert all(finding.remedy for finding in found if not finding.ok)
    return {finding.name: finding.value for finding in found if not finding.ok}


def test_sound_settings_are_in_order() -> None:
    assert wrong(SOUND, SOUND) == {}
    assert wrong(SOUND | {"commitlog_sync": "group", "paxos_variant": "v1"}) == {}


@pytest.mark.parametrize(
    ("setting", "value", "name", "told"),
    [
        ("commitlog_sync", "periodic", "commit log", "periodic, every 10000ms"),
        ("paxos_variant", "v1", "paxos variant", "v1, v2"),
        ("tombstone_failure_threshold", "10000", "tombstones", "a read fails at 10000"),
        ("hinted_handoff_enabled", "false", "hints", "off"),
        ("max_hint_window", "1d", "gc_grace", "below 86400 s, the hint window: entry, queue"),
    ],
)
def test_a_setting_of_one_node_that_weakens_a_promise_is_told(
    setting: str, value: str, name: str, told: str
) -> None:
    assert wrong(SOUND, SOUND | {setting: value}) == {name: told}


def test_tables_that_forget_deletes_too_soon_are_told() -> None:
    assert wrong(SOUND, grace=GRACE | {"entry": 600}) == {"gc_grace": "below 10800 s, the hint window: entry"}


def test_settings_that_this_user_may_not_read_are_told_and_no_alarm() -> None:
    (finding,) = check_settings([], GRACE)
    assert finding.ok
    assert "not checked" in finding.value


def test_a_server_tells_its_settings(store: CassandraStore) -> None:
    store.create_schema()
    found = {finding.name: finding for finding in store.diagnose()}
    assert found["commit log"].value == "periodic, every 10000ms"
    assert not found["commit log"].ok
    assert found["copies"].value == "datacenter1: 1"
    assert not found["copies"].ok
    for name in ("paxos variant", "tombstones", "hints", "gc_grace", "clocks", "consistency", "schema"):
        assert found[name].ok, found[name]

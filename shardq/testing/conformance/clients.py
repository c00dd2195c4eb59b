"""Contract: a client sets up the schema, survives a fork, keeps what it confirmed, and closes."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

import os
import warnings
from collections.abc import Callable

import pytest

from shardq.errors import SchemaMismatch
from shardq.storage.requests import Append, Finding, QueueRecord
from shardq.storage.store import Capabilities, Store
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract
from shardq.testing.conformance.together import run_together
from shardq.testing.harness import StoreHarness
from shardq.testing.messages import of_bundle, of_bundles

__all__ = ["ClientContract"]


class ClientContract(Contract):
    """The life of a client: schema, fork, close."""

    @pytest.fixture
    def empty(self, harness: StoreHarness) -> Store:
        """Open a store without a schema."""
        store = harness.open_empty()
        if store is None:
            pytest.skip("the harness has no empty storage")
        return store

    def test_a_ping_is_answered(self, bench: Bench) -> None:
        bench.store.ping()

    def test_a_ping_needs_no_schema(self, empty: Store) -> None:
        empty.ping()
        empty.close()

    def test_a_store_tells_what_it_can_do(self, bench: Bench) -> None:
        capabilities = bench.store.capabilities
        assert isinstance(capabilities, Capabilities)
        assert capabilities.max_message_bytes >= 1
        assert capabilities.max_shards >= 1

    def test_all_clients_go_by_one_clock(self, bench: Bench) -> None:
        """Compare the clocks of clients, on which contracts with two of them depend."""
        moments = [client.now() for client in (bench.store, bench.other) * 3]
        assert moments == sorted(moments)

    def test_creating_the_schema_again_changes_nothing(self, bench: Bench) -> None:
        bundle = bench.given(2)
        run_together([bench.store.create_schema, bench.other.create_schema] * 3)
        assert bench.claim().messages == of_bundle(bundle)

    def test_many_clients_create_the_schema_at_once(self, empty: Store) -> None:
        run_together([empty.create_schema] * 4)
        assert empty.create_queue(QueueRecord("q", b"", 1))
        empty.close()

    def test_the_first_queue_brings_the_schema(self, empty: Store) -> None:
        assert empty.create_queue(QueueRecord("q", b"settings", 1)) is True
        assert empty.load_queue("q") == QueueRecord("q", b"settings", 1)
        empty.close()

    def test_diagnose_works_without_a_schema_and_makes_none(self, empty: Store) -> None:
        findings = empty.diagnose()
        assert findings
        assert all(isinstance(finding, Finding) for finding in findings)
        assert self._load(empty) is None
        empty.close()

    def test_a_schema_of_a_later_version_is_refused(self, harness: StoreHarness, empty: Store) -> None:
        assert empty.create_queue(QueueRecord("q", b"", 1))
        if not harness.raw_newer_schema():
            pytest.skip("the harness cannot change the schema's version")
        with pytest.raises(SchemaMismatch):
            empty.create_schema()
        with pytest.raises(SchemaMismatch):
            empty.load_queue("q")
        empty.close()

    def test_diagnose_changes_nothing(self, bench: Bench) -> None:
        bundle = bench.given(2)
        bench.claim(1)
        before = sorted(bench.harness.raw_entries(bench.shard))
        assert all(finding.name and finding.value for finding in bench.store.diagnose())
        assert sorted(bench.harness.raw_entries(bench.shard)) == before
        assert bench.stored() == of_bundle(bundle)

    def test_closing_twice_is_harmless(self, bench: Bench) -> None:
        bench.other.close()
        bench.other.close()
        bench.other = bench.harness.open()

    def test_closing_one_client_leaves_the_others_working(self, bench: Bench) -> None:
        bundle = bench.given(2)
        bench.other.close()
        assert bench.claim().messages == of_bundle(bundle)
        bench.other = bench.harness.open()

    def test_what_was_confirmed_survives_the_end_of_its_process(self, bench: Bench) -> None:
        bundle = bench.bundle(3)
        self._in_child(lambda: bench.harness.open().append(Append(bench.shard, (bundle,))))
        assert bench.waiting() == of_bundle(bundle)
        assert bench.claim().messages == of_bundle(bundle)

    def test_a_client_works_on_both_sides_of_a_fork(self, bench: Bench) -> None:
        # Given a client that is in use
        first, second, third = bench.given(1), bench.bundle(2), bench.bundle(1)
        # When a forked child uses it too
        self._in_child(lambda: bench.append(second))
        # Then it works in the parent as before
        bench.append(third)
        assert bench.claim().messages == of_bundles(first, second, third)

    def test_a_child_takes_what_the_parent_sent_and_the_parent_goes_on(self, bench: Bench) -> None:
        bundle = bench.given(4)
        self._in_child(lambda: bench.ack(*bench.claim(3).spans))
        assert bench.stored() == of_bundle(bundle, 3)
        bench.ack(*bench.claim().spans)
        assert bench.leftovers() == {}

    def _in_child(self, do: Callable[[], object]) -> None:
        """Do it in a forked child that ends without any cleaning up."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # later Pythons warn of threads that another test may have left
            child = os.fork()
        if not child:
            try:
                do()
                os._exit(0)
            except BaseException:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    def _load(self, store: Store) -> QueueRecord | None:
        try:
            return store.load_queue("q")
        except SchemaMismatch:
            return None

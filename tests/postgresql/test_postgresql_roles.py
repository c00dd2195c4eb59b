"""Roles with the rights that the guide names do their work, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import psycopg
import pytest

import shardq
from shardq.storage.postgresql.url import parse

pytestmark = pytest.mark.server

SENDER = """
    GRANT USAGE ON SCHEMA {s} TO {r};
    GRANT SELECT ON ALL TABLES IN SCHEMA {s} TO {r};
    GRANT INSERT ON {s}.slice, {s}.bundle_data, {s}.shard TO {r};
    GRANT UPDATE (late, low) ON {s}.shard TO {r};
    GRANT UPDATE (version) ON {s}.queue TO {r};
"""
RECEIVER = """
    GRANT USAGE ON SCHEMA {s} TO {r};
    GRANT SELECT ON ALL TABLES IN SCHEMA {s} TO {r};
    GRANT INSERT, UPDATE, DELETE ON {s}.slice TO {r};
    GRANT UPDATE (late, low), DELETE ON {s}.shard TO {r};
    GRANT UPDATE (version) ON {s}.queue TO {r};
    GRANT DELETE ON {s}.bundle_data, {s}.key TO {r};
    GRANT INSERT, TRUNCATE, UPDATE ON {s}.finished, {s}.finished_0, {s}.finished_1, {s}.finished_2, {s}.finished_3,
        {s}.finished_4 TO {r};
    GRANT INSERT, UPDATE, DELETE ON {s}.consumer TO {r};
"""


@pytest.fixture
def role(schema_url: str) -> Iterator[Callable[[str], str]]:
    """Makes a role with these rights, and returns the URL for it."""
    address, _ = parse(schema_url)
    roles: list[str] = []
    with psycopg.connect(address.conninfo, autocommit=True) as connection:

        def make(rights: str) -> str:
            roles.append(f"r{os.urandom(5).hex()}")
            connection.execute(f"CREATE ROLE {roles[-1]} LOGIN")
            connection.execute(rights.format(s=address.schema, r=roles[-1]))
            return schema_url.replace("://shardq@", f"://{roles[-1]}@")

        yield make
        for each in roles:
            connection.execute(f"DROP OWNED BY {each}; DROP ROLE {each}")


def test_a_role_that_sends_and_one_that_receives_do_no_more(
    schema_url: str, role: Callable[[str], str]
) -> None:
    with shardq.connect(schema_url, retry_seconds=1) as owner:
        queue = owner.create_queue(f"r{os.urandom(5).hex()}")
        with (
            shardq.connect(role(SENDER), retry_seconds=1) as sender,
            shardq.connect(role(RECEIVER), retry_seconds=1) as receiver,
        ):
            producer = sender.queue(queue.name).producer()
            sent = {producer.send(b"short"), producer.send(b"long" * 1000)}
            got = receiver.queue(queue.name).consumer()
            taken = [message for _ in range(2) for message in got.receive(1, wait=10)]
            assert {message.id for message in taken} == sent
            taken[0].ack()
            taken[1].release()
            got.close()
            with pytest.raises(shardq.StoreUnavailable, match="give this user its rights"):
                sender.queue(queue.name).purge()
            with pytest.raises(shardq.StoreUnavailable, match="give this user its rights"):
                receiver.delete_queue(queue.name)
        assert queue.counts().ready == 1
        owner.delete_queue(queue.name)

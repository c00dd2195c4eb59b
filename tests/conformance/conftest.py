"""The servers that the conformance suite runs on."""

from cassandra_server import cassandra_url

__all__ = ["cassandra_url"]

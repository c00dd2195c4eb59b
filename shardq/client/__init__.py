"""The client of a store: queues, and what sends to them and receives from them."""

from shardq.client.client import Client, check_client
from shardq.client.connecting import connect

__all__ = ["Client", "check_client", "connect"]

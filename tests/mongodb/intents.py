"""Intents of forwards on a standalone server."""

from __future__ import annotations

from datetime import UTC, datetime

from pymongo.database import Database

__all__ = ["let_intents_lapse"]


def let_intents_lapse(database: Database) -> None:
    """Let the time pass within which a forward without a transaction has to stand."""
    database["shardq.intent"].update_many({}, {"$set": {"until": datetime(2000, 1, 1, tzinfo=UTC)}})

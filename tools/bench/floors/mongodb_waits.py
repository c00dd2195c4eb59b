"""What waiting costs on MongoDB: clients that read at the end of a capped collection, where senders write."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pymongo import CursorType, MongoClient
from pymongo.database import Database
from pymongo.errors import PyMongoError

from shardq.storage.mongodb.documents import CLAIM_ORDER
from shardq.storage.mongodb.schema import shard_collection

from ..mongodb_server import url
from ..stores.processes import Job, Ready
from .floor import Size
from .mongodb import DATABASE, DURABLE
from .waiting import polling

# Seconds in which a client says once that it lives, and looks once, as it may have missed something.
INTERVAL = 10.0
SHARDS = [f"shard{number}" for number in range(8)]
TOLD = "each is told through a capped collection"


def clients(size: Size, _: Path) -> Mapping[str, Sequence[Job]]:
    """As many clients as there are consumers."""

    def jobs(*, looking: bool) -> Sequence[Job]:
        return [Job(wait, (size, number, looking)) for number in range(size.processes)]

    return {
        TOLD: jobs(looking=False),
        f"{TOLD}, and every {INTERVAL:g} s writes that it lives and reads {len(SHARDS)} shards": jobs(
            looking=True
        ),
    }


def wait(ready: Ready, size: Size, number: int, looking: bool) -> float:
    """Seconds of a core that a client takes."""
    server: MongoClient[dict[str, Any]] = MongoClient(url())
    with server as client:
        database = client.get_database(DATABASE)
        _prepare(database)
        threading.Thread(target=_listen, args=(database,), daemon=True).start()

        def look() -> None:
            if looking:
                _look(database, number)

        return polling(ready, look, number * INTERVAL / size.processes, INTERVAL, size.seconds)


def _prepare(database: Database[dict[str, Any]]) -> None:
    with suppress(PyMongoError):  # another one has made it
        database.create_collection("signal", capped=True, size=1_000_000)
        database["signal"].insert_one({})
    for shard in SHARDS:
        database.command({"createIndexes": shard, "indexes": shard_collection().indexes})


def _listen(database: Database[dict[str, Any]]) -> None:
    """Read at the end, until the client is closed."""
    with suppress(PyMongoError):
        signals = database["signal"].find(cursor_type=CursorType.TAILABLE_AWAIT)
        with signals.max_await_time_ms(round(INTERVAL * 1_000)) as cursor:
            while cursor.alive:
                for _ in cursor:
                    pass


def _look(database: Database[dict[str, Any]], number: int) -> None:
    alive = {"q": {"_id": number}, "u": {"$set": {"until": time.time()}}, "upsert": True}
    database.command({"update": "consumer", "updates": [alive], "writeConcern": DURABLE})
    first = [
        {"$match": {"p": 0, "d": {"$lte": time.time_ns() // 1_000}}},
        {"$sort": CLAIM_ORDER},
        {"$limit": 1},
    ]
    looks = [{"$unionWith": {"coll": shard, "pipeline": first}} for shard in SHARDS]
    database.command({"aggregate": 1, "pipeline": [{"$documents": []}, *looks], "cursor": {}})

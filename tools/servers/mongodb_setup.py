"""What members need before clients come: that they are a replica set, and a user."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from mongodb_member import ADDRESS, PASSWORD, SET, USER, Member
from pymongo import MongoClient
from pymongo.errors import OperationFailure

PATIENCE = 60.0
DONE_BEFORE = (23, 13, 51003)  # initiated; a login is asked for by now; there is such a user


def initiate(members: Sequence[Member]) -> None:
    """Make a replica set of the members and wait until it has a primary and all of them follow it."""
    hosts = [{"_id": number, "host": f"{ADDRESS}:{each.port}"} for number, each in enumerate(members)]
    settings = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 500}
    _once(members[0], "replSetInitiate", {"_id": SET, "members": hosts, "settings": settings})
    deadline = time.monotonic() + PATIENCE
    while not _is_settled([_hello(member) for member in members]):
        if time.monotonic() > deadline:
            raise RuntimeError("the replica set has no primary that all members follow")
        time.sleep(0.05)


def add_user(members: Sequence[Member]) -> None:
    """Make the user who may do everything, as a server without users lets this computer do."""
    primary = next(member for member in members if _hello(member)["isWritablePrimary"])
    _once(primary, "createUser", USER, pwd=PASSWORD, roles=["root"])


def _is_settled(members: Sequence[Mapping[str, Any]]) -> bool:
    """A member that was elected a moment ago calls itself primary and secondary, and takes no writes yet."""
    follow = all(each.get("primary") and (each["isWritablePrimary"] or each["secondary"]) for each in members)
    return follow and any(each["isWritablePrimary"] for each in members)


def _hello(member: Member) -> dict[str, Any]:
    client: MongoClient[dict[str, Any]] = MongoClient(**member.client_options())
    with client:
        return client.admin.command("hello")


def _once(member: Member, command: str, value: object, **options: Any) -> None:
    server: MongoClient[dict[str, Any]] = MongoClient(**member.client_options())
    with server as client:
        try:
            client.admin.command(command, value, **options)
        except OperationFailure as error:
            if error.code not in DONE_BEFORE:
                raise

"""The few expressions that the page of backups gives to `mongosh`, carried out by the driver of Python.

mongosh.py URL --quiet --eval EXPRESSION
"""

from __future__ import annotations

import re
import sys
from typing import Any

import pymongo

RECONFIGURE = re.compile(
    r'c = rs\.conf\(\); c\.members = \[\{_id: 0, host: "([^"]+)"\}\]; rs\.reconfig\(c, \{force: true\}\)'
)


def evaluate(admin: Any, expression: str) -> None:
    """Send the command of the server that the expression stands for."""
    if expression == "db.fsyncLock()":
        admin.command("fsync", lock=True)
    elif expression == "db.fsyncUnlock()":
        admin.command("fsyncUnlock")
    elif found := RECONFIGURE.fullmatch(expression):
        config = admin.command("replSetGetConfig", commitmentStatus=False)["config"]
        config["members"] = [{"_id": 0, "host": found[1]}]
        config["version"] += 1
        admin.command("replSetReconfig", config, force=True)
    else:
        raise SystemExit(f"{expression!r} is none of the expressions of the page")


if __name__ == "__main__":
    url, _, _, expression = sys.argv[1:]
    with pymongo.MongoClient[dict[str, Any]](url) as client:
        evaluate(client.admin, expression)

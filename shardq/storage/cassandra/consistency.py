"""Which levels of consistency are enough: those whose reads see what was written, wherever it was written."""

from __future__ import annotations

from collections.abc import Collection

from shardq.errors import InvalidSetting
from shardq.storage.cassandra.address import Address
from shardq.storage.cassandra.session import Session

__all__ = ["LEVELS", "SERIAL_LEVELS", "copies", "require_overlap", "require_overlap_in"]

LEVELS = ("LOCAL_QUORUM", "QUORUM", "EACH_QUORUM", "ALL")
SERIAL_LEVELS = ("LOCAL_SERIAL", "SERIAL")

_REPLICATION = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?"


def require_overlap_in(data_centres: Collection[str], address: Address) -> None:
    """Raise InvalidSetting where clients of these data centres could miss what others of them wrote."""
    if len(data_centres) < 2:
        return
    local = (address.consistency == "LOCAL_QUORUM", address.serial_consistency == "LOCAL_SERIAL")
    if local == (False, False) or (local == (True, True) and address.local_dc):
        return
    raise InvalidSetting(
        f"keyspace {address.keyspace!r} is kept in several data centres ({', '.join(sorted(data_centres))}), and with "
        f"consistency={address.consistency}, serial_consistency={address.serial_consistency}"
        f"{'' if address.local_dc else ' and no local_dc'} clients in one may miss what others wrote in another: give "
        "consistency=QUORUM&serial_consistency=SERIAL; or, if all clients use the same one, its name as local_dc with "
        "LOCAL_QUORUM and LOCAL_SERIAL"
    )


def require_overlap(session: Session) -> None:
    """Raise InvalidSetting where the consistency is not enough for the data centres that the keyspace is kept in."""
    require_overlap_in(copies(session).keys(), session.address)


def copies(session: Session) -> dict[str, int]:
    """Return how many copies there are in each data centre; under "" those of a keyspace that knows of none."""
    rows = session.read(_REPLICATION, (session.address.keyspace,))
    options = dict(rows[0][0]) if rows else {}
    options.pop("class", None)
    counts = {
        "" if name == "replication_factor" else name: text.partition("/")[0] for name, text in options.items()
    }
    return {name: int(count) for name, count in counts.items() if count.isdigit() and int(count)}

from __future__ import annotations

from .keuss_queue import KeussQueue


class KeussMongo(KeussQueue):
    name = "Keuss 2.0.6, mongo"
    durability = "majority of one, journal fsync"
    sends = "answered by the server, majority and journal; 32 in flight"
    receives = "findAndModify reserves, delete commits; 32 in flight"
    share = 0.05
    backend = "mongo"

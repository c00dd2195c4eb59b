from __future__ import annotations

from .keuss_mongo import KeussMongo


class KeussBucket(KeussMongo):
    name = "Keuss 2.0.6, bucket-mongo-safe"
    durability = "not waited for"
    sends = "acknowledged before it is stored: buckets are written later"
    receives = "reserve and commit within buckets; 32 in flight"
    wins = "it answers before anything is stored"
    share = 0.5
    backend = "bucket-mongo-safe"

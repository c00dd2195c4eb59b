"""The bodies of what is claimed or settled: of bundles with a row of their own, and of those that other rows carry."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from cassandra import ConsistencyLevel

from shardq.storage.cassandra.lease_rows import LeaseRow
from shardq.storage.cassandra.rows import BundleRow, Slice
from shardq.storage.cassandra.shard_rows import WideRow
from shardq.storage.requests import ClaimedSlice

__all__ = ["carried_bodies", "with_bundles"]

_log = logging.getLogger(__name__)


def carried_bodies(
    row: WideRow, leases: Iterable[LeaseRow], slices: Iterable[Slice]
) -> dict[bytes, bytes] | None:
    """Read what lease rows carry of some slices, and nothing else of what they carry.

    None when it is not all there: others have finished some, or the replicas that answered lag behind those that have
    shown the lease rows. What is written without it is lost.
    """
    found = row.carried(leases)
    wanted = {each.bundle_id for each in slices if each.inline}
    return {bundle_id: found[bundle_id] for bundle_id in wanted} if wanted <= found.keys() else None


def with_bundles(
    row: WideRow,
    slices: Sequence[Slice],
    bundles: dict[bytes, BundleRow],
    carried: Mapping[bytes, bytes] | None = None,
) -> tuple[ClaimedSlice, ...]:
    """Put the bundles to their slices; one that a replica missed is read from all of them."""
    missing = {each.bundle_id for each in slices if not each.inline} - bundles.keys()
    if missing:
        bundles = bundles | row.start_bundles(missing, consistency=ConsistencyLevel.ALL)()
    return tuple(_claimed(each, bundles, carried or {}) for each in slices if _is_there(row, each, bundles))


def _is_there(row: WideRow, each: Slice, bundles: dict[bytes, BundleRow]) -> bool:
    there = each.inline or each.bundle_id in bundles
    if not there:
        text = "shard %s has no bundle %s: it was removed meanwhile"
        _log.warning(text, row.shard, each.bundle_id.hex())
    return there


def _claimed(each: Slice, bundles: dict[bytes, BundleRow], carried: Mapping[bytes, bytes]) -> ClaimedSlice:
    bundle = each.bundle(carried[each.bundle_id]) if each.inline else bundles[each.bundle_id].bundle
    return ClaimedSlice(bundle, each.first, each.count, each.deliveries + each.unstarted)

"""The bodies of what is claimed or settled: of bundles with a row of their own, and of those that other rows carry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cassandra import ConsistencyLevel

from shardq.base.log import Log
from shardq.storage.cassandra.lease_rows import LeaseRow
from shardq.storage.cassandra.rows import SOON, BundleRow, Ready, Slice, id_time
from shardq.storage.cassandra.shard_rows import WideRow
from shardq.storage.requests import Bundle, ClaimedSlice

__all__ = ["carried_bodies", "is_inline", "is_torn", "with_bundles"]

_log = Log(__name__)

_INLINE_BYTES = 4096


def is_inline(bundle: Bundle) -> bool:
    """Return whether the bundle is kept inside its ready row, and then inside the lease row of its claim.

    It is when it has one small message that is due at once; so its ready row can be found by its id.
    """
    return _fits(bundle.id, bundle.due, bundle.count, len(bundle.data))


def is_torn(row: WideRow, ready: Ready) -> bool:
    """Return whether a slice that was to be inline has its body nowhere: the replicas that answered miss a part of it.

    A read that finds a row on one replica repairs it on another as far as it asked for it. A count asks for no body. A
    claim of such a slice deletes its ready row, and so the body, which may still be on its way.
    """
    key = ready.key
    was_inline = ready.data is None and ready.size > 0 and _fits(key.id, key.due, ready.total, ready.size)
    return was_inline and key.id not in row.heads([key.id])  # one that was forwarded has a bundle


def _fits(bundle_id: bytes, due: int, count: int, size: int) -> bool:
    made = id_time(bundle_id)
    return count == 1 and size <= _INLINE_BYTES and made <= due <= made + SOON


def carried_bodies(
    row: WideRow, leases: Iterable[LeaseRow], slices: Iterable[Slice]
) -> dict[bytes, bytes] | None:
    """Read the bodies of some slices that lease rows carry, and no others.

    None when it is not all there. Others have finished some, or the replicas that answered lag behind those that have
    shown the lease rows. A lease row that is written without a body loses it.
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
    found = [each for each in slices if each.inline or _is_there(row, each, bundles)]
    return tuple([_claimed(each, bundles, carried or {}) for each in found])


def _is_there(row: WideRow, each: Slice, bundles: dict[bytes, BundleRow]) -> bool:
    there = each.bundle_id in bundles
    if not there:
        text = "shard %s has no bundle %s: it was removed meanwhile"
        _log.warning(text, row.shard, each.bundle_id.hex())
    return there


def _claimed(each: Slice, bundles: dict[bytes, BundleRow], carried: Mapping[bytes, bytes]) -> ClaimedSlice:
    bundle = each.bundle(carried[each.bundle_id]) if each.inline else bundles[each.bundle_id].bundle
    return ClaimedSlice(bundle, each.first, each.count, each.deliveries + each.unstarted)

"""The knowledge of a reader about one shard, and when it has to read there again."""

from __future__ import annotations

import msgspec

from shardq.storage.requests import Probe

__all__ = ["KnownShard", "has_passed"]

# All in microseconds by the store's clock.
FIRST_DEEP_PROBE = 2_000_000  # after the reader came to know a shard
DEEP_INTERVAL = 30_000_000  # until a shard gets a deep probe again, or
DEEP_SHARE = 20  # times as long as the last one took
DROP_AFTER = 6_000_000  # after the first probe of it, until an empty shard is removed from the directory
DROP_GROUPS_AFTER = 3_600_000_000  # the same for one of groups, since it was last seen to hold anything
DROP_AGAIN = 5_000_000  # until that is tried again


class KnownShard(msgspec.Struct):
    """The knowledge of a reader about one shard."""

    probe: Probe
    seen_at: int
    drop_at: int
    deep_from: int
    offered_at: int  # since when this reader sees what the shard offers now
    deep_after: int = FIRST_DEEP_PROBE  # from then on until the next deep probe
    deep_alone: bool = False  # the last one failed: in a separate request the next time
    avoided_from: int = 0
    avoided_for: int = 0
    stale: bool = False  # something was done in the shard since it was seen
    glanced: bool = False  # something may lie ahead that a full probe would show

    @classmethod
    def first(cls, probe: Probe, now: int) -> KnownShard:
        """Begin with the first probe of a shard."""
        return cls(probe, now, now + _drop_after(probe), now, now)

    def learn(self, probe: Probe, now: int) -> None:
        """Take over the result of a full probe."""
        self._see(probe, now)
        self.seen_at, self.stale, self.glanced = now, False, False

    def notice(self, probe: Probe, now: int) -> None:
        """Take over the result of a glance. It knows nothing of later messages, so a full probe has to come soon."""
        ahead = [due for due in (probe.next_due, self.probe.next_due) if due is not None]
        self._see(Probe(probe.shard, probe.priority, probe.due, min(ahead, default=None)), now)
        self.glanced = True

    def claimed(self, until: int | None, *, used_up: bool) -> None:
        """Note that what it offered is held until a moment (None: it is gone): all of it, or not."""
        probe = self.probe
        next_due = probe.next_due
        if until is not None and (next_due is None or until < next_due):
            next_due = until
        self.probe = (
            Probe(probe.shard, None, None, next_due)
            if used_up
            else Probe(probe.shard, probe.priority, probe.due, next_due)
        )
        self.glanced = True

    def _see(self, probe: Probe, now: int) -> None:
        if (probe.priority, probe.due) != (self.probe.priority, self.probe.due):
            self.offered_at = now
        if probe.shard.is_grouped and not (self.probe.empty and probe.empty):
            self.drop_at = now + DROP_GROUPS_AFTER
        self.probe = probe

    def avoid(self, now: int, microseconds: int) -> None:
        """Leave it alone for a moment."""
        self.avoided_from, self.avoided_for = now, microseconds

    def avoided_until(self, now: int) -> int:
        """Return until when it is left alone; a moment in the past if it is not."""
        over = has_passed(self.avoided_from, self.avoided_for, now)
        return 0 if over else self.avoided_from + self.avoided_for

    def needs_probe(self, now: int, rest: int) -> bool:
        """Return whether something changed there, its next due time has come, or it has rested for that long."""
        if self.stale or self.has_rested(now, rest):
            return True
        return self.probe.next_due is not None and self.probe.next_due <= now

    def has_rested(self, now: int, rest: int) -> bool:
        """Return whether the last full probe is ``rest`` microseconds ago."""
        return has_passed(self.seen_at, rest, now)

    def is_deep_due(self, now: int, *, ahead: int) -> bool:
        """Return whether its next deep probe comes within a time. The first one is not made early."""
        early = ahead if self.deep_after > FIRST_DEEP_PROBE else 0
        return has_passed(self.deep_from, self.deep_after - early, now)

    def probed_deep(self, now: int, took: int, *, seen: bool) -> None:
        """Note a deep probe, how long it took, and whether the shard was seen by it."""
        self.deep_from, self.deep_after = now, max(DEEP_INTERVAL, DEEP_SHARE * took)
        self.deep_alone = not seen

    def is_to_be_dropped(self, now: int, *, is_written: bool) -> bool:
        """Return whether it is empty and no longer written."""
        return self.probe.empty and not is_written and self.drop_at <= now

    def tried_to_drop(self, now: int) -> None:
        """Note that it was tried to take it out of the directory."""
        self.drop_at = now + DROP_AGAIN


def _drop_after(probe: Probe) -> int:
    return DROP_GROUPS_AFTER if probe.shard.is_grouped else DROP_AFTER


def has_passed(since: int, interval: int, now: int) -> bool:
    """Return whether the interval has passed, or the clock was set back."""
    return not since <= now < since + interval

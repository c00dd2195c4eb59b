"""A store whose claims finish in two steps, and stores with one defect each in that."""

from __future__ import annotations

from msgspec.structs import replace

from shardq.storage.requests import Acknowledge, Claim, Claimed, ClaimedSlice, Finish, Span
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore

__all__ = ["BROKEN_CLAIMS", "FinishingStore"]


class FinishingStore(WrappedStore):
    """Claims, then acks what the claim may finish, and remembers what that was: what the port asks, with no speed."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._finished: dict[bytes, Claimed] = {}

    def claim(self, request: Claim) -> Claimed:
        """Claim, and finish what the request lets it finish."""
        if request.finish is None:
            return super().claim(request)
        if (known := self._finished.get(request.token)) is not None:
            return known
        claimed = super().claim(replace(request, finish=None))
        slices = [replace(each, finished=self.covers(request.finish, each)) for each in claimed.slices]
        done = [each for each in slices if each.finished]
        if done:
            spans = tuple(Span(each.bundle.id, each.first, each.count, request.token) for each in done)
            super().acknowledge(Acknowledge(request.shard, spans, self.keeps(request.finish)))
            self._finished[request.token] = claimed = replace(claimed, slices=tuple(slices))
        return claimed

    def covers(self, finish: Finish, piece: ClaimedSlice) -> bool:
        """True for what is finished."""
        return finish.covers(piece)

    def keeps(self, finish: Finish) -> bool:
        """True when it goes into the history."""
        return finish.keep


class ForgetsWhatItFinished(FinishingStore):
    """Claims afresh when a claim is repeated that has finished something."""

    def claim(self, request: Claim) -> Claimed:
        self._finished.clear()
        return super().claim(request)


class FinishesWhatHasKeys(FinishingStore):
    """Finishes messages whose keys nobody has confirmed."""

    def covers(self, finish: Finish, piece: ClaimedSlice) -> bool:
        return super().covers(finish, replace(piece, bundle=replace(piece.bundle, data=b"\x91\x90")))


class FinishesWhateverItsAge(FinishingStore):
    """Finishes messages that are too old."""

    def covers(self, finish: Finish, piece: ClaimedSlice) -> bool:
        return super().covers(replace(finish, since=None), piece)


class FinishesWhatHasExpired(FinishingStore):
    """Finishes messages that are not to be delivered any more."""

    def covers(self, finish: Finish, piece: ClaimedSlice) -> bool:
        return super().covers(replace(finish, now=0), piece)


class FinishesHoweverOftenDelivered(FinishingStore):
    """Finishes messages that belong to the dead letters."""

    def covers(self, finish: Finish, piece: ClaimedSlice) -> bool:
        return super().covers(replace(finish, most_deliveries=None), piece)


class FinishesWithoutHistory(FinishingStore):
    """Keeps nothing of what it finishes."""

    def keeps(self, finish: Finish) -> bool:
        return False


class FinishesInWordsOnly(WrappedStore):
    """Says of everything that it is finished, and holds it."""

    def claim(self, request: Claim) -> Claimed:
        claimed = super().claim(request)
        finished = request.finish is not None
        return replace(claimed, slices=tuple(replace(each, finished=finished) for each in claimed.slices))


BROKEN_CLAIMS: tuple[type[WrappedStore], ...] = (
    ForgetsWhatItFinished,
    FinishesWhatHasKeys,
    FinishesWhateverItsAge,
    FinishesWhatHasExpired,
    FinishesHoweverOftenDelivered,
    FinishesWithoutHistory,
    FinishesInWordsOnly,
)

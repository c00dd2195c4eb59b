"""The expected content of a store, as a dict: the model that the state machine compares a store with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shardq.storage.requests import BLOCKED, Bundle, Span
from shardq.testing.messages import Message, of_bundle, of_spans

__all__ = ["ModelMessage", "ShardModel", "Verdict"]

_MEMORY = 15 * 60 * 1_000_000  # for how long a move is known, in microseconds


@dataclass(slots=True)
class ModelMessage:
    """One message that is not finished."""

    bundle: Bundle
    position: int
    due: int
    deliveries: int = 0
    token: bytes | None = None
    unstarted: bool = False  # held, and this delivery is not among `deliveries`

    @property
    def key(self) -> Message:
        """The message's name."""
        return (self.bundle.id, self.position)

    @property
    def rank(self) -> tuple[int, int, bytes, int]:
        """The order of claims."""
        return (self.bundle.priority, self.due, *self.key)


@dataclass(slots=True)
class Verdict:
    """Messages of some spans: those held under their token, those that are not, those not stored."""

    held: list[ModelMessage] = field(default_factory=list)
    lost: list[Message] = field(default_factory=list)
    gone: list[Message] = field(default_factory=list)


class ShardModel:
    """One shard as a dict."""

    def __init__(self) -> None:
        self.messages: dict[Message, ModelMessage] = {}
        self.history: dict[Message, int] = {}  # processed at
        self.bundles: dict[bytes, Bundle] = {}  # every bundle that was ever appended
        self.moved: dict[Message, int] = {}  # when it was moved elsewhere

    def append(self, bundle: Bundle) -> None:
        """Add the bundle unless it was there before."""
        if bundle.id in self.bundles:
            return
        self.bundles[bundle.id] = bundle
        for key in of_bundle(bundle):
            self.messages[key] = ModelMessage(bundle, key[1], bundle.due)

    def deliverable(self, now: int) -> list[ModelMessage]:
        """Return what a claim may take, in its order."""
        return sorted(
            (each for each in self.messages.values() if each.due <= now), key=lambda each: each.rank
        )

    def held_by(self, token: bytes) -> list[ModelMessage]:
        """Return the messages held under the token."""
        return [each for each in self.messages.values() if each.token == token]

    def ahead(self, now: int) -> list[int]:
        """Return the moments ahead at which something becomes deliverable."""
        return [each.due for each in self.messages.values() if each.due > now]

    def claim(
        self,
        token: bytes,
        limit: int,
        *,
        now: int,
        until: int,
        started: bool = True,
        answer: Sequence[Message] = (),  # noqa: ARG002 -- there is one right answer
    ) -> list[ModelMessage]:
        """Claim, or hold again what the token holds already."""
        again = self.held_by(token)
        taken = again or self.deliverable(now)[:limit]
        for each in taken:
            each.token, each.due = token, until
            if not again:
                each.deliveries += started
                each.unstarted = not started
        return taken

    def judge(self, spans: Iterable[Span], now: int) -> Verdict:
        """Sort the messages of the spans by whether they are still held."""
        verdict = Verdict()
        for span in spans:
            for key in of_spans([span]):
                message = self.messages.get(key)
                if message is None:
                    moved = now - self.moved.get(key, -_MEMORY) < _MEMORY
                    (verdict.lost if moved else verdict.gone).append(key)
                elif message.token == span.token:
                    verdict.held.append(message)
                else:
                    verdict.lost.append(key)
        return verdict

    def finish(
        self,
        messages: Iterable[ModelMessage],
        *,
        kept_at: int | None = None,
        moved_at: int | None = None,
    ) -> None:
        """Finish the messages; keep them for the history, or take them for moved, if a moment is given."""
        for each in messages:
            del self.messages[each.key]
            if moved_at is not None:
                self.moved[each.key] = moved_at
            if kept_at is not None:
                self.history[each.key] = kept_at

    def extend(
        self,
        messages: Iterable[ModelMessage],
        until: int,
        *,
        now: int,  # noqa: ARG002 -- what is given back beside them is due then
        starts: bool = False,
        blocks: bool = False,
    ) -> None:
        """Hide the messages until then."""
        for each in messages:
            each.due = until
            each.token = BLOCKED if blocks else each.token
            if starts:
                each.deliveries += each.unstarted
                each.unstarted = False

    def release(self, messages: Iterable[ModelMessage], due: int, *, now: int, started: bool) -> None:
        """Give the messages back; what was never delivered and has no delay takes its place again."""
        for each in messages:
            each.deliveries += each.unstarted - (not started)
            again = not started and due == now and not each.deliveries
            each.token, each.due, each.unstarted = None, each.bundle.due if again else due, False

    def remove(self, key: Message) -> bool:
        """Remove a message in any state."""
        return any([self.messages.pop(key, None), self.history.pop(key, None)])

    def forget_history(self, before: int) -> None:
        """Give up what was processed before a moment."""
        self.history = {key: at for key, at in self.history.items() if at >= before}

    def keys(self, *, held: bool) -> list[Message]:
        """Return the messages that a claim holds, or those that none does, sorted."""
        return sorted(each.key for each in self.messages.values() if (each.token is not None) == held)

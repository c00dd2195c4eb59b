"""The expected content of a store and of a shard of groups, as dicts, and the right answers of a claim.

The state machine compares a store with this model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile

from shardq.storage.requests import BLOCKED, Bundle, Span
from shardq.testing.messages import Message, of_bundle, of_spans

__all__ = ["GroupModel", "ModelMessage", "ShardModel", "Verdict"]

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


class GroupModel(ShardModel):
    """One shard of groups. The dict has its messages in the order of their appends."""

    def deliverable(self, now: int) -> list[ModelMessage]:
        """Return the first messages of groups that a claim may take, in its order."""
        return sorted((front[0] for front in self._fronts(now)), key=lambda each: each.rank)

    def ahead(self, now: int) -> list[int]:
        """Return the moments at which groups continue."""
        return [messages[0].due for messages in self.groups() if messages[0].due > now]

    def claim(
        self,
        token: bytes,
        limit: int,
        *,
        now: int,
        until: int,
        started: bool = True,
        answer: Sequence[Message] = (),
    ) -> list[ModelMessage]:
        """Check which messages a store took, and take them; or hold again what the token holds."""
        again = self.held_by(token)
        if not again:
            self._check(answer, limit, now)
        taken = again or [self.messages[key] for key in answer]
        self._hold(taken, token, until, started=started)
        for messages in () if again else self.groups():
            if any(each.token == token for each in messages):
                self._strip([each for each in messages if each.token not in (None, token)], now)
        return taken

    def extend(
        self,
        messages: Iterable[ModelMessage],
        until: int,
        *,
        now: int,
        starts: bool = False,
        blocks: bool = False,
    ) -> None:
        """Hide the messages until then; release the held ones behind them, if they block their groups."""
        named = list(messages)
        super().extend(named, until, now=now, starts=starts, blocks=blocks)
        for group in self.groups() if blocks else ():
            held = [each for each in group if each.token is not None]
            behind = dropwhile(lambda each: each not in named, held)
            super().release(dropwhile(named.__contains__, behind), now, now=now, started=False)

    def release(self, messages: Iterable[ModelMessage], due: int, *, now: int, started: bool) -> None:
        """Release the messages, and the held ones behind them."""
        named = list(messages)
        super().release(named, due, now=now, started=started)
        for group in self.groups():
            first = next((number for number, each in enumerate(group) if each in named), len(group))
            held = [each for each in group[first:] if each.token is not None]
            super().release(held, now, now=now, started=False)

    def groups(self) -> list[list[ModelMessage]]:
        """Return the messages of each group, in order."""
        groups: dict[str, list[ModelMessage]] = {}
        for each in self.messages.values():
            groups.setdefault(each.bundle.group, []).append(each)
        return list(groups.values())

    def _fronts(self, now: int) -> list[list[ModelMessage]]:
        return [front for messages in self.groups() if (front := _front(messages, now))]

    def _check(self, answer: Sequence[Message], limit: int, now: int) -> None:
        fronts = {front[0].bundle.group: [each.key for each in front] for front in self._fronts(now)}
        came: dict[str, list[Message]] = {}
        for key in answer:
            came.setdefault(self.messages[key].bundle.group, []).append(key)
        assert len(answer) == min(limit, sum(map(len, fronts.values()))), "claimed too few or too many"
        for group, keys in came.items():
            assert keys == fronts.get(group, [])[: len(keys)], f"claimed {keys} of {fronts.get(group)}"
        first = [each.bundle.group for each in self.deliverable(now)][: len(came)]
        assert sorted(came) == sorted(first), "other groups came before these"

    @staticmethod
    def _hold(taken: Iterable[ModelMessage], token: bytes, until: int, *, started: bool) -> None:
        for each in taken:
            if each.token != token:
                each.deliveries += started
                each.unstarted = not started
            each.token, each.due = token, until

    @staticmethod
    def _strip(messages: Iterable[ModelMessage], now: int) -> None:
        for each in messages:
            each.token, each.due, each.unstarted = None, now, False


def _front(messages: Sequence[ModelMessage], now: int) -> list[ModelMessage]:
    """Return the messages of a group to take: due ones, and those that were held with the first until it expired."""
    if messages[0].due > now:
        return []
    for number, each in enumerate(messages):
        if each.due > now and each.token is None:
            return list(messages[:number])
    return list(messages)

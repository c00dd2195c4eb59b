"""The expected content of a shard of groups, as a dict, and the right answers of a claim."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import dropwhile

from shardq.testing.messages import Message
from shardq.testing.store_model import ModelMessage, ShardModel

__all__ = ["GroupModel"]


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
        if not self.held_by(token):
            self._check(answer, limit, now)
        taken = self.held_by(token) or [self.messages[key] for key in answer]
        self._hold(taken, token, until, started=started)
        for messages in self.groups():
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

"""The checker: a history against the promises, in the terms of Jepsen's total-queue and beyond."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from .asked import judge_asked
from .films import judge_films
from .flows import judge_flows
from .history import Event, Phase
from .lives import Life, Lives
from .offence import SHOWN, Offence
from .order import out_of_order
from .pooled import judge_pooled
from .published import judge_published
from .rules import RULES, Promise, cause_of_return
from .saved import judge_saved
from .side import judge_moves
from .ticks import judge_ticks

__all__ = ["Verdict", "judge"]


class Verdict(msgspec.Struct, frozen=True):
    """What became of all messages, and what must not have."""

    figures: dict[str, int]
    offences: tuple[Offence, ...]

    @property
    def kept(self) -> bool:
        """Every promise held."""
        return not self.offences


def judge(events: Sequence[Event], promise: Promise) -> Verdict:
    """Check a whole history."""
    lives = Lives(events)
    found = [_offence(name, lives, promise) for name in RULES]
    found += [_order(lives, promise), *judge_moves(events), *judge_asked(events, promise.tolerance)]
    found += [*judge_published(events), *judge_ticks(events), *judge_flows(events), *judge_films(events)]
    found += [*judge_pooled(events), *judge_saved(events, lives)]
    return Verdict(_figures(lives, events, promise), tuple(each for each in found if each.count))


def _offence(name: str, lives: Lives, promise: Promise) -> Offence:
    rule = RULES[name]
    guilty = [life for life in lives.by_body.values() if rule(life, promise, lives)]
    return Offence(name, len(guilty), {life.body: tuple(life.events()) for life in guilty[:SHOWN]})


def _order(lives: Lives, promise: Promise) -> Offence:
    passed = list(out_of_order(lives, promise))
    shown = [life for each in passed[:SHOWN] for life in (each.waiting, each.passer)]
    return Offence("out of order", len(passed), {life.body: tuple(life.events()) for life in shown})


def _figures(lives: Lives, events: Sequence[Event], promise: Promise) -> dict[str, int]:
    found = Counter[str]()
    for life in lives.by_body.values():
        found.update(_marks(life, promise))
    if failed := sum(event.verb == "fail-task" for event in events):
        found["tasks of Spark that failed"] = failed
    found["operations"] = sum(event.phase is Phase.INVOKE for event in events)
    names = ("sent", "send failed", "send unknown", "recovered", "delivered", "acked", "dead-lettered")
    return {name: found[name] for name in (*names, *sorted(found.keys() - set(names)))}


def _marks(life: Life, promise: Promise) -> list[str]:
    """What a message counts as."""
    phase = life.sending.phase(life.body) if life.sending else None
    sent = {Phase.OK: "sent", Phase.FAILED: "send failed", Phase.UNKNOWN: "send unknown"}
    marks = [sent[phase]] if phase in sent else []
    seen = bool(life.holdings or life.burials)
    marks += ["recovered"] * (seen and phase is Phase.UNKNOWN) + ["delivered"] * bool(life.holdings)
    marks += ["acked"] * bool(life.settled("ack", Phase.OK)) + ["dead-lettered"] * bool(life.burials)
    marks += ["ack unknown"] * bool(life.settled("ack", Phase.UNKNOWN))
    causes = [cause_of_return(life, one, two, promise) for one, two in pairwise(life.holdings)]
    return marks + [f"delivered again: {cause}" for cause in causes]

"""What a campaign found, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from .history import Event
from .round import Round

__all__ = ["campaign_lines", "round_lines", "write_round"]


def write_round(each: Round, folder: Path) -> None:
    """Write ``report.json`` and ``report.txt``."""
    (folder / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(each)))
    (folder / "report.txt").write_text("\n".join(round_lines(each)) + "\n")


def round_lines(each: Round) -> Iterator[str]:
    """A round, and the history of each message to which a promise was broken."""
    plan = each.plan
    yield (
        f"{each.store}, seed {plan.seed}, round {plan.number}: {'all kept' if each.kept else 'BROKEN'} "
        f"({each.seconds:g} s, {len(each.steps)} faults)"
    )
    yield "  " + ", ".join(f"{name} {count:,}" for name, count in each.verdict.figures.items())
    yield "  seconds: " + ", ".join(f"{name} {seconds:g}" for name, seconds in each.phases.items())
    times = [progress.seconds for progress in each.liveness if progress.seconds is not None]
    yield f"  {len(times)} of {len(each.liveness)} clients got on, the last {max(times, default=0):g} s after healing"
    yield from (f"  {problem}" for problem in each.problems)
    for offence in each.verdict.offences:
        yield f"  {offence.promise}: {offence.count} messages"
        for body, events in offence.histories.items():
            yield f"    {body}"
            start = events[0].at if events else 0
            yield from (f"      {_line(event, start, body)}" for event in events)


def campaign_lines(rounds: Sequence[Round]) -> Iterator[str]:
    """The sums of a campaign on one store."""
    total = Counter[str]()
    faults = Counter[str]()
    offences = Counter[str]()
    for each in rounds:
        total.update(each.verdict.figures)
        faults.update(deed.fault for deed in each.deeds if deed.what not in ("healed", "failed"))
        offences.update({offence.promise: offence.count for offence in each.verdict.offences})
    broken = [str(each.plan.number) for each in rounds if not each.kept]
    yield f"{rounds[0].store}: {len(rounds)} rounds, broken: {', '.join(broken) or 'none'}"
    yield from (f"  {name:32} {count:>10,}" for name, count in total.items())
    yield "  faults: " + ", ".join(f"{name} {count}" for name, count in sorted(faults.items()))
    yield "  offences: " + (", ".join(f"{name} {count}" for name, count in offences.items()) or "none")


def _line(event: Event, start: int, body: str) -> str:
    words = [f"{(event.at - start) / 1e9:9.3f} s", event.actor, event.verb, event.phase.value]
    words += [f"#{event.number}"]
    words += [f"of #{event.batch}"] if event.batch else []
    words += [f"{event.seconds:g} s"] if event.seconds else []
    words += [f"store's clock {event.shift / 1e9:+.1f} s"] if event.shift else []
    words += ["repeated"] if event.repeated else []
    for each in event.deliveries:
        if each.body == body:
            words.append(f"delivery {each.deliveries}, priority {each.priority}, due {each.due}, {each.id}")
    return "  ".join([*words, event.note])

"""Every order in which the requests of some clients can be carried out, answered, lost, or come late.

States are visited breadth first, each once, so the first violation has a shortest history. A request without an answer
is kept on its way: it is carried out at any later moment, or never. Time stands still but for the given ticks, which
may come between any two steps.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from tests.model.modelled_centres import Centres
from tests.model.modelled_client import (
    APPLY,
    READ,
    SERIAL,
    WRITE,
    Lost,
    Memory,
    Request,
    Run,
    deterministic,
    run,
)
from tests.model.modelled_table import Database
from tests.model.places import Violation, replace
from tests.model.promises import Call, Ghost, after_call, after_step, at_rest

START = 1_700_000_000_000_000
BEGIN = "begin"


class Script(NamedTuple):
    """What a client does: the next call, given the results so far; None at the end. And how wrong its clocks are."""

    next_call: Callable[[Sequence[Run]], Call | None]
    skew: int = 0  # of its measure of the cluster's clock
    coordinator_skew: int = 0  # of the node that it talks to
    centre: int = 0  # the data centre of both


class Client(NamedTuple):
    results: tuple[Run, ...] = ()
    memory: Memory = Memory()
    call: Call | None = None
    began_with: frozenset[Any] = frozenset()  # what was finished when the call began
    waiting: tuple[Request, ...] = ()
    answers: tuple[tuple[int, Any], ...] = ()
    key: int = 0  # equal for equal results, memory and answers


class Late(NamedTuple):
    """A write without an answer that is still on its way."""

    client: int
    call: Call
    request: Request
    since: int
    key: int  # of the client when it was sent


class State(NamedTuple):
    database: Database | Centres
    clients: tuple[Client, ...]
    ghost: Ghost
    clock: int = START
    ticks: int = 0  # those that are over
    faults: int = 0  # those that are left
    late: tuple[Late, ...] = ()

    @property
    def key(self) -> int:
        clients = tuple((client.key, client.began_with) for client in self.clients)
        late = frozenset((each.key, each.since) for each in self.late)
        return hash((self.database.key, clients, self.ghost, self.clock, self.ticks, self.faults, late))


Step: TypeAlias = tuple[str, Callable[[], State]]


class Scenario(NamedTuple):
    """Who does what on which rows, how far the clock goes, how many requests may fail."""

    scripts: tuple[Script, ...]
    database: Database | Centres = Database()
    ticks: tuple[int, ...] = ()
    faults: int = 0
    lease: int = 30_000_000
    longest_late: int = 30_000_000  # how long a conditional batch may be on its way
    shards: tuple[str, ...] = ("q:0:0",)
    longest_pause: int = 2**62  # how long a client may stand still in the middle of a call
    misled: tuple[bool, ...] = (False, True)  # whether hints are made wrong before it is drained


class Explored(NamedTuple):
    """What was looked at."""

    states: int
    steps: int
    rests: int  # different databases from which everything was drained
    complete: bool  # nothing was left out
    violation: Violation | None = None
    history: tuple[str, ...] = ()

    def __str__(self) -> str:
        how = "all of them" if self.complete else "up to a bound"
        lines = [f"{self.states:,} states ({how}), {self.steps:,} steps, {self.rests:,} drained"]
        if self.violation:
            lines += [f"VIOLATION: {self.violation}", *self.history]
        return "\n".join(lines)


class Explorer:
    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._rests: set[int] = set()
        self._known: dict[Any, tuple[Run, Client]] = {}  # what a client does next

    def explore(self, most: int) -> Explored:
        """Visit states breadth first, up to a number of them."""
        with deterministic():
            start = self._start()
            seen: dict[int, tuple[int, str] | None] = {start.key: None}
            queue, steps = deque([start]), 0
            while queue and len(seen) < most:
                state = queue.popleft()
                came = state.key
                for name, step in self._steps(state):
                    steps += 1
                    try:
                        after = step()
                        key = after.key
                        if key not in seen:
                            seen[key] = came, name
                            queue.append(after)
                            self._rest(after)
                    except Violation as violation:
                        history = (*_history(seen, came), name)
                        return Explored(len(seen), steps, len(self._rests), False, violation, history)
            return Explored(len(seen), steps, len(self._rests), not queue)

    def walk(self, seed: int, walks: int) -> Explored:
        """Go at random from the beginning to an end, some times."""
        dice, seen, steps = random.Random(seed), set[int](), 0
        with deterministic():
            for _ in range(walks):
                state, history, moods = self._start(), list[str](), _Moods(dice)
                try:
                    while choices := list(self._steps(state)):
                        name, step = moods.choose(choices)
                        history.append(name)
                        state = step()
                        steps += 1
                        seen.add(state.key)
                        self._rest(state)
                except Violation as violation:
                    return Explored(
                        len(seen), steps, len(self._rests), False, violation, (f"seed {seed}", *history)
                    )
        return Explored(len(seen), steps, len(self._rests), False)

    def _start(self) -> State:
        scenario = self._scenario
        ghost = Ghost().seeing(scenario.database.whole, scenario.shards)
        clients = tuple(self._next_call(Client(), index) for index in range(len(scenario.scripts)))
        return State(scenario.database, clients, ghost, faults=scenario.faults)

    def _steps(self, state: State) -> Iterator[Step]:
        scenario = self._scenario
        for index, client in enumerate(state.clients):
            for request in client.waiting:
                name = f"{index}: {client.call} {request.kind} {request.number}"
                yield name, partial(self._carry_out, state, index, request)
                if state.faults and request.kind != BEGIN:
                    yield f"{name} without answer", partial(self._lose, state, index, request)
        for late in state.late:
            name = f"{late.client}: {late.call} {late.request.kind} {late.request.number} comes late"
            yield name, partial(self._come_late, state, late)
        if isinstance(state.database, Centres) and state.database.lags:
            caught_up = state.database.caught_up
            yield "   what was written arrives everywhere", lambda: replace(state, database=caught_up())
        if state.ticks < len(scenario.ticks):
            tick = scenario.ticks[state.ticks]
            busy = any(c.waiting and c.waiting[0].kind != BEGIN for c in state.clients)
            if not busy or tick <= scenario.longest_pause:
                yield f"   {tick / 1e6:g} s pass", partial(self._tick, state, tick)

    def _tick(self, state: State, tick: int) -> State:
        clock = state.clock + tick
        longest = self._scenario.longest_late
        late = tuple(
            each for each in state.late if each.request.kind == WRITE or clock <= each.since + longest
        )
        return replace(state, clock=clock, ticks=state.ticks + 1, late=late)

    def _carry_out(self, state: State, index: int, request: Request) -> State:
        client = state.clients[index]
        if request.kind == BEGIN:
            finished = frozenset(message for message, _ in state.ghost.finished)
            state = _with_client(state, index, replace(client, began_with=finished))
            return self._go_on(state, index, ())
        assert client.call is not None
        state, answer = self._executed(state, index, client.call, request)
        return self._go_on(state, index, (*client.answers, (request.number, answer)))

    def _lose(self, state: State, index: int, request: Request) -> State:
        client = state.clients[index]
        assert client.call is not None
        writing = request.kind in (WRITE, APPLY)
        late = (
            (*state.late, Late(index, client.call, request, state.clock, client.key))
            if writing
            else state.late
        )
        state = replace(state, faults=state.faults - 1, late=late)
        return self._go_on(state, index, (*client.answers, (request.number, Lost(writing))))

    def _come_late(self, state: State, late: Late) -> State:
        rest = tuple(each for each in state.late if each is not late)
        return self._executed(replace(state, late=rest), late.client, late.call, late.request)[0]

    def _executed(self, state: State, index: int, call: Call, request: Request) -> tuple[State, Any]:
        script = self._scenario.scripts[index]
        if request.kind in (READ, SERIAL):
            serial = request.kind == SERIAL
            return state, tuple(state.database.select(request.statements[0], script.centre, serial=serial))
        server = state.clock + script.coordinator_skew
        database: Database | Centres
        if request.kind == WRITE:
            database, answer = state.database.write(request.statements, server, script.centre), None
        else:
            database, answer = state.database.apply(request.statements, server, script.centre)
        latest = state.clock + max(script.skew for script in self._scenario.scripts)
        ghost = after_step(state.ghost, database.whole, call, latest, self._scenario.shards)
        return replace(state, database=database, ghost=ghost), answer

    def _go_on(self, state: State, index: int, answers: tuple[tuple[int, Any], ...]) -> State:
        client = state.clients[index]
        assert client.call is not None
        clock = state.clock + self._scenario.scripts[index].skew
        asked = index, client.key, clock, frozenset(answers)
        if asked not in self._known:
            self._known[asked] = self._advanced(client, index, answers, clock)
        went, after = self._known[asked]
        state = _with_client(state, index, replace(after, began_with=client.began_with))
        if not went.ended:
            return state
        return replace(state, ghost=after_call(state.ghost, client.call, went, client.began_with))

    def _advanced(
        self, client: Client, index: int, answers: tuple[tuple[int, Any], ...], clock: int
    ) -> tuple[Run, Client]:
        assert client.call is not None
        seed = bytes([index + 1, len(client.results) + 1])
        went = run(client.call.do, client.memory, answers, clock, seed)
        if not went.ended:
            after = replace(client, waiting=went.waiting, answers=went.answers)
        else:
            results = (*client.results, replace(went, memory=Memory()))
            after = self._next_call(Client(results, went.memory), index)
        waiting = tuple((request.number, request.kind) for request in after.waiting)
        return went, replace(after, key=hash((after.results, after.memory, after.answers, waiting)))

    def _next_call(self, client: Client, index: int) -> Client:
        call = self._scenario.scripts[index].next_call(client.results)
        if call is None:
            return client
        return replace(client, call=call, waiting=(Request(0, BEGIN, ()),))

    def _rest(self, state: State) -> None:
        """Let every client be gone from here on, and once all are at their end, each go on alone."""
        memories = [Memory()]
        if not any(client.waiting for client in state.clients):
            memories += [client.memory for client in state.clients]
        key = hash((state.database.key, state.ghost, state.clock, tuple(memories)))
        if key in self._rests:
            return
        self._rests.add(key)
        lease, shards = self._scenario.lease, self._scenario.shards
        for memory in memories:
            for misled in self._scenario.misled:
                at_rest(state.database.whole, state.ghost, memory, state.clock, lease, shards, misled=misled)


def _with_client(state: State, index: int, client: Client) -> State:
    return replace(state, clients=(*state.clients[:index], client, *state.clients[index + 1 :]))


def _history(seen: dict[int, tuple[int, str] | None], key: int) -> tuple[str, ...]:
    names: list[str] = []
    while (came := seen[key]) is not None:
        key, name = came
        names.append(name)
    return tuple(reversed(names))


class _Moods:
    """How likely each step is: some clients hurry, others stand still, and that changes now and then.

    With equal chances, walks in which one client does much while another does nothing would hardly occur.
    """

    def __init__(self, dice: random.Random) -> None:
        self._dice, self._weights = dice, dict[str, float]()

    def choose(self, steps: Sequence[Step]) -> Step:
        if self._dice.random() < 0.1:
            self._weights.clear()
        return self._dice.choices(steps, [self._weight(name) for name, _ in steps])[0]

    def _weight(self, name: str) -> float:
        actor = name[0] if name[1] == ":" else "time"
        if actor not in self._weights:
            self._weights[actor] = 10 ** self._dice.uniform(-2, 2) * (0.1 if actor == "time" else 1)
        return self._weights[actor] * (0.1 if name.endswith("without answer") else 1)

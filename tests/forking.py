"""Forking, and holding every lock that can be reached from some objects, as other threads may do at that moment."""

from __future__ import annotations

import os
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from shardq.base.waits import ThreadWait

__all__ = ["all_held", "ended_by", "forked", "locks_of", "start", "was_killed"]

_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_TAKEN_BEFORE_A_FORK = "shardq.storage.sqlite"  # by the store itself, which waits until they are free

LONG = 120  # seconds, after which a child is taken to hang


def start(do: Callable[[], object]) -> int:
    """Do it in a child; return the id of its process, which ends with 1 if that fails, and by a signal if it hangs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # later Pythons warn of threads, which are what this is about
        child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LONG)
        try:
            do()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return child


def ended_by(child: int) -> int:
    """Wait for the end of a child; return its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def was_killed(child: int) -> bool:
    """Wait for the end of a child; return False when it had done its work. Fails when it could not do it."""
    ended = ended_by(child)
    assert ended in (0, -signal.SIGKILL), f"the child ended with {ended}"
    return ended != 0


def forked(do: Callable[[], str]) -> str:
    """What a child answers; fails when it hangs."""
    reading, writing = os.pipe()
    child = start(lambda: os.write(writing, do().encode()))
    os.close(writing)
    with os.fdopen(reading) as answers:
        answer = answers.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, "the child hung" if os.WIFSIGNALED(status) else "the child failed"
    return answer


@contextmanager
def all_held(*roots: object) -> Iterator[None]:
    """Hold the locks meanwhile."""
    with ExitStack() as stack:
        for lock in locks_of(*roots):
            stack.enter_context(lock)
        yield


def locks_of(*roots: object) -> list[Any]:
    """Every lock, bare or of a condition or event, that shardq's objects lead to from these.

    That of a turn is no such lock: a thread that waits holds it until another one ends the turn.
    """
    seen: dict[int, object] = {}
    waiting = list(roots)
    while waiting:
        each = waiting.pop()
        is_turn = isinstance(each, ThreadWait)
        if (
            not is_turn
            and id(each) not in seen
            and not type(each).__module__.startswith(_TAKEN_BEFORE_A_FORK)
        ):
            seen[id(each)] = each
            waiting += _parts(each)
    return [each for each in seen.values() if isinstance(each, _LOCKS)]


def _parts(each: object) -> list[Any]:
    if isinstance(each, dict):
        return list(each.values())
    if isinstance(each, list | tuple | set | frozenset):
        return list(each)
    if isinstance(each, threading.Condition | threading.Event):
        return list(vars(each).values())
    if not type(each).__module__.startswith("shardq"):
        return []
    names = {name for kind in type(each).__mro__ for name in getattr(kind, "__slots__", ())}
    names |= set(getattr(each, "__struct_fields__", ())) | set(getattr(each, "__dict__", ()))
    return [getattr(each, name) for name in names if hasattr(each, name)]

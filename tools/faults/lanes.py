"""Deeds that take their time: they go on beside the schedule, so that the next fault comes when it is due."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from .schedule import Step

__all__ = ["Lanes"]

# One deed at a time in each lane: these would undo each other, meet the same queue, or take too many nodes.
_LANES = {
    "kill": "kill_producer kill_consumer kill_keeper kill_prefetcher kill_mover kill_subscriber kill_reader",
    "runners": "kill_runners",
    "roll": "roll_clients",
    "pool": "kill_pool",
    "saver": "kill_saver",
    "interrupt": "interrupt_client",
    "machine": "suspend_machine",
    "layout": "change_layout",
    "bystander": "purge_bystander recreate_bystander purge_many",
    "shard": "shard_away",
    "network": "cut_connections delay_connections swallow_answers",
    "node": "kill_node pause_node restart_node",
}
_LANE_OF = {fault: lane for lane, faults in _LANES.items() for fault in faults.split()}


class Lanes:
    """A thread for each kind of deed that takes its time. ``do`` carries out a step, to its end."""

    def __init__(self, do: Callable[[Step], None]) -> None:
        self._do = do
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._begun: list[Future[None]] = []

    def take(self, step: Step) -> bool:
        """Carry out the step when its lane is free; False when it has none and belongs into the schedule."""
        lane = _LANE_OF.get(step.fault)
        if lane is None:
            return False
        thread = self._threads.setdefault(lane, ThreadPoolExecutor(1, lane))
        self._begun.append(thread.submit(self._do, step))
        return True

    def are_free(self) -> bool:
        """Everything that they took is done."""
        return all(each.done() for each in self._begun)

    def finish(self) -> None:
        """Wait until everything is done; raises what a deed raised that it should not have."""
        wait(self._begun)
        done, self._begun = self._begun, []
        for each in done:
            each.result()

"""A client that makes backups of a file of queues."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import cast

import shardq
from shardq.base.clock import SystemClock
from shardq.storage.abilities import SavedStore
from shardq.storage.opening import open_store

from .defects import with_defect
from .history import Phase
from .role import Role
from .saved import backup_of

__all__ = ["Saving"]


class Saving(Role):
    """Makes one backup after the other beside the other clients, each under a name of its own."""

    def run(self) -> None:
        told = self.assignment
        opened = with_defect(told.defect, open_store(told.url, SystemClock()))
        number, last = told.first, told.first + told.messages
        with closing(opened):
            while number < last and not self.stopped.is_set():
                self.save(cast("SavedStore", opened), f"{told.name.partition('.')[0]}-{number}")
                number += 1
                self.pause(self.dice.uniform(0.5, 1.5) / told.rate)

    def save(self, store: SavedStore, name: str) -> None:
        """Make one backup."""
        self.record.invoke("save", [name])
        try:
            store.back_up(str(backup_of(Path(self.assignment.log).parent, name)))
        except shardq.StoreUnavailable as error:
            self.record.outcome("save", Phase.FAILED, [name], note=error)
        else:
            self.record.outcome("save", Phase.OK, [name])

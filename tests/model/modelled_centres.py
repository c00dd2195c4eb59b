"""Two data centres, each with a copy of every partition: what is written in one reaches the other at a later moment.

A request at a local level sees and changes the copy near by; one at a level of the whole cluster all that was answered.
What conditional batches agree on across the cluster is known to every other conditional batch and serial read, and to
plain reads near by at once. What is agreed on in one data centre only may be agreed on otherwise in the other
meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from tests.model.modelled_table import Database, Row, Statement, merged_cells

__all__ = ["Centres"]


class Centres(Struct, frozen=True):
    """The copies of both data centres, what all agree on, and at which levels clients ask."""

    copies: tuple[Database, Database]
    agreed: Database
    local_plain: bool  # reads and writes at LOCAL_QUORUM, otherwise at QUORUM or above
    local_serial: bool  # LOCAL_SERIAL, otherwise SERIAL

    @classmethod
    def holding(cls, database: Database, *, local_plain: bool, local_serial: bool) -> Centres:
        """Both as they are when everything has arrived."""
        return cls((database, database), database, local_plain, local_serial)

    @property
    def key(self) -> int:
        """Equal for equal states."""
        return hash((*(copy.key for copy in self.copies), self.agreed.key))

    @property
    def whole(self) -> Database:
        """What there is when everything has arrived everywhere."""
        return merged(merged(*self.copies), self.agreed)

    @property
    def lags(self) -> bool:
        """Something has not arrived everywhere."""
        return any(copy.key != self.whole.key for copy in self.copies)

    def caught_up(self) -> Centres:
        """Everything has arrived."""
        return structs.replace(self, copies=(self.whole, self.whole), agreed=self.whole)

    def select(self, statement: Statement, centre: int = 0, *, serial: bool = False) -> list[tuple[Any, ...]]:
        """The rows of a query from a client in a data centre."""
        if serial:
            return self._settled(centre).select(statement)
        return (self.copies[centre] if self.local_plain else self.whole).select(statement)

    def write(self, statements: Sequence[Statement], now: int, centre: int = 0) -> Centres:
        """Plain writes."""
        return self._changed(
            centre, lambda copy: copy.write(statements, now), everywhere=not self.local_plain
        )

    def apply(self, statements: Sequence[Statement], now: int, centre: int = 0) -> tuple[Centres, bool]:
        """Conditional writes. Where they are agreed on near by only, the other centre hears of them later."""
        after, applied = self._settled(centre).apply(statements, now)
        if not applied:
            return self, False
        everywhere = not self.local_plain and not self.local_serial
        changed = self._changed(centre, lambda copy: merged(copy, after), everywhere=everywhere)
        return changed if self.local_serial else structs.replace(changed, agreed=after), True

    def _settled(self, centre: int) -> Database:
        """What a conditional batch, or a serial read, goes by."""
        return self.copies[centre] if self.local_serial else merged(self.copies[centre], self.agreed)

    def _changed(self, centre: int, change: Any, *, everywhere: bool) -> Centres:
        copies = [
            change(copy) if everywhere or number == centre else copy
            for number, copy in enumerate(self.copies)
        ]
        return structs.replace(self, copies=(copies[0], copies[1]))


def merged(one: Database, two: Database) -> Database:
    """Both together: of each cell the last write."""
    if one.key == two.key:
        return one
    rows = {
        where: _merged_rows(one.rows.get(where, {}), two.rows.get(where, {}))
        for where in {**one.rows, **two.rows}
    }
    return Database(rows, _latest(one.dropped, two.dropped), _latest(one.ballots, two.ballots))


def _merged_rows(one: Mapping[Any, Row], two: Mapping[Any, Row]) -> dict[Any, Row]:
    return {key: merged_cells(one.get(key, Row()), two.get(key, Row())) for key in {**one, **two}}


def _latest(one: Mapping[Any, int], two: Mapping[Any, int]) -> dict[Any, int]:
    return {key: max(each[key] for each in (one, two) if key in each) for key in {**one, **two}}

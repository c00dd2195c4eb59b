"""How long a client uses the incarnation that it read last, while the record of the queue cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from shardq.errors import StoreUnavailable

queues = pytest.importorskip("shardq.storage.cassandra.queues")


class Records:
    """The session of a client: one record, which takes some seconds to read, or to fail."""

    def __init__(self) -> None:
        self.incarnation, self.took, self.fails, self.time = "first", 0.0, False, 0.0

    def read(self, *_: Any) -> list[tuple[int, str]]:
        self.time += self.took
        if self.fails:
            raise StoreUnavailable("no answer")
        return [(1, self.incarnation)]

    def now(self) -> Moment:
        return Moment(self)


class Moment:
    def __init__(self, records: Records) -> None:
        self._records, self._at = records, records.time

    def passed(self) -> float:
        return self._records.time - self._at


@pytest.mark.parametrize(("took", "seconds"), [(0.01, 2.0), (4.0, 4.0), (60.0, 10.0)])
def test_a_record_that_was_not_read_is_read_again_in_two_seconds_or_as_long_as_it_took_up_to_ten(
    monkeypatch: pytest.MonkeyPatch, took: float, seconds: float
) -> None:
    records, incarnations = Records(), queues.Incarnations()
    monkeypatch.setattr(queues, "Moment", records)
    assert incarnations.of(records, "q") == "q@first"
    records.time, records.fails, records.took = 1.0, True, took
    assert incarnations.of(records, "q") == "q@first"
    records.incarnation, records.fails, records.took = "second", False, 0.0  # it is created again
    records.time += seconds - 0.1
    assert incarnations.of(records, "q") == "q@first"
    records.time += 0.2
    assert incarnations.of(records, "q") == "q@second"

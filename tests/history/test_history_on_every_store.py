"""The history on a store of each kind, whose time is real."""

from __future__ import annotations

from collections.abc import Callable

import shardq
from shardq.history import Sampler, read_history
from shardq.metrics import Metrics
from shardq.testing import ManualTimer


def test_samples_and_reports_of_two_processes_are_read(
    any_url: str, connect_any: Callable[[], shardq.Client], name: str
) -> None:
    folder, timer, metrics = f"_shardq/{name}/", ManualTimer(), Metrics()
    with shardq.connect(any_url, observer=metrics) as client:
        first, second = connect_any(), connect_any()
        queue = client.create_queue(name, shards=1, time_shards=1, max_deliveries=None)
        reporting = Sampler(client, measures=metrics.measures, prefix=name, folder=folder, timer=timer)
        one, two = (Sampler(each, prefix=name, folder=folder, timer=timer) for each in (first, second))

        def go_on(*samplers: Sampler) -> None:
            for each in samplers:
                each.step()
            timer.advance(15)

        try:
            one.step()  # takes the lease
            go_on(one, reporting, two)
            assert [each.is_sampler for each in (one, reporting, two)] == [True, False, False]
            queue.producer().send_many([b"x"] * 20)
            with queue.consumer() as consumer:
                consumer.receive(5).ack()
                reporting.step()
                go_on(one, reporting, two)
            one.close()
            timer.advance(30)
            go_on(two, reporting)
            assert [each.is_sampler for each in (one, reporting, two)] == [False, False, True]
            go_on(two, reporting)
            history = read_history(client, name, since=60, points=4, folder=folder)
            assert [point.ready for point in history.points if point.ready is not None][-1] == 15
            flows = [(point.incoming or 0.0) * point.seconds for point in history.points]
            assert round(sum(flows)) == 20
            assert any(point.wait is not None for point in history.points)
        finally:
            for each in (one, reporting, two):
                each.close()
            for log in client.queues(folder):
                client.delete_queue(log)
